#!/usr/bin/env python3
"""Compares every figure that another load tester prints with the output of `weir load` in that tool's layout.

Each tool and weir run in turn, for the same time, on the same target: nginx with 1 KiB from memory for rates, and
`weir origin` with a delay for latencies (there ab runs without keep-alive, because it speaks HTTP/1.0). The generator
has one core, the target another. Each output line is identified by its text without numbers, so a line that only one
of the two prints is noticed. Prints Markdown: medians over the rounds with minimum and maximum, and requests per
second of the generator's processor time (whole process, including start and output).

Skips tools that are not installed: wrk, ab (apache2-utils), h2load, k6, oha.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from harness import process  # noqa: E402
from harness.env import build_weir  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent
NUMBER = re.compile(r"(?<![\w/.(])(-?\d[\d,]*\.?\d*)\s?(ns|us|µs|μs|ms|s|m|kB|KB|MB|GB|KiB|MiB|k|M|B|%)?(?![\w])")
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "kB": 1e3, "KB": 1024, "MB": 1e6, "GB": 1e9, "KiB": 1024, "MiB": 1 << 20, "k": 1e3, "M": 1e6, "%": 1, "B": 1, None: 1, "": 1}

NGINX = """
daemon off; master_process off; pid %(folder)s/nginx.pid; error_log stderr;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; client_body_temp_path %(folder)s; proxy_temp_path %(folder)s; fastcgi_temp_path %(folder)s;
  uwsgi_temp_path %(folder)s; scgi_temp_path %(folder)s;
  server { listen 127.0.0.1:%(port)d; location / { default_type text/plain; return 200 "%(body)s"; } }
}
"""


def main():
    args = arguments()
    weir = str(pathlib.Path(args.weir).resolve()) if args.weir else build_weir("dist")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("needs two cores: one for the target, one for the generator")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, url in targets(scratch, cores[0], weir):
            if args.target and not name.startswith(args.target):
                continue
            compare(args, weir, name, url, cores[-1], scratch)


def targets(scratch, core, weir):
    """Each target's name and URL while it runs."""
    port = process.free_port()
    (scratch / "nginx.conf").write_text(NGINX % {"folder": scratch, "port": port, "body": "x" * 1024})
    one = process.Process("nginx", ["taskset", "-c", str(core), "nginx", "-c", str(scratch / "nginx.conf"), "-e", "stderr"], scratch / "nginx.log")
    one.wait_for_port(port)
    yield "nginx, 1 KiB", f"http://127.0.0.1:{port}/"
    port = process.free_port()
    two = process.Process("origin", ["taskset", "-c", str(core), str(weir), "origin", "-t", "1", "--http", f"127.0.0.1:{port}"], scratch / "origin.log")
    two.wait_for_port(port)
    yield "weir origin, /delay/20", f"http://127.0.0.1:{port}/delay/20"


def compare(args, weir, name, url, core, scratch):
    print(f"\n## {name}\n\n{args.connections} connections, {args.seconds} s, {args.rounds} rounds.")
    (scratch / "script.js").write_text(f"import http from 'k6/http';\nexport default function () {{ http.get('{url}'); }}\n")
    c, s = str(args.connections), f"{args.seconds}s"
    load = [weir, "load", "--threads", "1", "-c", c]
    n = str(args.seconds * (30000 if "delay" not in url else 40 * args.connections))
    kept = "delay" not in url
    pairs = {
        "wrk": (["wrk", "--latency", "-t", "1", "-c", c, "-d", s, url], [*load, "-d", s, "--format", "wrk", url], text, rate_of(r"(\d+) requests in")),
        "ab": (["ab", "-q", *(["-k"] if kept else []), "-c", c, "-n", n, url], [*load, *([] if kept else ["--no-keepalive"]), "-n", n, "--format", "ab", url], text, rate_of(r"Complete requests:\s+(\d+)")),
        "k6": (
            ["k6", "run", "--no-color", "--quiet", "--vus", c, "--duration", s, "--summary-mode=full", str(scratch / "script.js")],
            [*load, "-d", s, "--format", "k6-full", url],
            text,
            rate_of(r"http_reqs\.*: (\d+)"),
        ),
        "oha": (["oha", "--no-tui", "--output-format", "json", "-c", c, "-z", s, url], [*load, "-d", s, "--format", "oha-json", url], oha, lambda out: sum(json.loads(out)["statusCodeDistribution"].values())),
        "h2load": (["h2load", "--h1", "-t", "1", "-c", c, "-D", str(args.seconds), url], [*load, "-d", s, "--format", "json", url], h2load, lambda out: h2load_requests(out)),
    }
    costs = []
    for tool, (theirs, ours, read, requests) in pairs.items():
        if not shutil.which(tool) or (args.only and tool not in args.only):
            continue
        seen = {tool: [], "weir": []}
        per_core = {tool: [], "weir": []}
        for number in range(args.rounds):
            order = [(tool, theirs), ("weir", ours)]
            for who, command in order[:: 1 if number % 2 == 0 else -1]:
                out, cpu = run(["taskset", "-c", str(core), *map(str, command)])
                seen[who].append(read(out))
                per_core[who].append(requests(out) / cpu)
        table(tool, seen)
        ratio = statistics.median(a / b for a, b in zip(per_core["weir"], per_core[tool]))
        costs.append((tool, statistics.median(per_core[tool]), statistics.median(per_core["weir"]), ratio))
    if "delay" not in url:
        print("\n### Requests per core-second of the generator\n\n| tool | tool | weir | weir over tool, median of rounds |\n|---|---|---|---|")
        for tool, theirs, ours, ratio in costs:
            print(f"| {tool} | {theirs:,.0f} | {ours:,.0f} | {ratio:.2f} |")
    sys.stdout.flush()


def run(command):
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, cpu


def rate_of(pattern):
    return lambda out: int(re.search(pattern, out)[1])


def text(out):
    """The numbers of each line, keyed by the line without them. A repeated line gets a number."""
    if "TOTAL RESULTS" in out:
        out = out.split("TOTAL RESULTS", 1)[1]
    figures = {}
    for line in out.splitlines():
        line = re.sub(r"\$Revision: \d+ \$", "", line)
        values = [float(n.replace(",", "")) * UNITS[u or None] for n, u in NUMBER.findall(line)]
        key = re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()
        # The first number of such a line is part of its name.
        if re.match(r"^#", key) and values and ("%" in line.split("#")[0][:8] or re.match(r"\s+\d+(\.\d+)?%", line)):
            key = f"{values.pop(0):g}% {key[1:].strip()}"
        if not values or not re.search(r"[A-Za-z%]", key):
            continue
        while key in figures:
            key += " (again)"
        figures[key] = values
    return figures


def oha(out):
    found = json.loads(out)
    figures = {f"summary.{k}": [v] for k, v in found["summary"].items() if isinstance(v, (int, float))}
    for part in ("latencyPercentiles", "firstBytePercentiles", "rps", "statusCodeDistribution", "errorDistribution"):
        for k, v in (found.get(part) or {}).items():
            if isinstance(v, (int, float)):
                figures[f"{part}.{k}"] = [v]
    for k, v in (found.get("details") or {}).items():
        figures |= {f"details.{k}.{m}": [x] for m, x in v.items() if isinstance(x, (int, float))}
    return figures


def h2load(out):
    """The figures that both have; weir's come from its JSON."""
    if out.startswith("{"):
        r = json.loads(out)
        f, service = r["figures"], r["figures"]["service"]
        counts, b = r["counts"], r["bytes"]
        of = lambda h: [h["min"] / 1e9, h["max"] / 1e9, h["mean"] / 1e9, h["stdev"] / 1e9]
        return {
            "req/s": [f["responses_per_s"]],
            "requests, succeeded, failed, errored": [counts["responses"], sum(n for s, n in counts["statuses"].items() if s < "400"), f["failed"], 0],
            "traffic (bytes a response)": [(b["received_head"] + b["received_body"]) / counts["responses"]],
            "time for request: min max mean sd": of(service),
        }
    num = lambda pattern: [float(x) for x in re.search(pattern, out).groups()]
    done = num(r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored")
    traffic = [x / done[0] for x in num(r"traffic: \S+ \((\d+)\) total")]
    times = lambda label: [float(n) * UNITS[u] for n, u in NUMBER.findall(re.search(rf"{label}:\s+(.*)", out)[1])[:4]]
    return {
        "req/s": num(r"([\d.]+) req/s"),
        "requests, succeeded, failed, errored": done,
        "traffic (bytes a response)": traffic,
        "time for request: min max mean sd": times("time for request"),
    }


def h2load_requests(out):
    return json.loads(out)["counts"]["responses"] if out.startswith("{") else int(re.search(r"(\d+) done", out)[1])


def table(tool, seen):
    print(f"\n### {tool}\n\n| line | {tool} | weir | ratio |\n|---|---|---|---|")
    keys = list(dict.fromkeys(k for who in (tool, "weir") for round in seen[who] for k in round))
    for key in keys:
        rows = {who: [r[key] for r in rounds if key in r] for who, rounds in seen.items()}
        width = max((len(v) for v in rows[tool] + rows["weir"]), default=0)
        shown = {who: [spread([v[i] for v in values if len(v) > i]) for i in range(width)] for who, values in rows.items()}
        cell = lambda who: "; ".join(s[1] for s in shown[who]) if rows[who] else "(not printed)"
        ratios = []
        for a, b in zip(shown["weir"], shown[tool]):
            ratios.append(f"{a[0] / b[0]:.2f}" if a[0] is not None and b[0] else ("=" if a[0] == b[0] else "-"))
        line = key.replace("|", "\\|")
        print(f"| {line} | {cell(tool)} | {cell('weir')} | {'; '.join(ratios) if rows[tool] and rows['weir'] else ''} |")


def spread(values):
    if not values:
        return None, ""
    middle = statistics.median(values)
    if max(values) == min(values):
        return middle, f"{middle:.4g}"
    return middle, f"{middle:.4g} ({min(values):.3g} to {max(values):.3g})"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-d", "--seconds", type=int, default=3)
    parser.add_argument("-c", "--connections", type=int, default=64)
    parser.add_argument("--target", choices=["nginx", "weir origin"], help="this target only")
    parser.add_argument("--only", nargs="*", help="these tools")
    parser.add_argument("--weir", help="the binary to measure [default: built with --profile dist]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
