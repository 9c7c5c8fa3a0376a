#!/usr/bin/env python3
"""Measures what a journey of three steps costs the load tester, beside other tools that run journeys.

The journey logs in, lists items with the token of the first answer, and gets the item whose id the second answer holds
(journey/). 50 users repeat it as fast as they can. All tools are pinned to one core and load the cheapest origin
(tools/answer.c) on another. Each round runs each tool, in alternating order. Prints the median over rounds of requests
per second of the tool's processor time, and the median of weir's ratio to each other's in the same round. Each sample is
the difference between a long run and one of two seconds, so that the start of a tool does not count: goose reads the
system's certificates for each user, and Locust loads Python.

goose is built from journey/goose, Locust is the program `locust` (pip install locust) or what --locust names, and k6
runs journey/k6.js if it is asked for and installed.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from harness import process  # noqa: E402
from harness.env import BENCH, build_weir  # noqa: E402
from load import k6_requests, weir_requests  # noqa: E402

JOURNEY = BENCH / "journey"

# Seconds of the short run.
SHORT = 2


def main():
    args = arguments()
    weir = pathlib.Path(args.weir or build_weir("dist")).resolve()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("needs two cores: one for the origin, one for the tool")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tool, port = scratch / "answer", process.free_port()
        subprocess.run(["cc", "-O2", "-o", tool, BENCH / "tools/answer.c"], check=True)
        command = ["taskset", "-c", str(cores[0]), str(tool), str(port), f"@{JOURNEY / 'body.json'}"]
        process.Process("answer", command, scratch / "answer.log").wait_for_port(port)
        tools = commands(args, weir, f"http://127.0.0.1:{port}")
        rates = {name: [] for name in tools}
        for number in range(args.rounds):
            for name in list(tools)[:: 1 if number % 2 == 0 else -1]:
                rates[name].append(sample(tools[name], args.seconds, cores[-1]))
            print(f"round {number + 1}: " + ", ".join(f"{n} {r[-1]:,.0f}" for n, r in rates.items()), file=sys.stderr, flush=True)
    process.stop_all()
    for name, samples in rates.items():
        print(f"{name:<6} {statistics.median(samples):>12,.0f} requests per core-second of the tool")
    for other in (name for name in rates if name != "weir"):
        ratio = statistics.median(a / b for a, b in zip(rates["weir"], rates[other]))
        print(f"weir over {other}, median of {args.rounds} rounds: {ratio:.2f}")


def sample(tool, seconds, core):
    """Requests per core-second in the part of a run that lies behind its first two seconds."""
    of, read = tool
    (few, before), (many, after) = (once(of(f"{length}s"), read, core) for length in (SHORT, seconds))
    return (many - few) / (after - before)


def once(command, read, core):
    """The requests of a run, and its processor time in seconds."""
    before = process.children_cpu()
    out = subprocess.run(["taskset", "-c", str(core), *map(str, command)], capture_output=True, text=True, check=True).stdout
    return read(out), process.children_cpu() - before


def commands(args, weir, url):
    """For each tool, how its command line is made for a length, and how its requests are read."""
    users = "50"
    load = [weir, "load", "-f", JOURNEY / "plan.yaml", "--threads", "1", "--no-live", "--set", f"target={url}"]
    tools = {"weir": (lambda time: [*load, "-d", time], weir_requests)}
    if "locust" not in args.without:
        locust = [args.locust, "-f", JOURNEY / "locustfile.py", "--headless", "--only-summary", "-u", users, "-r", users, "--host", url]
        tools["locust"] = (lambda time: ["sh", "-c", 'exec "$@" 2>&1', "sh", *locust, "-t", time], aggregated)
    if args.k6:
        k6 = ["env", f"TARGET={url}", "k6", "run", "-q", "--vus", users, JOURNEY / "k6.js"]
        tools["k6"] = (lambda time: [*k6, "--duration", time], k6_requests)
    if "goose" not in args.without:
        goose = [args.goose or built_goose(), "-H", url, "-u", users, "-r", users, "--no-status-codes", "--no-reset-metrics"]
        tools["goose"] = (lambda time: [*goose, "-t", time], aggregated)
    return tools


def built_goose():
    subprocess.run(["cargo", "build", "--release"], cwd=JOURNEY / "goose", check=True)
    return JOURNEY / "goose/target/release/journey-goose"


def aggregated(out):
    """The requests of the row of sums, in Locust's table and in goose's."""
    return int(re.findall(r"(?m)^\s*Aggregated\s*\|?\s+([\d,]+)", out)[0].replace(",", ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-d", "--seconds", type=int, default=8)
    parser.add_argument("--weir", help="the binary to measure [default: built with --profile dist]")
    parser.add_argument("--locust", default="locust", help="its program")
    parser.add_argument("--goose", help="its journey, built [default: built here]")
    parser.add_argument("--k6", action="store_true", help="k6 too")
    parser.add_argument("--without", nargs="*", default=[], choices=["goose", "locust"], help="tools to leave out")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
