#!/usr/bin/env python3
"""Measures the cost of a request through weir, nginx, HAProxy and a bare relay, in one interleaved run.

Builds weir with `--profile dist`, installs missing tools, starts every gateway with one worker and the same duties in
front of the same origin, and writes a table and every sample to bench/results/. docs/dev/benchmarks.md explains how
to read the figures, and how not to. Everything listens on loopback, on free ports.
"""

import argparse
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import charts  # noqa: E402
from harness import gateway, process, report  # noqa: E402
from harness.env import BENCH, ROOT, Env, build_weir  # noqa: E402
from suites import SUITES  # noqa: E402


def main():
    args = arguments()
    suites = [s for s in SUITES if not args.suite or s.name in args.suite]
    gateways = [g for g in gateway.all_gateways() if g.name not in args.without]
    left_out = [g.name for g in gateways if g.is_missing]
    gateways = [g for g in gateways if not g.is_missing]
    if left_out:
        Env.say(f"Left out, because `make peers` has not installed them: {', '.join(left_out)}")
    install(gateways)
    weir = args.bin or (build_weir("dist") if any(g.role == "subject" for g in gateways) else None)
    descriptors = process.raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        scratch.chmod(0o755)  # nginx workers run as another user
        env = Env(scratch, gateways, weir and pathlib.Path(weir).resolve(), descriptors, rounds=args.rounds, seconds=args.seconds)
        versions = {g.name: g.version(env.values) for g in gateways}
        try:
            results = [run(suite, env, args, versions) for suite in suites]
        finally:
            process.stop_all()
    if args.out == BENCH / "results":
        charts.main([])
    missed = [t for r in results for t in r.targets if t.met is False]
    if missed:
        print("Missed:", *missed, sep="\n")
    return 1 if missed and args.strict else 0


def run(suite, env, args, versions):
    env.say(f"{suite.name}: {suite.about}")
    context = {
        "machine": report.machine(),
        "commit": report.commit(ROOT),
        "versions": versions,
        "command": command_line(suite.name, args),
        "rounds_asked": args.rounds,
        "seconds": args.seconds,
    }
    others = process.Bystanders()
    result = suite.run(env)
    context["others_share"] = round(others.share(), 3)
    if context["others_share"] > 0.05:
        result.notes.append("other programs disturbed this run: trust the ratios a little, the absolute figures not at all.")
    print(report.write(result, args.out, context), flush=True)
    return result


def command_line(suite, args):
    """The command that repeats this suite. A binary's path is left out, because it means nothing elsewhere."""
    words = ["bench/run.py", "--suite", suite, "--rounds", str(args.rounds), "--seconds", str(args.seconds)]
    for name in args.without:
        words += ["--without", name]
    return shlex.join(words)


def install(gateways):
    wanted = ["cc", "h2load", "nginx", "openssl", "wrk"] + [g.tool for g in gateways if g.tool]
    subprocess.run([str(ROOT / "scripts/ensure-tools.sh"), *wanted], check=True, stdin=subprocess.DEVNULL)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", action="append", choices=[s.name for s in SUITES], help="only this one; may be given again")
    p.add_argument("--rounds", type=int, default=9, help="rounds that count, after one that warms up (default 9)")
    p.add_argument("--seconds", type=int, default=3, help="of load per gateway and round (default 3)")
    p.add_argument("--bin", metavar="PATH", help="this weir, instead of building one")
    p.add_argument("--without", action="append", default=[], metavar="NAME", help="leave a gateway out; may be given again")
    p.add_argument("--out", type=pathlib.Path, default=BENCH / "results", help="where results go (default bench/results)")
    p.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    p.add_argument("--list", action="store_true", help="list the suites and end")
    args = p.parse_args()
    if args.list:
        for s in SUITES:
            print(f"{s.name:<12} {s.about}")
        sys.exit(0)
    if args.bin and not shutil.which(args.bin):
        p.error(f"--bin {args.bin}: not a program")
    return args


if __name__ == "__main__":
    sys.exit(main())
