#!/usr/bin/env python3
"""Measures the load tester's cost per request, together with wrk's, in one interleaved run.

All generators are pinned to one core and load the cheapest origin (tools/answer.c, 1 KiB) on another. Each round runs
each of them, in alternating order. Prints the median over rounds of requests per second of the generator's processor
time, and the median of weir's ratio to each other's in the same round. Processor time is the whole process's,
including start and output.

--beside adds tools that bench/peers.py installs, and h2load; a tool that is not there is left out, and said so. --save
writes the result to bench/results/, where the charts of docs/explain/benchmarks.md find it.

With --http2 the origin is `weir origin` by prior knowledge, and the peer is h2load. With --grpc the peer is ghz, and
both make unary calls of one short message to an echo server in Go (tools/greeter). Both use --connections with
--streams concurrent requests on each.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import peers  # noqa: E402
from harness import process, report  # noqa: E402
from harness.env import BENCH, ROOT, build_weir  # noqa: E402
from harness.result import Result, Target  # noqa: E402


def main():
    args = arguments()
    os.environ["PATH"] = peers.path_with_peers()
    weir = args.weir or build_weir("dist")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("needs two cores: one for the origin, one for the generator")
    others = process.Bystanders()
    with tempfile.TemporaryDirectory() as scratch:
        work = grpc if args.grpc else http2 if args.http2 else http
        peer, generators = work(args, weir, pathlib.Path(scratch), str(cores[0]))
        rates = {name: [] for name in generators}
        for number in range(args.rounds):
            order = list(generators)[:: 1 if number % 2 == 0 else -1]
            for name in order:
                command, read = generators[name]
                rates[name].append(per_core_second(["taskset", "-c", str(cores[-1]), *map(str, command)], read))
            print(f"round {number + 1}: " + ", ".join(f"{n} {r[-1]:,.0f}" for n, r in rates.items()), file=sys.stderr, flush=True)
    for name, samples in rates.items():
        print(f"{name:<6} {statistics.median(samples):>12,.0f} requests per generator core-second")
    ratios = {}
    for other in (name for name in rates if name != "weir"):
        ratios[other] = statistics.median(a / b for a, b in zip(rates["weir"], rates[other]))
        print(f"weir over {other}, median of {args.rounds} rounds: {ratios[other]:.3f}")
    if args.save:
        save(args, rates, ratios, others.share(), version(weir, "--version"))
    return 0 if ratios[peer] >= args.least else 1


def save(args, rates, ratios, others_share, weir):
    """Writes the result beside those of the gateways."""
    kind = "grpc" if args.grpc else "h2" if args.http2 else "h1"
    about = f"load testers, {kind}, {args.connections} connections" + (f" of {args.streams} streams" if kind != "h1" else "")
    rows = [{"name": n, "per_core_second": statistics.median(r), "ratio": ratios.get(n)} for n, r in rates.items()]
    rows.sort(key=lambda row: (row["name"] != "weir", -row["per_core_second"]))
    columns = [("name", "tool", "{}"), ("per_core_second", "requests per core-second", "{:,.0f}"), ("ratio", "weir over it", "{:.2f}")]
    targets = [Target(f"weir over {n}", r, 1.0, at_least=True) for n, r in ratios.items()]
    result = Result(f"load-{kind}", about, columns, rows, targets, [dict(zip(rates, samples)) for samples in zip(*rates.values())])
    context = {
        "machine": report.machine(),
        "commit": report.commit(ROOT),
        "versions": {"weir": weir, **{n: peers.version(n) for n in rates if n != "weir"}},
        "command": shlex.join(["bench/load.py", *without_path(sys.argv[1:])]),
        "others_share": round(others_share, 3),
    }
    print(report.write(result, BENCH / "results", context))


def without_path(words):
    """The arguments without `--weir PATH`, because a path means nothing elsewhere."""
    at = words.index("--weir") if "--weir" in words else len(words)
    return words[:at] + words[at + 2 :]


def version(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def http(args, weir, scratch, core):
    """wrk, further requested tools, and weir on the cheapest origin."""
    tool = scratch / "answer"
    subprocess.run(["cc", "-O2", "-o", tool, BENCH / "tools/answer.c"], check=True)
    url = f"http://127.0.0.1:{start(tool, ['1024'], scratch, core)}/"
    connections, time = str(args.connections), f"{args.seconds}s"
    load = ["--threads", "1", "-c", connections, "-d", time, url]
    script = scratch / "k6.js"
    script.write_text(f'import http from "k6/http"; export const options = {{discardResponseBodies: true}}; export default () => http.get("{url}");')
    beside = {
        "h2load": (["h2load", "--h1", "-t", "1", "-c", connections, "-D", time, url], h2load_requests),
        "oha": (["oha", "--no-tui", "--output-format", "json", "-c", connections, "-z", time, url], oha_requests),
        "k6": (["k6", "run", "-q", "--vus", connections, "--duration", time, script], k6_requests),
        "hey": (["hey", "-cpus", "1", "-c", connections, "-z", time, url], hey_requests),
        # As fast as possible, with as many workers as the others have connections.
        "vegeta": (["sh", "-c", f"echo 'GET {url}' | vegeta -cpus 1 attack -rate 0 -max-workers {connections} -duration {time} | vegeta report -type json"], vegeta_requests),
    }
    absent = [name for name in args.beside if not shutil.which(name)]
    if absent:
        print(f"Left out, because they are not installed (bench/peers.py): {', '.join(absent)}", file=sys.stderr)
    beside = {name: beside[name] for name in args.beside if name not in absent}
    return "wrk", {"wrk": (["wrk", *load], wrk_requests), **beside, "weir": ([weir, "load", *load], weir_requests)}


def http2(args, weir, scratch, core):
    """h2load and weir on `weir origin`, by prior knowledge."""
    port = process.free_port()
    command = ["taskset", "-c", core, str(weir), "origin", "--http", f"127.0.0.1:{port}", "--threads", "1", "--fixed", "1KiB"]
    process.Process("origin", command, scratch / "origin.log").wait_for_port(port)
    url, connections, streams = f"http://127.0.0.1:{port}/", str(args.connections), str(args.streams)
    theirs = ["h2load", "-t", "1", "-c", connections, "-m", streams, "-D", f"{args.seconds}s", url]
    ours = [weir, "load", "--http2", "--threads", "1", "-c", connections, "-m", streams, "-d", f"{args.seconds}s", url]
    return "h2load", {"h2load": (theirs, h2load_requests), "weir": (ours, weir_requests)}


def grpc(args, weir, scratch, core):
    """ghz and weir on an echo server in Go."""
    tool = scratch / "greeter"
    subprocess.run(["go", "build", "-o", tool, "."], cwd=BENCH / "tools/greeter", check=True)
    port = start(tool, [], scratch, core)
    proto = str(ROOT / "crates/weir-origin/proto/greeter.proto")
    connections, workers, message = str(args.connections), str(args.connections * args.streams), json.dumps({"name": "x" * 52})
    ghz = [args.ghz, "--insecure", "--proto", proto, "--call", "helloworld.v1.Greeter.SayHello", "-d", message, "--cpus", "1"]
    ghz += ["--connections", connections, "-c", workers, "-z", f"{args.seconds}s", "--duration-stop", "wait", f"127.0.0.1:{port}"]
    ours = [weir, "load", "--threads", "1", "-c", connections, "-m", str(args.streams), "-d", f"{args.seconds}s", "--proto", proto, "--data", message]
    ours += [f"grpc://127.0.0.1:{port}/helloworld.v1.Greeter/SayHello"]
    return "ghz", {"ghz": (ghz, ghz_requests), "weir": (ours, weir_requests)}


def start(tool, arguments, scratch, core):
    port = process.free_port()
    command = ["taskset", "-c", core, str(tool), str(port), *arguments]
    process.Process(tool.name, command, scratch / f"{tool.name}.log").wait_for_port(port)
    return port


def per_core_second(command, read):
    before = process.children_cpu()
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = process.children_cpu() - before
    return read(out) / cpu


def wrk_requests(out):
    return int(re.search(r"(\d+) requests in", out)[1])


def ghz_requests(out):
    """The answered requests, counted as weir does."""
    return int(re.search(r"\[OK\]\s+(\d+) responses", out)[1])


def h2load_requests(out):
    return int(re.search(r"(\d+) succeeded", out)[1])


def k6_requests(out):
    return int(re.search(r"http_reqs\.*: (\d+)", out)[1])


def hey_requests(out):
    return sum(int(n) for n in re.findall(r"\[200\]\s+(\d+) responses", out))


def vegeta_requests(out):
    return json.loads(out)["status_codes"]["200"]


def oha_requests(out):
    return sum(json.loads(out)["statusCodeDistribution"].values())


def weir_requests(out):
    return int(re.search(r"^responses\s+([\d,]+)", out, re.M)[1].replace(",", ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=7)
    parser.add_argument("-d", "--seconds", type=int, default=3)
    parser.add_argument("-c", "--connections", type=int, default=64)
    parser.add_argument("--grpc", action="store_true", help="unary calls of gRPC, beside ghz")
    parser.add_argument("--http2", action="store_true", help="HTTP/2 by prior knowledge, beside h2load")
    parser.add_argument("--beside", nargs="*", default=[], choices=["h2load", "hey", "k6", "oha", "vegeta"], help="more than wrk, for HTTP/1.1")
    parser.add_argument("-m", "--streams", type=int, default=1, help="requests at a time on each connection, with --grpc and --http2")
    parser.add_argument("--ghz", default="ghz", help="its binary (go install github.com/bojand/ghz/cmd/ghz@latest)")
    parser.add_argument("--save", action="store_true", help="write the result to bench/results/")
    parser.add_argument("--weir", help="the binary to measure [default: built with --profile dist]")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 below this ratio")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
