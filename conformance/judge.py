"""Shared by the Python runners: free ports, children that end with us, PASS and FAIL. lib.sh is the same for the
shell."""

import atexit
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from environment import ROOT, TOOLS  # noqa: F401 - judges import TOOLS from here

HERE = pathlib.Path(__file__).resolve().parent
WORK = pathlib.Path(tempfile.mkdtemp(prefix="weir-conformance-"))

failed = []
_children = []


def verdict(good, text):
    """Prints PASS or FAIL and remembers failures."""
    print(("PASS " if good else "FAIL ") + text, flush=True)
    if not good:
        failed.append(text)
    return good


class Answers(http.server.BaseHTTPRequestHandler):
    """The base of an origin: keeps connections open, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*command, name=None, env=None):
    """Starts a child that ends with us, with its output in a separate log."""
    log = open(WORK / f"{name or pathlib.Path(command[0]).name}.log", "wb")
    child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ, **(env or {})))
    _children.append(child)
    return child


def wait_for_port(port, seconds=20):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    for log in WORK.glob("*.log"):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}", file=sys.stderr)
    sys.exit(f"nothing listens on port {port}")


def weir_bin():
    """The binary under test: WEIR_BIN, or one built here."""
    if "WEIR_BIN" in os.environ:
        return os.environ["WEIR_BIN"]
    subprocess.run(["cargo", "build", "--locked", "--release", "--bin", "weir"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/weir"


def start_weir(config, origin_port):
    """Runs weir on a config that reads ${PORT}, ${ADMIN_PORT} and ${ORIGIN_PORT}. Returns (port, admin port, child).

    With GATEWAY_PORT, tests the program that already listens there; its upstream must be ORIGIN_PORT.
    """
    if "GATEWAY_PORT" in os.environ:
        return int(os.environ["GATEWAY_PORT"]), None, None
    port, admin = free_port(), free_port()
    env = {"PORT": str(port), "ADMIN_PORT": str(admin), "ORIGIN_PORT": str(origin_port)}
    child = start(weir_bin(), "run", "-c", config, name="weir", env=env)
    wait_for_port(port)
    return port, admin, child


@atexit.register
def _finish():
    for c in _children:
        if c.poll() is None:
            c.terminate()
    for c in _children:
        try:
            c.wait(5)
        except subprocess.TimeoutExpired:
            c.kill()
