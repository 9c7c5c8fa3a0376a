#!/usr/bin/env python3
"""Upstream faults by toxiproxy (Go): a slow, hanging, cut or absent upstream, as the client sees it.

The config gives 1 s to connect, 2 s to a response, 4 s between body bytes. A deadline must be kept within 50 ms; a
truncated body must look truncated to the client; a POST must never reach the origin twice.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

from judge import HERE, TOOLS, failed, free_port, start, start_weir, verdict, wait_for_port

VERSION = "v2.5.0"
RESPONSE_S, SLACK_S = 2.0, 0.05


def install():
    folder = TOOLS / "toxiproxy"
    server = folder / "server"
    if not server.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}"], env=dict(os.environ, GOBIN=str(folder)), check=True, stdin=subprocess.DEVNULL)
    return server


class Toxiproxy:
    """Its HTTP API: one proxy, one toxic at a time."""

    def __init__(self, port, listen, upstream):
        self.url = f"http://127.0.0.1:{port}/proxies"
        self.call("POST", "", {"name": "origin", "listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{upstream}", "enabled": True})

    def call(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, data=body and json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=10).read()

    def poison(self, kind, **attributes):
        self.call("POST", "/origin/toxics", {"name": "x", "type": kind, "stream": "downstream", "attributes": attributes})

    def cure(self):
        self.call("DELETE", "/origin/toxics/x")

    def enable(self, on):
        self.call("POST", "/origin", {"enabled": on})


def ask(port, path="/", method="GET", request_id=None):
    """One request on a new connection. Returns (status, complete, seconds): status 0 without an answer, and whether
    the message ended as its framing says."""
    body = b"b" * 64 if method == "POST" else b""
    fields = [f"{method} {path} HTTP/1.1", "Host: faults.test"]
    if request_id:
        fields.append(f"x-id: {request_id}")
    if body:
        fields.append(f"Content-Length: {len(body)}")
    started = time.monotonic()
    got = b""
    with socket.create_connection(("127.0.0.1", port), 15) as s:
        s.sendall("\r\n".join(fields).encode() + b"\r\n\r\n" + body)
        while not complete(got):
            try:
                piece = s.recv(65536)
            except OSError:
                break
            if not piece:
                break
            got += piece
    status = int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0
    return status, complete(got), time.monotonic() - started


def complete(got):
    head, found, body = got.partition(b"\r\n\r\n")
    if not found:
        return False
    lines = head.lower().split(b"\r\n")
    if any(line.startswith(b"transfer-encoding:") and b"chunked" in line for line in lines):
        return body.endswith(b"0\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
    return bool(lengths) and len(body) >= lengths[0]


def main():
    server = install()
    origin = free_port()
    poisoned = int(os.environ.get("ORIGIN_PORT") or free_port())
    api = free_port()
    start(sys.executable, HERE / "origin.py", origin, name="origin")
    wait_for_port(origin)
    start(server, "-port", api, name="toxiproxy")
    wait_for_port(api)
    toxi = Toxiproxy(api, poisoned, origin)
    port, _, _ = start_weir(HERE / "upstream_faults.yaml", poisoned)

    def row(name, expect, path="/", least=0.0, most=15.0, whole=True):
        status, ended, seconds = ask(port, path)
        good = status in expect and ended == whole and least <= seconds <= most
        wanted = f"{'/'.join(map(str, sorted(expect)))}, {'whole' if whole else 'cut'}, {least:.2f} to {most:.2f} s"
        verdict(good, f"faults: {name}: {status} {'whole' if ended else 'cut'} after {seconds:.3f} s (expected {wanted})")

    late = {"least": RESPONSE_S - 0.005, "most": RESPONSE_S + SLACK_S}
    row("none", {200}, most=0.5)
    toxi.poison("latency", latency=500)
    row("latency 500 ms", {200}, least=0.5, most=1.0)
    toxi.cure()
    toxi.poison("latency", latency=5000)
    row("latency 5 s", {504}, **late)
    toxi.cure()
    toxi.poison("timeout", timeout=0)
    row("no answer", {504}, **late)
    toxi.cure()
    toxi.poison("timeout", timeout=500)
    row("closed before an answer", {502}, most=1.5)
    toxi.cure()
    toxi.poison("reset_peer", timeout=0)
    row("reset", {502}, most=1.0)
    ask(port, "/", "POST", "reset")
    toxi.cure()
    toxi.poison("slicer", average_size=1, size_variation=0, delay=100)
    row("a byte at a time", {200})
    toxi.cure()
    toxi.poison("bandwidth", rate=2)
    row("2 KiB/s", {200})
    toxi.cure()
    toxi.poison("slow_close", delay=1000)
    row("closes 1 s late", {200}, most=0.5)
    row("an end that is the close, 1 s late", {200}, "/close", least=0.995, most=1.5)
    toxi.cure()
    toxi.poison("limit_data", bytes=20)
    row("cut in the head", {502}, most=1.0)
    ask(port, "/", "POST", "cut-head")
    toxi.cure()
    toxi.poison("limit_data", bytes=1000)
    row("cut in the body", {200}, most=1.0, whole=False)
    row("cut in a chunk", {200}, "/chunked", most=1.0, whole=False)
    ask(port, "/", "POST", "cut-body")
    toxi.cure()
    toxi.enable(False)
    row("down", {502, 503}, most=1.5)
    toxi.enable(True)
    # It is dialed again 100 ms after a refusal; earlier requests are refused immediately.
    began = time.monotonic()
    while ask(port)[0] != 200 and time.monotonic() < began + 2:
        time.sleep(0.02)
    back = time.monotonic() - began
    verdict(back < 0.5, f"faults: back: answered again after {back:.3f} s (expected under 0.5 s)")

    for request_id in ("reset", "cut-head", "cut-body"):
        with urllib.request.urlopen(f"http://127.0.0.1:{origin}/seen/{request_id}", timeout=5) as r:
            seen = int(r.read())
        verdict(seen <= 1, f"faults: a POST ({request_id}) reached the origin {seen} time(s), at most once")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
