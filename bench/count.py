#!/usr/bin/env python3
"""Counts the cost of a request: instructions, cache misses and system calls, which hardly differ between runs and
machines.

Each program runs under `valgrind --tool=cachegrind` and under strace, for two lengths of load; the difference is
divided by the additional requests. The resulting table is committed, bench/counts.json and bench/counts.md:
docs/dev/benchmarks.md says how to read it.

  bench/count.py                   every row with the profile dist, with nginx and wrk, compared with the table; ten minutes
  bench/count.py --row h1-64       one row
  bench/count.py --gate            what CI does: the HTTP/1.1 rows with the profile release; exits with 1 if a figure grew
  bench/count.py --gate --bless    the same, and updates the table with the results
  bench/count.py --bless           renews the whole table: first the gate, then every row
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

sys.dont_write_bytecode = True

from harness import counting, counts, gateway, load, process, report  # noqa: E402
from harness.env import BENCH, ROOT, Env, build_weir  # noqa: E402
from suites import each, transcode  # noqa: E402
from suites.filters import KEY  # noqa: E402
from suites.routes import FEW, MANY, table_of  # noqa: E402
from suites.stylesheet import style_sheet  # noqa: E402

TABLE = BENCH / "counts.json"


@dataclass
class Row:
    """A load, and the program counted under it: a gateway, or the load generator itself."""

    name: str
    about: str
    load: dict
    variant: str = "plain"
    origin: str = "answer"
    config: dict = field(default_factory=dict)
    peer: str | None = "nginx"
    gate: bool = False
    # Requests of the two runs. The first must include everything that happens once: opening each connection, filling
    # each pool.
    short: int = 4_000
    long: int = 12_000
    loader: bool = False
    # A plan with scenarios in place of one request, for the load generator.
    journey: bool = False
    # The figures of a whole run of `short` requests, start and report included.
    whole: bool = False
    # Size of the origin's answers, if it is not what the load requests.
    size: int | None = None
    # Size of the file that the gateway serves.
    file: int | None = None
    # It serves the style sheet of the suite `style-sheet`.
    sheet: bool = False


ALL = '{ all: { match: { path: "/*" }, upstream: origin } }'
CACHED = {
    "consumers": "stores: { pages: { memory: 64MiB } }",
    "routes": '{ all: { match: { path: "/*" }, filters: [ { cache: { store: pages, ttl: 1h } } ], upstream: origin } }',
}
H2 = {"connections": 50, "streams": 10, "scheme": "https"}
ANSWERS = {"connections": 16, "streams": 8, "scheme": "https"}
ONE = {"connections": 1, "streams": 1, "scheme": "https"}
TEXT = {"text": "x" * 1024}
MEGABYTE = 1_000_000
SHEET = 230_000


def compressed(coding):
    """A row for the style sheet in a coding. Encoders need most of it, so few requests are enough."""
    return Row(
        f"sheet-{coding}", f"a style sheet of 230 KB from a folder, compressed with {coding} at level 6, 16 connections",
        {"connections": 16, "path": "/style.css", "headers": [f"Accept-Encoding: {coding}"]}, variant="routes",
        config={"routes": '{ all: { match: { path: "/*" }, filters: [ { compress: {} } ], files: { root: "@root@" } } }'},
        peer=None, sheet=True, short=80, long=240,
    )  # fmt: skip


def many(listeners, upstreams):
    """64 routes over so many upstreams, all at the origin, behind so many listeners."""
    line = '{ endpoints: [ "127.0.0.1:@origin_port@" ] }'
    return {
        "listeners": "\n  ".join(f'l{i}: {{ address: "127.0.0.1:0", protocols: [http1] }}' for i in range(listeners - 1)),
        "upstreams": "\n  ".join(f"u{i}: {line}" for i in range(upstreams)),
        "routes": "{\n" + ",\n".join(f'  r{i}: {{ match: {{ path: "/api/v{i % 7}/thing{i}/{{id}}/detail" }}, upstream: u{i % upstreams} }}' for i in range(64)) + "\n}",
    }


ORDER = BENCH / "tools/order.json"
VALIDATE = f"{{ validate: {{ schema: {ORDER.with_suffix('.schema.json')} }} }}"
READ = "{ when: { is: '(request.body.customer.id == 42) ?? false', filters: [ { headers: { request: { set: { x-way: one } } } } ] } }"
PLAN, BODY = BENCH / "journey/plan.yaml", BENCH / "journey/body.json"
TRANSFORM = "{ transform: { request: { order: '= request.body.id', who: '= request.body.customer', skus: '= request.body.items.map(i, i.sku)', fixed: 1 } } }"
ROWS = [
    Row("h1-64", "HTTP/1.1 keep-alive, 64 connections, 1 KiB answer", {"connections": 64}, gate=True),
    Row("h1-1000", "HTTP/1.1 keep-alive, 1,000 connections, 1 KiB answer", {"connections": 1000}, gate=True),
    Row("post-144", "POST with a 144-byte body, 500 connections", {"connections": 500, "post": 144}, gate=True),
    Row("nokeepalive", "the client closes after each request, 64 connections", {"connections": 64, "keepalive": False}, gate=True),
    Row("tls13", "TLS 1.3 keep-alive, 64 connections", {"connections": 64, "scheme": "https"}, variant="tls"),
    Row("tcp-64", "bytes of HTTP/1.1 keep-alive passed on (mode tcp), 64 connections, 1 KiB answer", {"connections": 64}, variant="tcp", peer="haproxy"),
    Row("h2-h1", "HTTP/2 over TLS to HTTP/1.1, 50 connections of 10 streams, 1 KiB answer", H2, variant="h2-h1"),
    Row("h2-h2c", "HTTP/2 over TLS to HTTP/2, 50 connections of 10 streams, 1 KiB answer", H2, variant="h2-h2c", origin="h2c", peer=None),
    # Heads that no connection has seen before, against the rows above and `grpc`, whose heads repeat.
    Row("h2-h1-varied", "h2-h1, each request with a path and a cookie of its own", {**H2, "path": "/item/{{counter}}", "headers": ["Cookie: session={{uuid}}"]},
        variant="h2-h1", peer=None),
    Row("h2-h2c-varied", "h2-h2c, each request with a path of its own", {**H2, "path": "/item/{{counter}}"}, variant="h2-h2c", origin="h2c", peer=None),
    Row("grpc-varied", "grpc, each call with a token of its own", {**H2, "scheme": "grpcs", "headers": ["Authorization: Bearer {{uuid}}"]},
        variant="grpc", origin="builtin", peer=None),
    # The gateway's own answers, so that the difference between two rows is what the protocols cost.
    Row("h2", "HTTP/2, 16 connections of 8 streams, an answer of 1 KiB from the config", ANSWERS, variant="answers", config=TEXT, peer=None),
    Row("h3", "the same by HTTP/3", {**ANSWERS, "http3": True}, variant="answers", config=TEXT, peer=None),
    Row("h2-large", "HTTP/2, a file of 1 MB on one connection", ONE, variant="file", file=MEGABYTE, peer=None, short=50, long=150),
    Row("h3-large", "the same by HTTP/3", {**ONE, "http3": True}, variant="file", file=MEGABYTE, peer=None, short=50, long=150),
    Row("file-230k", "HTTP/1.1, a file of 230 KB that is requested again and again, 64 connections", {"connections": 64, "path": "/blob"}, variant="file-h1", file=SHEET),
    Row("file-20k", "the same, a file of 20 KB", {"connections": 64, "path": "/blob"}, variant="file-h1", file=20_000),
    compressed("gzip"),
    compressed("zstd"),
    # The difference between these two is what 15 listeners and 63 upstreams add to each request: at most 2 %.
    Row("upstreams-1", "64 routes to one upstream, one listener, 64 connections", {"connections": 64, "routes": 64}, variant="many", config=many(1, 1), peer=None),
    Row("upstreams-64", "64 routes to 64 upstreams, 16 listeners, 64 connections", {"connections": 64, "routes": 64}, variant="many", config=many(16, 64), peer=None),
    Row("grpc", "unary gRPC over TLS to cleartext, 50 connections of 10 streams", {**H2, "scheme": "grpcs"}, variant="grpc", origin="builtin"),
    Row("filters-none", "64 connections that send a key nobody asks for", {"connections": 64, "headers": [KEY]}, peer=None),
    Row("filters-key", "the same, with `key_auth`", {"connections": 64, "headers": [KEY]}, variant="key", peer=None),
    Row("filters", "the same, with `key_auth` and `rate_limit`", {"connections": 64, "headers": [KEY]}, variant="filters", peer=None),
    Row("filter-none", "64 connections that send what the rows below ask for", {"connections": 64, "headers": each.HEADERS}, variant="routes", config=each.config(""), peer=None),
    *(
        Row("filter-" + "-".join(name.replace(",", "").split()), f"the same, with `{name}`", {"connections": 64, "headers": each.HEADERS},
            variant="routes", config=each.config(written), peer=None)
        for name, (written, _) in each.FILTERS.items()
    ),
    # The difference between these two is what `weir why` records of each exchange: at most 150 instructions.
    Row("autopsy", "64 connections, with the memory that `weir why` asks", {"connections": 64}, variant="routes", config={"consumers": "", "routes": ALL}, peer=None),
    Row("autopsy-off", "the same without it: `limits: { autopsy: 0B }`", {"connections": 64}, variant="routes", config={"consumers": "limits: { autopsy: 0B }", "routes": ALL}, peer=None),
    Row("cache-hit", "an answer of 1 KB from the cache, 64 connections", {"connections": 64}, variant="routes", config=CACHED, peer=None, size=1000),
    Row("cache-hit-28k", "an answer of 28 KB from the cache, 64 connections", {"connections": 64}, variant="routes", config=CACHED, peer=None, size=28_000),
    # The difference between these two is the check of 1 KiB: parsing, and the schema.
    Row("document", "POST with an order of 1 KiB of JSON, 64 connections", {"connections": 64, "document": ORDER}, variant="routes", config=each.config(""), peer=None),
    Row("document-validate", "the same, with `validate: { schema }`", {"connections": 64, "document": ORDER}, variant="routes", config=each.config(VALIDATE), peer=None),
    # Reading the body for an expression, and writing it anew.
    Row("document-expression", "the same, with an expression that reads the body: `when: { is: 'request.body…' }`", {"connections": 64, "document": ORDER}, variant="routes", config=each.config(READ), peer=None),
    Row("document-transform", "the same, with `transform: { request }` of four members", {"connections": 64, "document": ORDER}, variant="routes", config=each.config(TRANSFORM), peer=None),
    *(
        Row("call-" + "-".join(name.replace(",", "").lower().split()), f"a unary call by HTTP/1.1 to HTTP/2 {f'through `{name}`' if written else 'as it is'}, 64 connections",
            {"connections": 64, "call": name}, variant="routes", origin="builtin", config=transcode.config(written), peer=None)
        for name, (written, *_) in transcode.WAYS.items()
    ),
    # The difference between these two is two questions to a processor that changes nothing, about both heads.
    Row("processor-none", "a request by HTTP/1.1 to HTTP/2, 64 connections", {"connections": 64}, variant="routes", origin="builtin", config=transcode.config(""), peer=None),
    Row("processor", "the same, with `ext_proc`", {"connections": 64}, variant="routes", origin="builtin", config=transcode.config("{ ext_proc: { upstream: origin, timeout: 30s } }"), peer=None),
    *(
        Row(f"routes-{count}", f"a request among {count:,} routes, every one asked for, 64 connections", {"connections": 64, "routes": count},
            variant="routes", config={"routes": table_of(count), "count": count}, peer=None, long=24_000)
        for count in (FEW, MANY)
    ),  # fmt: skip
    Row("load-h1", "`weir load` itself, 64 connections, 1 KiB answer", {"connections": 64}, peer="wrk", short=10_000, long=40_000, loader=True, gate=True),
    Row("load-journey", "a request of a journey of three steps that keep values, 50 users, 0.8 KiB of JSON", {"connections": 50}, peer=None, short=9_000, long=27_000, loader=True, journey=True, gate=True),
    Row("load-start", "a whole run of 10 requests, with its report", {"connections": 1}, peer=None, short=10, loader=True, whole=True, gate=True),
    Row("load-h2", "`weir load` itself, HTTP/2 in cleartext, 10 connections of 10 streams", {"connections": 10, "streams": 10}, origin="h2c", peer="h2load", short=10_000, long=40_000, loader=True),
]  # fmt: skip


def main():
    args = arguments()
    stages = ["release", "dist"] if args.bless and not (args.gate or args.row or args.profile) else [args.profile or ("release" if args.gate else "dist")]
    failed = False
    for profile in stages:
        gate = args.gate or (len(stages) == 2 and profile == "release")
        chosen = [r for r in ROWS if (r.name in args.row if args.row else r.gate or not gate)]
        failed |= stage(args, profile, chosen, gate)
    return 1 if failed else 0


def stage(args, profile, chosen, gate):
    """Measures the rows with one profile, then compares or saves them. Returns True if a figure grew beyond its
    limit."""
    gateways = {g.name: g for g in gateway.all_gateways() if g.name == "weir" or not gate}
    peers = set() if gate else {r.peer for r in chosen} & {"h2load", "nginx", "wrk"}
    nginx = {"nginx"} if any(r.origin == "h2c" for r in chosen) else set()
    subprocess.run([str(ROOT / "scripts/ensure-tools.sh"), *sorted({"cc", "openssl", "strace", "valgrind"} | peers | nginx)], check=True, stdin=subprocess.DEVNULL)
    weir = pathlib.Path(args.bin or build_weir(profile)).resolve()
    here = counting.made_with()
    table = counts.read(TABLE)
    known = table.get(profile, {})
    comparable = not counts.differences(known.get("made_with", {}), here)
    with tempfile.TemporaryDirectory(prefix="weir-count-") as scratch:
        scratch = pathlib.Path(scratch)
        scratch.chmod(0o755)  # nginx workers run as another user
        env = Env(scratch, list(gateways.values()), weir, process.raise_descriptor_limit())
        try:
            measured = {row.name: measure(row, env, gateways) for row in chosen}
            if gate and comparable and not args.bless:
                again(measured, known.get("rows", {}), env, gateways)
        finally:
            process.stop_all()
    print("\n".join(counts.columns(measured, {r.name: r.about for r in ROWS})), flush=True)
    if args.bless:
        counts.keep(table, profile, report.commit(ROOT), here, measured)
        counts.write(table, TABLE, {r.name: r.about for r in ROWS})
        print(f"The table of profile {profile} is new: commit bench/counts.json and bench/counts.md.")
        return False
    return judge(known, here, measured, "--gate --bless" if gate else "--bless") and gate


def again(measured, known, env, gateways):
    """Measures growth twice more, because a gate that fails by chance blocks everyone."""
    for _ in range(2):
        grown = {c.row for c in counts.changes(known, measured) if c.grown}
        for row in (r for r in ROWS if r.name in grown):
            anew = measure(row, env, gateways)
            measured[row.name] = {p: counts.least(f, anew.get(p, {})) for p, f in measured[row.name].items()}


def judge(known, here, measured, bless):
    """Compares the figures with the table; returns True if one has grown."""
    differing = counts.differences(known.get("made_with", {}), here)
    if differing:
        print("Not compared, as the table was made with something else:", *differing, sep="\n  ")
        print(advice(bless))
        return False
    found = counts.changes(known["rows"], measured)
    grown, shrunk, unknown = [c for c in found if c.grown], [c for c in found if c.shrunk], counts.missing(known["rows"], measured)
    told = (
        ("Grown:", grown),
        ("Shrunk, which a new table would keep:", shrunk),
        ("Not in the table, so not compared:", unknown),
    )
    for title, what in told:
        if what:
            print(title, *what, sep="\n  ")
    if unknown and not (grown or shrunk):
        bless += "".join(f" --row {row}" for row in unknown)
    good = f"As in the table: no figure differs by more than {counts.GROWTH:.0%}."
    print(advice(bless) if grown or shrunk or unknown else good)
    return bool(grown)


def advice(bless):
    """The command that takes the figures into the table."""
    return f"Take them into the table, and commit it with what changed them: make bench-count BENCH_COUNT='{bless}'"


def measure(row, env, gateways):
    """Every figure of a row, for weir and for the programs compared with it."""
    env.say(f"{row.name}: {row.about}")
    counters = [counting.Cachegrind] + ([counting.Strace] if counting.Strace.works() else [])
    origin = env.answer(row.size) if row.size else env.answer(f"@{BODY}") if row.journey else getattr(env, row.origin)()
    found = {}
    if row.file:
        root = env.scratch / f"files-{row.file}"
        root.mkdir(exist_ok=True)
        (root / "blob").write_bytes(b"x" * row.file)
        time.sleep(2.5)  # Weir opens a file for each request until nobody has changed it for 2 s
        row.config["root"] = root
    if row.sheet:
        root = env.scratch / "sheet"
        root.mkdir(exist_ok=True)
        (root / "style.css").write_text(style_sheet())
        time.sleep(2.5)  # as above
        row.config["root"] = root
    for name in ("weir", row.peer):
        if row.loader and (name == "weir" or len(gateways) > 1):
            found[name] = {k: v for c in counters for k, v in counting.of_loader(loader(name, row, env, origin), row, env, c).items()}
        elif not row.loader and name in gateways and gateways[name].has(row.variant):
            found[name] = {k: v for c in counters for k, v in counting.of_gateway(gateways[name], env, origin, row, c).items()}
    return found


def loader(name, row, env, port):
    """How a load generator is given a number of requests, and where it reports the number it made. wrk supports only
    durations."""
    connections, streams, url = str(row.load["connections"]), row.load.get("streams"), f"http://127.0.0.1:{port}/"
    h2 = ["--http2", "-m", str(streams)] if streams else []

    def command(requests):
        if name == "wrk":
            seconds = max(1, requests // 10_000)
            return ["wrk", "-t", "1", "-c", connections, "-d", f"{seconds}s", url], lambda out: int(re.search(r"(\d+) requests in", out)[1])
        if name == "h2load":
            return ["h2load", "-t", "1", "-c", connections, "-m", str(streams), "-n", str(requests), url], lambda out: int(re.search(r"(\d+) succeeded", out)[1])
        if row.journey:
            plan = ["--set", f"target={url.rstrip('/')}", "--set", "duration=10m", "--set", f"scenarios.shop.iterations={requests // 3}"]
            return [env.weir, "load", "--threads", "1", "-f", str(PLAN), *plan, "--no-live"], lambda out: requests
        return [env.weir, "load", "--threads", "1", "-c", connections, *h2, "-n", str(requests), "--no-live", url], lambda out: requests

    return command


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--row", action="append", choices=[r.name for r in ROWS], help="only this one; may be given again")
    p.add_argument("--profile", choices=["dist", "release"], help="build with it [default: dist, with --gate release]")
    p.add_argument("--gate", action="store_true", help="what CI does")
    p.add_argument("--bless", action="store_true", help="take what is measured into the table")
    p.add_argument("--bin", metavar="PATH", help="this weir, instead of building one")
    args = p.parse_args()
    if args.bin and args.bless and not (args.gate or args.profile):
        p.error("--bin with --bless: say which --profile it was built with")
    return args


if __name__ == "__main__":
    sys.exit(main())
