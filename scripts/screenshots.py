#!/usr/bin/env python3
"""Takes the pictures of the README and the guides with headless Chromium: console.webp, failures.webp and report.webp
in docs/images, with report.json, the result that the last of them shows.

usage: screenshots.py WEIR [FOLDER]     the binary to show, and where the pictures go (default docs/images)

Runs a small shop of services on loopback: two that answer, one of them slowly now and then, and one that is away. A
load runs for two minutes, so that charts have something to show. The test `screenshots` of weirgate runs this with
WEIR_BLESS=1, and says when the pictures are old.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 120
# Most bytes of a picture: they stand in the repository and on every page that shows them.
MOST = 100_000
CONFIG = """
listeners: {{ web: {{ address: "127.0.0.1:{web}" }} }}
upstreams:
  orders: {{ endpoints: [ "127.0.0.1:{origin}", "127.0.0.2:{origin}" ], retry: {{ attempts: 2, on: [ connect, 503 ] }} }}
  search: {{ endpoints: [ "127.0.0.1:{origin}" ] }}
  payments: {{ endpoints: [ "127.0.0.1:1" ] }}
consumers:
  shop: {{ key_auth: [ "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" ] }}
filters: [ {{ request_id: {{}} }} ]
routes:
  orders: {{ match: {{ path: "/body/*" }}, filters: [ {{ rate_limit: {{ requests: 100000, per: 1s, by: address }} }} ], upstream: orders }}
  search: {{ match: {{ path: "/delay/*" }}, upstream: search }}
  payments: {{ match: {{ path: "/payments/*" }}, upstream: payments }}
  partners: {{ match: {{ path: "/partners/*" }}, filters: [ key_auth ], upstream: orders }}
admin: {{ address: "127.0.0.1:{admin}" }}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{url} does not answer")


def shoot(page, width, height, to, scratch):
    """A picture of a page, as WebP."""
    picture = scratch / "page.webp"
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
               "--disable-background-networking", f"--user-data-dir={scratch / 'profile'}", f"--window-size={width},{height}",
               f"--screenshot={picture}", "--timeout=5000", page]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    size = picture.stat().st_size
    if size > MOST:
        sys.exit(f"{to.name} would have {size} bytes, more than {MOST}: show less in it")
    shutil.copyfile(picture, to)
    print(f"{to}: {size} bytes")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    weir, folder = sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs/images"
    ports = {name: free_port() for name in ("web", "origin", "admin")}
    web, admin = (f"http://127.0.0.1:{ports[name]}" for name in ("web", "admin"))
    running = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "weir.yaml").write_text(CONFIG.format(**ports))

        # Other programs of the machine would be named in the report.
        before = ["nice", "-n", "-10"] if os.geteuid() == 0 else []

        def start(*command):
            running.append(subprocess.Popen([*before, weir, *command], cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            return running[-1]

        try:
            start("origin", "--http", f"127.0.0.1:{ports['origin']}")
            start("origin", "--http", f"127.0.0.2:{ports['origin']}")
            start("run", "-c", "weir.yaml")
            wait_for(f"{admin}/healthz")
            for rate, path in (("240/s", "/body/1KiB"), ("60/s", "/delay/40ms"), ("3/s", "/payments/7"), ("1/s", "/partners/stock"), ("2/s", "/nowhere")):
                start("load", "--no-live", "--rate", rate, "-c", "16", "-d", f"{SECONDS + 60}s", web + path)
            time.sleep(SECONDS)
            shoot(f"{admin}/", 1280, 800, folder / "console.webp", scratch)
            shoot(f"{admin}/failures", 1280, 800, folder / "failures.webp", scratch)
            subprocess.run([*before, weir, "load", "--no-live", "--threads", "1", "--rate", "150/s", "-c", "8", "-d", "8s", "--warmup", "2s", "--check", "status=200", "--threshold", "p99<250ms",
                            "--save", folder / "report.json", web + "/body/1KiB"], cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            page = subprocess.run([weir, "report", folder / "report.json", "--format", "html"], check=True, capture_output=True).stdout
            (scratch / "report.html").write_bytes(page)
            shoot(f"file://{scratch / 'report.html'}", 1280, 800, folder / "report.webp", scratch)
        finally:
            for child in running:
                child.terminate()
            for child in running:
                child.wait(10)


main()
