"""The clients: wrk and h2load for requests, plain sockets for large bodies and idle connections, `dribble` for slow ones."""

import json
import pathlib
import random
import re
import socket
import subprocess
import time

CHUNK = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]
_UNITS = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}


def wrk(port, *, seconds, connections, threads=1, scheme="http", headers=(), script=None, path="/"):
    """One run of wrk: requests, rate, p50 and p99 in milliseconds, errors (bad status and socket errors together)."""
    command = ["wrk", "-t", str(threads), "-c", str(connections), "-d", f"{seconds}s", "--latency", "--timeout", "10s"]
    if script:
        command += ["-s", str(script)]
    for h in headers:
        command += ["-H", h]
    command.append(f"{scheme}://127.0.0.1:{port}{path}")
    out = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60).stdout
    return _parse(out)


def h2load(port, *, seconds, connections, streams, path="/", data=None, headers=()):
    """One run of h2load over TLS: requests, rate, mean and longest time in milliseconds, errors of any kind."""
    command = ["h2load", "-t", "1", "-c", str(connections), "-m", str(streams), "-D", str(seconds)]
    if data:
        command += ["-d", str(data)]
    for h in headers:
        command += ["-H", h]
    command.append(f"https://127.0.0.1:{port}{path}")
    out = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60).stdout
    done = re.search(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    times = re.search(r"time for request:\s+(\S+)\s+(\S+)\s+(\S+)", out)
    if not done or not times:
        raise RuntimeError(f"h2load said nothing we understand:\n{out}")
    return {
        "requests": int(done[2]),
        "rate": float(re.search(r"finished in \S+, ([\d.]+) req/s", out)[1]),
        "mean_ms": _ms(times[3]),
        "max_ms": _ms(times[2]),
        "errors": int(done[4]) + int(done[5]) + int(done[6]),
    }


def weir(env, port, requests, *, connections, streams=None, scheme="http", headers=(), post=0, document=None, keepalive=True, routes=0, call=None, http3=False, path="/"):
    """Makes exactly this many requests with `weir load` of the binary under test; raises unless each got a 200.
    Returns the number.

    `routes` requests each of that many routes in a shuffled order, as `routes_script` does. `call` is one of the
    suite `transcode`. `document` is a file of JSON that is posted.
    """
    kept = env.scratch / "load.json"
    command = [str(env.weir), "load", "--threads", "1", "-n", str(requests), "-c", str(connections), "--timeout", "120s", "--no-live", "--save", str(kept)]
    command += [word for h in headers for word in ("-H", h)]
    command += ["--insecure"] if scheme.endswith("s") else []
    command += ["-m", str(streams)] if streams else []
    command += [] if keepalive else ["--no-keepalive"]
    if scheme == "grpcs":
        path = "/helloworld.v1.Greeter/SayHello"
        command += ["--proto", str(ROOT / "crates/weir-origin/proto/greeter.proto"), "--data", '{"name": "weir"}', "--check", "grpc=OK"]
    elif http3:
        command += ["--http3"]
    elif streams:
        command += ["--http2"]
    if call:
        from suites.transcode import counted  # which imports this module

        path, media, body = counted(env.scratch, call)
        command += ["-H", f"Content-Type: {media}", "--data", f"@{body}", "--raw"]
    if post:
        command += ["-H", "Content-Type: application/json", "--data", "x" * post]
    if document:
        command += ["-H", "Content-Type: application/json", "--data", f"@{document}", "--raw"]
    if routes:
        path = "/api/v{{data.v}}/thing{{data.i}}/42/detail"
        command += ["--feed", str(_routes_feed(env.scratch, routes))]
    out = subprocess.run([*command, f"{scheme}://127.0.0.1:{port}{path}"], capture_output=True, text=True, timeout=600)
    counts = json.loads(kept.read_text())["counts"] if kept.exists() else {}
    kept.unlink(missing_ok=True)
    if out.returncode or counts.get("statuses") != {"200": requests} or counts["failed_checks"]:
        raise RuntimeError(f"not every request was answered with 200: {counts}\n{out.stdout}{out.stderr}")
    return requests


def _routes_feed(folder, count):
    path = folder / f"routes-{count}.csv"
    asked = list(range(count))
    random.Random(1).shuffle(asked)
    path.write_text("v,i\n" + "".join(f"{i % 7},{i}\n" for i in asked))
    return path


def grpc_call(folder):
    """How h2load makes a unary call: one message, `HelloRequest { name: "weir" }`, after its five bytes of
    framing."""
    path = folder / "hello.grpc"
    message = b"\x0a\x04weir"
    path.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    headers = ["content-type: application/grpc", "te: trailers"]
    return {"path": "/helloworld.v1.Greeter/SayHello", "data": str(path), "headers": headers}


def _parse(out):
    done = re.search(r"(\d+) requests in", out)
    if not done:
        raise RuntimeError(f"wrk said nothing we understand:\n{out}")
    status = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    sockets = re.search(r"Socket errors: (.*)", out)
    errors = (int(status[1]) if status else 0) + (sum(map(int, re.findall(r"\d+", sockets[1]))) if sockets else 0)
    percentile = {p: _ms(re.search(rf"(?m)^\s+{p}%\s+(\S+)", out)[1]) for p in (50, 99)}
    return {
        "requests": int(done[1]),
        "rate": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]),
        "p50_ms": percentile[50],
        "p99_ms": percentile[99],
        "errors": errors,
    }


def _ms(text):
    number, unit = re.match(r"([\d.]+)(\w+)", text).groups()
    return float(number) * _UNITS[unit]


def post_script(folder, size):
    """A wrk script that POSTs `size` bytes of JSON type."""
    path = folder / f"post-{size}.lua"
    path.write_text(f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = string.rep("x", {size})\n')
    return path


def routes_script(folder, count):
    """A wrk script that requests each of `count` routes in a shuffled order, prepared before the load begins."""
    path = folder / f"routes-{count}.lua"
    path.write_text(f"""local n, at, asked = {count}, 0, {{}}
function init()
  math.randomseed(1)
  for i = 1, n do asked[i] = wrk.format("GET", "/api/v" .. (i - 1) % 7 .. "/thing" .. (i - 1) .. "/42/detail") end
  for i = n, 2, -1 do local j = math.random(i); asked[i], asked[j] = asked[j], asked[i] end
end
function request() at = at % n + 1; return asked[at] end
""")
    return path


def download(port):
    """GET / and discard the body in the kernel. Returns (bytes, seconds)."""
    with socket.create_connection(("127.0.0.1", port), 30) as s:
        started = time.monotonic()
        s.sendall(b"GET / HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n")
        head, rest = _head(s)
        left = total = _length(head)
        left -= len(rest)
        sink = bytearray(CHUNK)
        while left:
            n = s.recv_into(sink, min(CHUNK, left), socket.MSG_TRUNC)
            if not n:
                raise RuntimeError(f"the body ended {left} bytes early")
            left -= n
        return total, time.monotonic() - started


def upload(port, size):
    """POST `size` zero bytes and read the answer. Returns (bytes, seconds)."""
    with socket.create_connection(("127.0.0.1", port), 30) as s:
        started = time.monotonic()
        s.sendall(b"POST / HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        chunk = memoryview(bytes(CHUNK))
        left = size
        while left:
            left -= s.send(chunk[: min(CHUNK, left)])
        head, _ = _head(s)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"upload answered {head[:60]!r}")
        return size, time.monotonic() - started


def idle_connections(port, count):
    """Opens up to `count` keep-alive connections, makes one request on each, and returns them idle and open.

    Returns fewer if the gateway refuses one: asking for more would be pointless.
    """
    held = []
    while len(held) < count:
        try:
            s = socket.create_connection(("127.0.0.1", port), 10)
            s.sendall(b"GET / HTTP/1.1\r\nHost: bench.test\r\n\r\n")
            head, rest = _head(s)
            left = _length(head) - len(rest)
            while left > 0:
                left -= len(s.recv(left))
        except (OSError, RuntimeError):
            break
        held.append(s)
    return held


def still_open(sockets):
    """How many of them the other side has not closed."""
    open_ = 0
    for s in sockets:
        s.setblocking(False)
        try:
            open_ += s.recv(1) != b""
        except BlockingIOError:
            open_ += 1
        except OSError:
            pass
    return open_


def get(port, path):
    """A small GET, for /metrics. Returns the status."""
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        head, _ = _head(s)
        while s.recv(65536):
            pass
        return int(head.split(b" ", 2)[1])


def _head(s):
    got = b""
    while b"\r\n\r\n" not in got:
        piece = s.recv(4096)
        if not piece:
            raise RuntimeError(f"closed after {got[:80]!r}")
        got += piece
    head, rest = got.split(b"\r\n\r\n", 1)
    return head, rest


def _length(head):
    return int(re.search(rb"(?i)\r\ncontent-length:\s*(\d+)", head)[1])
