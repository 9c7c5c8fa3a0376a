#!/usr/bin/env python3
"""Measures what the load tester itself takes, against its targets:

- the processor time of a whole run of 10 requests, start and report included: median below 20 ms;
- the memory of 10,000 users of a plan, with a pause between two steps: below 400 MB;
- the processor time of a coordinator for each second of a load on 50 agents, which it receives, checks and adds up:
  below 100 ms. It is the difference between a long run and a short one.

Everything runs on loopback, at the cheapest origin (tools/answer.c). Exits with 1 if a target is missed.
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

USERS = """
target: {url}
users: 10000
dry_run: false
scenarios: {{ a: {{ steps: [ {{ name: x, get: /, keep: {{ code: status }} }}, {{ pause: 3s }}, {{ name: y, get: "/{{{{code}}}}" }}, {{ pause: 3s }} ] }} }}
"""

# Seconds of the two runs whose difference is what each second costs the coordinator.
SHORT, LONG = 2, 10


def main():
    args = arguments()
    weir = str(pathlib.Path(args.weir or build_weir("release")).resolve())
    missed = False

    def tell(what, value, unit, most, more=""):
        nonlocal missed
        missed |= value >= most
        print(f"{what}: {value:.1f} {unit} of {most} {unit}{'' if value < most else ', MISSED'}{more}", flush=True)

    process.raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tool, port = scratch / "answer", process.free_port()
        subprocess.run(["cc", "-O2", "-o", tool, BENCH / "tools/answer.c"], check=True)
        process.Process("answer", [str(tool), str(port), "1024"], scratch / "answer.log").wait_for_port(port)
        url = f"http://127.0.0.1:{port}"
        try:
            times = sorted(start(weir, url) for _ in range(args.starts))
            more = f" (p90 {times[int(len(times) * 0.9)]:.1f} ms, most {times[-1]:.1f} ms, {args.starts} runs)"
            tell("a run of 10 requests", statistics.median(times), "ms", 20, more)
            users, more = memory(weir, url, scratch)
            tell("10,000 users", users, "MB", 400, more)
            tell(f"a second of {args.agents} agents", agents(weir, url, args.agents, scratch), "ms", 100)
        finally:
            process.stop_all()
    return 1 if missed else 0


def start(weir, url):
    """The processor time of a run of 10 requests, in milliseconds."""
    return spent([weir, "load", "-n", "10", "--no-live", url])[0]


def memory(weir, url, scratch):
    """The most memory that a run with 10,000 users took, in megabytes, and what it did."""
    plan = scratch / "plan.yaml"
    plan.write_text(USERS.format(url=url))
    command = [weir, "load", "-f", str(plan), "-d", "12s", "--no-live"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    out = child.stdout.read()
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    done = re.search(r"(?m)^responses +([\d,]+)", out)[1]
    errors = re.search(r"(?m)^errors +([\d,]+)", out)[1]
    return usage.ru_maxrss * 1024 / 1e6, f" ({done} responses, {errors} errors)"


def agents(weir, url, count, scratch):
    """What each second of a load on so many agents costs their coordinator, in milliseconds."""
    token = scratch / "token"
    token.write_text("a-token-of-this-run-alone\n")
    allowed = ["--token-file", str(token), "--allow", url]
    ports = [process.free_port() for _ in range(count)]
    running = [
        process.Process(f"agent-{port}", [weir, "agent", "--listen", f"127.0.0.1:{port}", *allowed], scratch / f"agent-{port}.log")
        for port in ports
    ]
    for one, port in zip(running, ports):
        one.wait_for_port(port)
    all_of_them = ",".join(f"127.0.0.1:{port}" for port in ports)
    load = [weir, "load", "--rate", f"{20 * count}/s", "-c", str(2 * count), "--no-live", "--agents", all_of_them, "--token-file", str(token)]
    costs = {}
    for seconds in (SHORT, LONG):
        costs[seconds], out = spent([*load, "-d", f"{seconds}s", url])
        if not re.search(rf"(?m)^responses +{20 * count * seconds:,} ", out):
            raise RuntimeError(f"not every request was answered:\n{out}")
    return (costs[LONG] - costs[SHORT]) / (LONG - SHORT)


def spent(command):
    """The processor time of a command in milliseconds, and its output."""
    before = process.children_cpu()
    out = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    return (process.children_cpu() - before) * 1000, out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", help="the binary to measure [default: built with --profile release]")
    parser.add_argument("--starts", type=int, default=41, help="runs of 10 requests")
    parser.add_argument("--agents", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
