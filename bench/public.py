#!/usr/bin/env python3
"""Measures everything that docs/explain/benchmarks.md shows, with one command, and writes the page.

    bench/public.py                          builds Weir, and runs all parts: about 35 minutes on two quiet cores
    bench/public.py --bin PATH               of this binary
    bench/public.py --part published         one part: gateways (10 minutes), published (20), testers (5)

Run `make peers` before, and keep the machine quiet: results name the share that other programs took. A part that fails
does not stop the others; then the exit code is 1.
"""

import argparse
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import charts  # noqa: E402
from harness.env import BENCH, ROOT, build_weir  # noqa: E402

GATEWAYS = (*charts.ONE, *charts.TWO, "filters", "cache-hit", "style-sheet")
TESTERS = ([], ["--http2", "-m", "10"], ["--grpc", "-c", "1", "-m", "50"])


def commands(weir):
    """Each part with its commands."""
    suites = [word for s in GATEWAYS for word in ("--suite", s)]
    load = [BENCH / "load.py", "--weir", weir, "--save", "-r", "5", "-d", "3"]
    beside = ["--beside", "h2load", "oha", "hey", "vegeta", "k6"]
    return {
        "gateways": [[BENCH / "run.py", "--bin", weir, "--rounds", "5", "--seconds", "2", *suites]],
        "published": [[BENCH / "published/run.py", "--bin", weir]],
        "testers": [[*load, *more, *(beside if not more else [])] for more in TESTERS],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", metavar="PATH", help="this weir, instead of building one with --profile dist")
    parser.add_argument("--part", action="append", choices=list(commands("")), help="only this part; may be given again")
    args = parser.parse_args()
    weir = str(pathlib.Path(args.bin or build_weir("dist")).resolve())
    failed = []
    for part, wanted in commands(weir).items():
        if args.part and part not in args.part:
            continue
        started = time.monotonic()
        for command in wanted:
            if subprocess.run([str(word) for word in command], cwd=ROOT).returncode:
                failed.append(" ".join(str(word) for word in command))
        print(f"{part}: {(time.monotonic() - started) / 60:.0f} minutes", file=sys.stderr, flush=True)
    charts.main([])
    if failed:
        print("Failed:", *failed, sep="\n  ", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
