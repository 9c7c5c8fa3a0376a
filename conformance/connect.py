#!/usr/bin/env python3
"""The conformance runner of the Connect project, for Connect, gRPC-Web and gRPC, over HTTP/1.1 and HTTP/2, with and
without TLS.

It runs twice. `pass` has the reference server behind Weir, so calls pass unchanged. `translate` has a server that
speaks only gRPC, so Connect and gRPC-Web are translated. connect/NAME.yaml selects the cases. connect/NAME.failing
and connect/NAME.flaky list those known to fail always or sometimes, with the reason.

usage: connect.py [--weir BINARY] [pass|translate] [-- OPTIONS OF connectconformance]
       connect.py --serve pass|translate      (what the runner starts: asked on stdin, answers on stdout)
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "1.0.7"
TOOLS = pathlib.Path(os.environ.get("CONF_TOOLS") or pathlib.Path.home() / ".cache/weir-conformance") / f"connectconformance-{VERSION}"
CONNECT, GRPC, GRPC_WEB = 1, 2, 3
HTTP1, HTTP2 = 1, 2


# === Messages of Protocol Buffers, as far as they are needed ===

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            found[key >> 3], at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            found[key >> 3], at = data[at:at + length], at + length
        else:
            raise SystemExit(f"a field of wire type {key & 7}")
    return found


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def message(of):
    out = b""
    for key, value in of.items():
        out += number(key << 3) + number(value) if isinstance(value, int) else number(key << 3 | 2) + number(len(value)) + value
    return out


def receive(stream):
    (length,) = struct.unpack(">I", stream.read(4))
    return fields(stream.read(length))


def send(stream, of):
    data = message(of)
    stream.write(struct.pack(">I", len(data)) + data)
    stream.flush()


# === The server under test: Weir, and a server behind it ===

def end_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def start(command, **more):
    return subprocess.Popen(command, preexec_fn=end_with_us, **more)


def serve(way):
    asked = receive(sys.stdin.buffer)
    work = pathlib.Path(tempfile.mkdtemp(prefix="weir-connect-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        behind = {1: asked.get(1, CONNECT), 2: asked.get(2, HTTP1)}
        if way == "translate":
            behind = {1: GRPC, 2: HTTP2}
        if 6 in asked:
            behind[6] = asked[6]
        program = "grpcserver" if way == "translate" else "referenceserver"
        server = start([TOOLS / program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        send(server.stdin, behind)
        config, log = work / "weir.yaml", work / "weir.log"
        config.write_text(written(way, asked, behind, receive(server.stdout)[2], work))
        weir = start([os.environ["WEIR_BIN"], "run", "-c", config], stdin=subprocess.DEVNULL, stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        port = listening(log, weir)
        send(sys.stdout.buffer, {1: b"127.0.0.1", 2: port, **({3: fields(asked[7])[1]} if asked.get(4) else {})})
        sys.stdin.buffer.read()  # until the runner has done
        signal.pause()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def written(way, asked, behind, origin, work):
    tls = ""
    if asked.get(4):
        credentials = fields(asked[7])
        (work / "cert.pem").write_bytes(credentials[1])
        (work / "key.pem").write_bytes(credentials[2])
        (work / "key.pem").chmod(0o600)
        (work / "clients.pem").write_bytes(asked.get(5, b""))
        clients = f", client_auth: {{ ca: {work}/clients.pem, mode: required }}" if asked.get(5) else ""
        tls = f", tls: {{ certificates: [ {{ cert: {work}/cert.pem, key: {work}/key.pem }} ]{clients} }}"
    filters = ""
    if way == "translate":
        folder = protos()
        proto = f"proto: [ {folder}/connectrpc/conformance/v1/service.proto ], include: [ {folder} ]"
        filters = f"filters: [ {{ grpc_web: {{}} }}, {{ connect: {{ {proto} }} }} ], "
    protocol = "h2c" if behind[2] == HTTP2 else "http1"
    return f"""listeners: {{ web: {{ address: "127.0.0.1:0", protocols: [h2, http1]{tls} }} }}
upstreams: {{ service: {{ endpoints: [ "127.0.0.1:{origin}" ], protocol: {protocol} }} }}
routes: {{ all: {{ match: {{ path: "/*" }}, {filters}upstream: service }} }}
access_log: {{ output: "off" }}
admin: {{ address: "127.0.0.1:0" }}
"""


def protos():
    """The module's protos, which come with the programs."""
    known = json.loads(subprocess.run(["go", "mod", "download", "-json", f"connectrpc.com/conformance@v{VERSION}"], check=True, stdout=subprocess.PIPE).stdout)
    return pathlib.Path(known["Dir"]) / "proto"


def listening(log, process):
    """The port that it reports."""
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        told = log.read_text(errors="replace")
        if " ready " in told:
            return int(re.search(r"listening listener=web address=127\.0\.0\.1:(\d+)", told)[1])
        time.sleep(0.02)
    raise SystemExit(f"weir does not listen: {log.read_text(errors='replace')}")


# === The runner ===

def judge(way, options):
    command = [TOOLS / "connectconformance", "--mode", "server", "--conf", HERE / f"connect/{way}.yaml"]
    for kind in ("failing", "flaky"):
        known = HERE / f"connect/{way}.{kind}"
        command += [f"--known-{kind}", f"@{known}"] if known.exists() else []
    done = subprocess.run([*command, *options, "--", sys.executable, pathlib.Path(__file__).resolve(), "--serve", way],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
    good = done.returncode == 0 and told is not None and int(told[1]) > 100
    if not good:
        print(done.stdout[-20000:], file=sys.stderr)
    known = re.search(r"\((\d+) failed as expected", done.stdout)
    print(f"{'PASS' if good else 'FAIL'} connect: {way}: {told[0] if told else 'the runner did not run'}{f', {known[1]} known to fail' if known else ''}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", default=os.environ.get("WEIR_BIN", str(HERE.parent / "target/release/weir")))
    parser.add_argument("--serve", choices=["pass", "translate"])
    parser.add_argument("way", nargs="?", choices=["pass", "translate"])
    args, options = parser.parse_known_args()
    if args.serve:
        return serve(args.serve)
    os.environ["WEIR_BIN"] = str(pathlib.Path(args.weir).resolve())
    subprocess.run([HERE.parent / "scripts/ensure-tools.sh", "connectconformance"], check=True)
    if not (TOOLS / "connectconformance").exists():
        raise SystemExit("FAIL connect: the runner could not be built")
    options = [option for option in options if option != "--"]
    good = [judge(way, options) for way in ([args.way] if args.way else ["pass", "translate"])]
    sys.exit(0 if all(good) else 1)


main()
