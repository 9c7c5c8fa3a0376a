#!/usr/bin/env python3
"""Measures what HTTP/3 costs: Weir's beside its HTTP/2, nginx's and Caddy's, in one interleaved run.

Each gateway has one worker on one core, and `weir load` asks it from the other. Three measurements:

  small   answers of 1 KiB that the gateway has in its config: microseconds of its processor time per request
  large   a file of 100 MB (--megabytes): megabytes per second of its processor time
  idle    memory that Weir needs for 10,000 connections (--idle) over HTTP/3 which ask for something every 20 s

Every round asks each gateway over each protocol, in alternating order. The table has medians over rounds, and ratios of
the same round. Checks that the gateway answered as many requests as the generator counts, each with a 200.

nginx needs http_v3_module, which Debian's 1.22 lacks: name one with --nginx (built from its public source, with OpenSSL
3.5 or later). Caddy is that of bench/peers.py, or what --caddy names. A gateway that is absent is left out, and the
result says so.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import peers  # noqa: E402
from harness import process, report  # noqa: E402
from harness.env import BENCH, ROOT, build_weir, certificate  # noqa: E402
from harness.result import Result, Target  # noqa: E402

WEIR = """workers: 1
listeners:
  web: {{ address: "127.0.0.1:{port}", protocols: [h3, h2, http1], http3: {{ idle: 120s }}, timeouts: {{ keepalive: 120s }}, tls: {{ certificates: [ {{ cert: "{cert}", key: "{key}" }} ] }} }}
routes:
  small: {{ match: {{ path: /small }}, respond: {{ status: 200, body: "{body}" }} }}
  large: {{ match: {{ path: "/*" }}, files: {{ root: "{files}" }} }}
limits: {{ h2: {{ streams: 128 }} }}
access_log: {{ output: "off" }}
"""
NGINX = """daemon off; worker_processes 1; pid {scratch}/nginx.pid; error_log {scratch}/nginx.err;
events {{ worker_connections 4096; }}
http {{
  access_log off; default_type application/octet-stream; keepalive_requests 100000000; sendfile on;
  client_body_temp_path {scratch}/b; proxy_temp_path {scratch}/p; fastcgi_temp_path {scratch}/f; uwsgi_temp_path {scratch}/u; scgi_temp_path {scratch}/s;
  server {{
    listen 127.0.0.1:{port} quic reuseport; listen 127.0.0.1:{port} ssl; http2 on; quic_gso on;
    ssl_certificate {cert}; ssl_certificate_key {key};
    root {files};
  }}
}}
"""
CADDY = """{{
  admin off
  auto_https disable_redirects
  http_port {spare}
  https_port {port}
}}
https://localhost:{port}, https://127.0.0.1:{port} {{
  bind 127.0.0.1
  tls {cert} {key}
  handle /small {{
    respond "{body}" 200
  }}
  root * {files}
  file_server
}}
"""
# Connections of one generator, and the seconds between two requests on each.
TOGETHER, PAUSE = 50, 20
PROTOCOLS = {"h3": ["--http3"], "h2": ["--http2"]}


class Server:
    """A gateway under test."""

    def __init__(self, name, version, command):
        self.name, self.version, self.command, self.port, self.child = name, version, command, None, None


def servers(args, values):
    """The gateways that are there, not started."""
    scratch, found, absent = values["scratch"], [], []

    def rendered(name, template, port):
        path = scratch / name
        path.write_text(template.format(**values, port=port, spare=process.free_port()))
        return str(path)

    weir = args.weir or build_weir("dist")
    found.append(Server("Weir", version(weir, "--version"), lambda port: [str(weir), "run", "-c", rendered("weir.yaml", WEIR, port)]))
    if args.nginx and "http_v3_module" in output(args.nginx, "-V"):
        found.append(Server("nginx", version(args.nginx, "-v"), lambda port: [args.nginx, "-p", str(scratch), "-c", rendered("nginx.conf", NGINX, port)]))
    else:
        absent.append("nginx with http_v3_module")
    if args.caddy:
        run = lambda port: ["env", "GOMAXPROCS=1", str(args.caddy), "run", "--adapter", "caddyfile", "--config", rendered("Caddyfile", CADDY, port)]
        found.append(Server("Caddy", version(args.caddy, "version"), run))
    else:
        absent.append("Caddy 2.11")
    return found, absent


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


def version(*command):
    return output(*command).strip().splitlines()[0].split(" h1:")[0]


def ask(args, core, server, protocol, path, more):
    """Loads a gateway; returns the number of answers and its processor time in microseconds."""
    url = f"https://localhost:{server.port}/{path}"
    command = [args.load, "load", *PROTOCOLS[protocol], "--insecure", "--threads", "1", "--format", "json", *more, url]
    before = process.cpu_us(server.child.pids())
    done = subprocess.run(["taskset", "-c", core, *map(str, command)], capture_output=True, text=True, timeout=180)
    after = process.cpu_us(server.child.pids())
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{server.name} {protocol}: {shlex.join(map(str, command))}: {(done.stdout + done.stderr)[-500:]}") from None
    count, bad = answers(told)
    if bad or not count:
        raise SystemExit(f"{server.name} {protocol}: {count} answers, {bad} of them bad: {done.stdout[:300]}")
    return count, after - before


def idle(args, core, server):
    """The growth of a gateway's memory in MiB with many connections that are nearly always silent. Each generator opens
    few of them, because Weir allows a client 64 handshakes at a time."""
    before, held = process.rss_mib(server.child.pids()), []
    url = f"https://localhost:{server.port}/small"
    command = [args.load, "load", "--http3", "-m", 1, "--insecure", "--threads", 1, "-c", TOGETHER, "-d", "600s", "--think", f"{PAUSE}s", "--no-live", url]
    try:
        for _ in range(args.idle // TOGETHER):
            held.append(subprocess.Popen(["taskset", "-c", core, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.2)
        time.sleep(1.5 * PAUSE)
        return process.rss_mib(server.child.pids()) - before
    finally:
        for generator in held:
            generator.kill()
        for generator in held:
            generator.wait()


def answers(told):
    """Answers with a 200, and everything else."""
    counts = {int(status): count for status, count in told["counts"]["statuses"].items()}
    bad = sum(count for status, count in counts.items() if status != 200) + sum(told["counts"]["errors"].values())
    return counts.get(200, 0), bad + told["counts"]["unfinished"]


def main():
    args = arguments()
    args.load = args.load or args.weir
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("needs two cores: one for the gateway, one for the generator")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        cert, key, _ = certificate(scratch)
        files = scratch / "files"
        files.mkdir()
        scratch.chmod(0o755)
        (files / "small").write_bytes(b"x" * 1024)
        with open(files / "large", "wb") as large:
            for _ in range(args.megabytes):
                large.write(os.urandom(1 << 16) * 16)
        found, absent = servers(args, {"scratch": scratch, "cert": cert, "key": key, "files": files, "body": "x" * 1024})
        args.load = args.load or found[0].command(0)[0]
        for server in found:
            server.port = process.free_port()
            command = ["taskset", "-c", str(cores[0]), *server.command(server.port)]
            server.child = process.Process(server.name, command, scratch / f"{server.name}.log").wait_for_port(server.port)
        bystanders = process.Bystanders()
        samples, rounds = measure(args, str(cores[-1]), found)
        memory = idle(args, str(cores[-1]), found[0]) if args.idle else None
        others = bystanders.share()
    result = judged(args, found, absent, samples, rounds, memory)
    context = {
        "machine": report.machine(),
        "commit": args.commit or report.commit(ROOT),
        "versions": {server.name: server.version for server in found},
        "command": shlex.join(["bench/h3.py", *sys.argv[1:]]),
        "others_share": others,
    }
    text = report.write(result, BENCH / "results", context) if args.keep else report.markdown(result, context, datetime.date.today().isoformat())
    print(text)
    return 0


def measure(args, core, found):
    pairs = [(server, protocol) for server in found for protocol in PROTOCOLS]
    small = ["-c", args.connections, "-m", args.streams, "-n", args.requests]
    large = ["-c", "1", "-n", args.downloads]
    samples, rounds = {(server.name, protocol): {"us": [], "mb": []} for server, protocol in pairs}, []
    for server, protocol in pairs:  # so that what is done once is done
        ask(args, core, server, protocol, "small", ["-c", args.connections, "-n", 500])
    for number in range(args.rounds):
        one = {}
        for server, protocol in pairs[:: 1 if number % 2 == 0 else -1]:
            count, cpu = ask(args, core, server, protocol, "small", small)
            downloads, busy = ask(args, core, server, protocol, "large", large)
            us, mb = cpu / count, downloads * args.megabytes * 1.048576 / (busy / 1e6)
            samples[server.name, protocol]["us"].append(us)
            samples[server.name, protocol]["mb"].append(mb)
            one[f"{server.name} {protocol}"] = {"us": us, "mb": mb}
        rounds.append(one)
        print(f"round {number + 1}: " + ", ".join(f"{name} {s['us']:.1f} µs {s['mb']:.0f} MB/s" for name, s in one.items()), file=sys.stderr, flush=True)
    return samples, rounds


def judged(args, found, absent, samples, rounds, memory):
    def ratio(kind, above, below):
        if above not in samples or below not in samples:
            return None
        return statistics.median(a / b for a, b in zip(samples[above][kind], samples[below][kind]))

    ours = ("Weir", "h3")
    rows = [
        {"name": f"{name} {protocol}", "us": statistics.median(s["us"]), "mb": statistics.median(s["mb"])}
        | {"us_x": ratio("us", (name, protocol), ours), "mb_x": ratio("mb", (name, protocol), ours)}
        for (name, protocol), s in samples.items()
    ]
    peers = [(server.name, "h3") for server in found if server.name != "Weir"]
    better = min(peers, key=lambda peer: statistics.median(samples[peer]["us"]), default=None)
    targets = [
        Target("1 KiB, Weir's h3 over its h2, processor time", ratio("us", ours, ("Weir", "h2")), 1.25, unit=" ×"),
        Target("1 KiB, Weir's h3 over the better peer's", ratio("us", ours, better) if better else None, 0.65, unit=" ×"),
        Target("100 MB, speed per core of Weir's h3 over its h2", ratio("mb", ours, ("Weir", "h2")), 0.5, at_least=True, unit=" ×"),
        Target("100 MB, speed per core of Weir's h3 over nginx's", ratio("mb", ours, ("nginx", "h3")), 2, at_least=True, unit=" ×"),
    ]
    if memory is not None:
        targets.append(Target(f"memory of {args.idle:,} connections over HTTP/3", memory, 150 * args.idle / 10_000, unit=" MiB"))
    columns = [
        ("name", "gateway", "{}"),
        ("us", "µs/request, 1 KiB", "{:.1f}"),
        ("us_x", "× Weir h3", "{:.2f}"),
        ("mb", "MB per core-second", "{:.0f}"),
        ("mb_x", "× Weir h3", "{:.2f}"),
    ]
    notes = [f"{name} was not there to compare with." for name in absent]
    settings = {"rounds": args.rounds, "connections": args.connections, "streams": args.streams, "megabytes": args.megabytes, "idle": args.idle}
    return Result("h3", "processor time of HTTP/3 beside HTTP/2 and other gateways", columns, rows, targets, rounds, notes, settings)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=7)
    parser.add_argument("-n", "--requests", type=int, default=20_000, help="small answers per round")
    parser.add_argument("-c", "--connections", type=int, default=16)
    parser.add_argument("-m", "--streams", type=int, default=10, help="requests at a time on each connection")
    parser.add_argument("--downloads", type=int, default=3, help="of the large file per round")
    parser.add_argument("--megabytes", type=int, default=95, help="MiB of the large file; 95 MiB are 100 MB")
    parser.add_argument("--idle", type=int, default=10_000, help="connections of the third measurement; 0 leaves it out")
    parser.add_argument("--weir", default=os.environ.get("WEIR_BIN"), help="the binary to measure [WEIR_BIN; built with --profile dist]")
    parser.add_argument("--load", default=os.environ.get("LOAD_BIN"), help="a weir that generates the load [the one that is measured]")
    parser.add_argument("--nginx", default=os.environ.get("NGINX_BIN"), help="nginx with http_v3_module [NGINX_BIN]")
    parser.add_argument("--caddy", default=os.environ.get("CADDY_BIN") or peers.find("caddy"), help="[CADDY_BIN, or that of bench/peers.py]")
    parser.add_argument("--commit", help="the commit of the binary, where it is not this tree's")
    parser.add_argument("--keep", action="store_true", help="write the result to bench/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
