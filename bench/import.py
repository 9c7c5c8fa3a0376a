#!/usr/bin/env python3
"""Measures `weir import` on large configs, and its proof on many small sites. The configs are generated.

| case | config |
|---|---|
| nginx-locations | one server with 5,000 locations: prefixes, exact paths and regexes, before 50 upstreams |
| nginx-servers | 100 servers with 50 such locations each |
| kong-routes | 5,000 routes of 500 services, a third with a plugin |
| apisix-routes | 5,000 routes with nodes of their own |
| nginx-sites | 400 files with a small site each |
| nginx-sites-proved | the same with --prove, against the nginx in PATH; exit code 0 means that only ACCEPTED differs |

Each case runs --rounds times; the median and the slowest run are printed, and `--most` seconds fail the run. With
--write, the table goes to results/ with the machine, the kernel, the commit and the command.
"""

import argparse
import datetime
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from harness.env import BENCH, ROOT, build_weir  # noqa: E402

LOCATIONS, SERVERS, ROUTES, SERVICES, SITES = 5_000, 100, 5_000, 500, 400
# Longest a case may take, in seconds.
MOST = {"nginx-locations": 5, "nginx-servers": 5, "kong-routes": 5, "apisix-routes": 5, "nginx-sites": 10, "nginx-sites-proved": 60}


# What Weir does differently from nginx on every site, as docs/guide/from-nginx.md says.
ACCEPTED = """\
system: nginx
files: [ {file} ]
accept:
- {{ difference: forwarding-fields }}
- {{ difference: ambiguous-path }}
- {{ difference: upstream target, why: canonical paths }}
- {{ difference: upstream field host, why: Host as the client sent it }}
- {{ difference: answer field set-cookie, why: links }}
"""


def main():
    args = arguments()
    weir = args.weir or build_weir("release")
    rows, slow = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in args.case or list(MOST):
            system, file, more = CASES[name](scratch)
            samples = []
            for number in range(args.rounds):
                output = scratch / f"{name}-{number}"
                if "--prove" in more:
                    output.mkdir()
                    (output / "proof.yaml").write_text(ACCEPTED.format(file=file))
                command = [weir, "import", system, file, "-o", output, *more]
                samples.append(run(command))
            seconds, cpu, code, memory = zip(*samples)
            rows.append((name, statistics.median(seconds), max(seconds), statistics.median(cpu), max(memory), code[0], MOST[name]))
            print(row(rows[-1]), file=sys.stderr, flush=True)
            if max(seconds) > MOST[name]:
                slow.append(name)
    table = "\n".join([HEAD, *map(row, rows)]) + "\n"
    print(table, end="")
    if args.write:
        write(table, args)
    return f"slower than its limit: {', '.join(slow)}" if slow else 0


def run(command):
    """Wall-clock seconds, processor seconds, exit code and MiB of one command. What is refused may exit with 1."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{command} exits with {done.returncode}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, done.returncode, after.ru_maxrss // 1024


HEAD = "| case | median s | slowest s | processor s | most MiB | exit code | limit s |\n|---|---|---|---|---|---|---|"


def row(values):
    name, median, most, cpu, memory, code, limit = values
    return f"| {name} | {median:.2f} | {most:.2f} | {cpu:.2f} | {memory} | {code} | {limit} |"


def locations(count, first):
    """Locations of every kind, with what real ones hold."""
    lines = []
    for n in range(first, first + count):
        target = f"proxy_set_header Host $http_host; proxy_pass http://pool{n % 50};"
        kinds = [
            f"location /area{n % 97}/item{n} {{ {target} }}",
            f"location /area{n % 97}/item{n}/ {{ {target} client_max_body_size {n % 7 + 1}m; }}",
            f"location = /exact/{n} {{ {target} }}",
            f"location ^~ /static/{n}/ {{ {target} expires 1h; }}",
            f"location ~ ^/v[0-9]+/item{n}/(.*)$ {{ {target} }}",
            f"location /old/{n} {{ return 301 /new/{n}; }}",
            f"location /private/{n}/ {{ allow 10.0.0.0/8; deny all; {target} }}",
            f"location ~* /pictures{n}/.+\\.(png|jpe?g)$ {{ {target} add_header X-Item {n} always; }}",
        ]
        lines.append("    " + kinds[n % len(kinds)])
    return "\n".join(lines)


def nginx(servers):
    pools = "\n".join(f"  upstream pool{n} {{ server 10.0.0.{n + 1}:8080; server 10.0.1.{n + 1}:8080; }}" for n in range(50))
    return f"events {{}}\nhttp {{\n{pools}\n{servers}\n}}\n"


def nginx_locations(scratch):
    file = scratch / "locations.conf"
    file.write_text(nginx(f"  server {{\n    listen 80;\n    server_name shop.example;\n{locations(LOCATIONS, 0)}\n  }}"))
    return "nginx", file, []


def nginx_servers(scratch):
    file = scratch / "servers.conf"
    each = LOCATIONS // SERVERS
    servers = [f"  server {{\n    listen 80;\n    server_name shop{n}.example;\n{locations(each, n * each)}\n  }}" for n in range(SERVERS)]
    file.write_text(nginx("\n".join(servers)))
    return "nginx", file, []


def nginx_sites(scratch):
    folder = scratch / "sites"
    (folder / "conf.d").mkdir(parents=True, exist_ok=True)
    for n in range(SITES):
        (folder / f"conf.d/site{n:03}.conf").write_text(
            f"server {{\n  listen 80;\n  server_name site{n}.example;\n  client_max_body_size 10m;\n"
            f"  location / {{\n    proxy_pass http://app{n}:3000;\n    proxy_set_header Host $host;\n    proxy_set_header X-Real-IP $remote_addr;\n  }}\n"
            f"  location /api/ {{\n    proxy_pass http://api{n}:8000/;\n  }}\n"
            "  location ~ /\\.ht { deny all; }\n  location = /old { return 301 /new; }\n}\n"
        )
    (folder / "nginx.conf").write_text("events {}\nhttp {\n  include conf.d/*.conf;\n}\n")
    return "nginx", folder / "nginx.conf", []


def nginx_sites_proved(scratch):
    system, file, _ = nginx_sites(scratch)
    return system, file, ["--prove", "--force"]


def kong_routes(scratch):
    lines = ['_format_version: "3.0"', "services:"]
    each = ROUTES // SERVICES
    for n in range(SERVICES):
        lines += [f"- name: service{n}", f"  url: http://10.{n // 250}.0.{n % 250 + 1}:8000/base", "  routes:"]
        for m in range(n * each, (n + 1) * each):
            kinds = [
                f"    paths: [/area{m % 97}/item{m}]",
                f"    paths: ['~/v[0-9]+/item{m}/(?<rest>.*)$']",
                f"    hosts: [host{m % 211}.example]\n    paths: [/item{m}]\n    methods: [GET, POST]",
                f"    paths: [/open/{m}, /other/{m}]\n    strip_path: false",
                f"    hosts: ['*.wild{m % 31}.example']\n    paths: [/item{m}]\n    headers: {{ x-env: [blue{m}] }}",
            ]
            lines += [f"  - name: route{m}", kinds[m % len(kinds)]]
            if m % 3 == 0:
                lines += ["    plugins:", "    - { name: rate-limiting, config: { minute: 100, policy: local } }"]
    file = scratch / "kong.yaml"
    file.write_text("\n".join(lines) + "\n")
    return "kong", file, []


def apisix_routes(scratch):
    lines = ["routes:"]
    for n in range(ROUTES):
        uri = [f"/area{n % 97}/item{n}", f"/area{n % 97}/item{n}/*", f"/prefix{n}*"][n % 3]
        lines += [f"- id: r{n}", f"  uri: {uri}", f"  host: host{n % 211}.example" if n % 2 else "  methods: [GET]"]
        lines += ["  upstream:", "    type: roundrobin", f"    nodes: {{ '10.0.{n % 200}.{n % 250 + 1}:80': 1 }}"]
    file = scratch / "apisix.yaml"
    file.write_text("\n".join(lines) + "\n#END\n")
    return "apisix", file, []


CASES = {
    "nginx-locations": nginx_locations,
    "nginx-servers": nginx_servers,
    "kong-routes": kong_routes,
    "apisix-routes": apisix_routes,
    "nginx-sites": nginx_sites,
    "nginx-sites-proved": nginx_sites_proved,
}


def write(table, args):
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    commit = subprocess.run(git, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    date = datetime.date.today().isoformat()
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    version = subprocess.run(["nginx", "-v"], stderr=subprocess.PIPE, text=True, check=False).stderr.strip()
    text = (
        f"# Importing large configs\n\n{table}\n"
        f"Machine: {len(os.sched_getaffinity(0))} cores of {model}. Kernel: {platform.release()}. Commit: {commit}. {version}.\n"
        f"Command: `bench/import.py {' '.join(sys.argv[1:])}`, {args.rounds} rounds.\n"
    )
    (BENCH / f"results/{date}-{commit}-import.md").write_text(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", type=pathlib.Path, help="the binary; default: built with the profile release")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each case; default 3")
    parser.add_argument("--write", action="store_true", help="write the table to results/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
