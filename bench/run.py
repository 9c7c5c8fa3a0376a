#!/usr/bin/env python3
"""Measures what a request costs through weir, nginx, HAProxy and a bare relay, in one interleaved run.

Builds weir with `--profile dist`, installs what is missing, starts every gateway with one worker and the same duties in
front of the same origin, and writes a table and every sample of it to bench/results/. How to read the figures, and how
not to: docs/benchmarks.md. Everything listens on loopback, on ports that were free.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from harness import gateway, process, report  # noqa: E402
from suites import SUITES  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent


class Env:
    """One run: what is built, where it may write, how long and how often it measures."""

    def __init__(self, args, scratch, gateways, weir, descriptors):
        self.scratch, self.gateways, self.rounds, self.seconds = scratch, gateways, args.rounds, args.seconds
        self.tools = build_tools(scratch)
        cert, key, pem = certificate(scratch)
        # Three quarters for connections: idle ones hold one descriptor, busy ones two, and the suites stay below either.
        self.values = {"bin": weir, "tools": self.tools, "cert": cert, "key": key, "pem": pem, "descriptors": descriptors, "connections": descriptors * 3 // 4}
        self._origins = {}

    def answer(self):
        """The port of the origin for small answers: 1 KiB."""
        return self._origin("answer", 1024)

    def blob(self, size):
        """The port of the origin for large bodies."""
        return self._origin("blob", size)

    def h2c(self):
        """The port of an origin of HTTP/2 in cleartext for small answers: nginx, from memory."""
        if "h2c" not in self._origins:
            port, folder = process.free_port(), self.scratch / "h2c"
            folder.mkdir()
            config = folder / "nginx.conf"
            config.write_text(gateway.fill((BENCH / "tools/h2c.conf").read_text(), {"port": port, "dir": folder, "body": "x" * 1024}))
            p = process.Process("h2c", ["nginx", "-p", str(folder), "-c", str(config)], folder / "log")
            p.wait_for_port(port)
            self._origins["h2c"] = port
        return self._origins["h2c"]

    def greeter(self):
        """The port of a gRPC server in Go: it knows every method, and echoes the message."""
        if "greeter" not in self._origins:
            port, binary = process.free_port(), self.tools / "greeter"
            subprocess.run(["go", "build", "-o", str(binary), "."], cwd=BENCH / "tools/greeter", check=True)
            p = process.Process("greeter", [str(binary), str(port)], self.scratch / "greeter.log")
            p.wait_for_port(port)
            self._origins["greeter"] = port
        return self._origins["greeter"]

    def _origin(self, tool, size):
        if tool not in self._origins:
            port = process.free_port()
            p = process.Process(tool, [str(self.tools / tool), str(port), str(size)], self.scratch / f"{tool}.log")
            p.wait_for_port(port)
            self._origins[tool] = port
        return self._origins[tool]

    @staticmethod
    def say(text):
        print(text, file=sys.stderr, flush=True)


def main():
    args = arguments()
    suites = [s for s in SUITES if not args.suite or s.name in args.suite]
    gateways = [g for g in gateway.all_gateways() if g.name not in args.without]
    install(gateways)
    weir = args.bin or (build_weir() if any(g.role == "subject" for g in gateways) else None)
    descriptors = process.raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        scratch.chmod(0o755)  # nginx workers run as another user
        env = Env(args, scratch, gateways, weir and pathlib.Path(weir).resolve(), descriptors)
        versions = {g.name: g.version(env.values) for g in gateways}
        try:
            results = [run(suite, env, args, versions) for suite in suites]
        finally:
            process.stop_all()
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
    """What somebody else types to repeat this suite. The path of a binary is left out: it says nothing elsewhere."""
    words = ["bench/run.py", "--suite", suite, "--rounds", str(args.rounds), "--seconds", str(args.seconds)]
    for name in args.without:
        words += ["--without", name]
    return shlex.join(words)


def install(gateways):
    wanted = ["cc", "h2load", "nginx", "openssl", "wrk"] + [g.tool for g in gateways if g.tool]
    subprocess.run([str(ROOT / "scripts/ensure-tools.sh"), *wanted], check=True, stdin=subprocess.DEVNULL)


def build_weir():
    Env.say("building weir with --profile dist")
    subprocess.run(["cargo", "build", "--locked", "--profile", "dist", "--bin", "weir"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "dist/weir"


def build_tools(scratch):
    folder = scratch / "tools"
    folder.mkdir()
    for source in sorted((BENCH / "tools").glob("*.c")):
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", str(folder / source.stem), str(source)], check=True)
    return folder


def certificate(scratch):
    """One ECDSA P-256 certificate for all: certificate, key, and both in one file, which is how HAProxy wants them."""
    cert, key, pem = (scratch / n for n in ("cert.pem", "key.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True)  # fmt: skip
    pem.write_bytes(cert.read_bytes() + key.read_bytes())
    for f in (cert, key, pem):
        f.chmod(0o644)
    return cert, key, pem


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
