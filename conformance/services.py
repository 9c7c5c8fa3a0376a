#!/usr/bin/env python3
"""The greeters of examples/services, each in its own framework, called as REST, gRPC and gRPC-Web through weir, and
then found in etcd by discovery.

Builds them (Go from its modules, tonic by cargo) into the tools folder. Services that cannot be built or are not
installed are SKIPPED with the reason. Also tests the keys, limit, retries, probes and traces of
examples/services/weir.yaml. Prints how long an instance takes to appear and to disappear.
"""

import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

from judge import ROOT, TOOLS, WORK, failed, free_port, start, verdict, wait_for_port, weir_bin

HERE = ROOT / "examples/services"
BUILT = TOOLS / "services"
GO = {"kratos": "kratos", "gozero": "go-zero", "sponge": "sponge"}
KEY = "try-me"
# As in weir.yaml.
ADDRESSES = {"kratos": "127.0.0.1:9501", "gozero": "127.0.0.1:9502", "sponge": "127.0.0.1:9503", "tonic": "127.0.0.1:9504"}
METHOD = "/helloworld.v1.Greeter/SayHello"


def run(*command, cwd, env=None):
    """Runs a command; returns its last line of output if it failed, else None."""
    done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **(env or {})), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    said = (done.stderr or done.stdout).strip().splitlines()
    return None if done.returncode == 0 else (said[-1] if said else f"exit {done.returncode}")


def build():
    """The programs that could be built, by name."""
    BUILT.mkdir(parents=True, exist_ok=True)
    built = {}
    for name, folder in GO.items():
        why = "Go is not installed" if not shutil.which("go") else run("go", "build", "-o", str(BUILT / name), ".", cwd=HERE / folder)
        if why:
            print(f"SKIPPED {name}: {why}")
        else:
            built[name] = BUILT / name
    if not shutil.which("cargo"):
        why = "cargo is not installed"
    else:
        why = run("cargo", "build", "--locked", cwd=HERE / "tonic", env={"CARGO_TARGET_DIR": str(BUILT / "tonic-target")})
    if why:
        print(f"SKIPPED tonic: {why}")
    else:
        built["tonic"] = BUILT / "tonic-target/debug/weir-example-tonic"
    return built


class Greeter:
    """One instance."""

    def __init__(self, name, program, etcd=None):
        self.http, self.grpc = free_port(), free_port()
        at = lambda port: f"127.0.0.1:{port}"
        addresses = {"tonic": [at(self.grpc)], "gozero": [str(self.http), at(self.grpc)]}.get(name, [at(self.http), at(self.grpc)])
        self.child = start(program, *addresses, name=f"{name}-{self.grpc}", env={"ETCD": etcd} if etcd else None)
        wait_for_port(self.grpc)

    def stop(self):
        self.child.send_signal(signal.SIGTERM if self.child.args[0].find("tonic") < 0 else signal.SIGINT)
        try:
            self.child.wait(15)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def weir(name, replaced, called=None, env=None):
    """Runs an example config with other addresses. Returns its port, its admin port and the process."""
    port, admin = free_port(), free_port()
    text = (HERE / name).read_text()
    for old, new in {"127.0.0.1:8080": f"127.0.0.1:{port}", **replaced}.items():
        if old not in text:
            sys.exit(f"examples/services/{name} has no {old!r} any more: mend services.py")
        text = text.replace(old, new)
    folder = WORK / (called or name.removesuffix(".yaml"))
    folder.mkdir()
    shutil.copy(HERE / "greeter.proto", folder)
    (folder / "weir.yaml").write_text(text + f'admin: {{ address: "127.0.0.1:{admin}" }}\n')
    child = start(weir_bin(), "run", "-c", folder / "weir.yaml", name=folder.name, env=env)
    wait_for_port(port)
    wait_for_port(admin)
    return port, admin, child


def ask(port, method, path, host, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=body, headers={"Host": host, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def status(admin):
    return json.loads(ask(admin, "GET", "/status", f"127.0.0.1:{admin}")[2])["upstreams"]


def message(name):
    """HelloRequest and HelloReply: one string in field 1."""
    return b"\x0a" + bytes([len(name)]) + name.encode()


def by_grpc_web(port, host, name, key=KEY):
    """Message and status of a gRPC-Web call."""
    body = b"\0" + struct.pack(">I", len(message(name))) + message(name)
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "apikey": key}
    code, fields, data = ask(port, "POST", METHOD, host, headers, body)
    reply, trailers = None, {key.lower(): value for key, value in fields}
    while len(data) >= 5:
        flags, length = data[0], struct.unpack(">I", data[1:5])[0]
        frame, data = data[5 : 5 + length], data[5 + length :]
        if flags & 0x80:
            trailers.update(line.split(": ", 1) if ": " in line else line.split(":", 1) for line in frame.decode().strip().split("\r\n"))
        else:
            reply = frame
    return code, reply, trailers.get("grpc-status", "").strip()


def by_grpc(port, host, name, expected, key=KEY):
    """Whether a gRPC call over HTTP/2, made by `weir load`, ends with this status."""
    proto = ROOT / "crates/weir-origin/proto/greeter.proto"  # the same service, without the rules for REST
    command = [weir_bin(), "load", "-n", "1", "-c", "1", "--proto", proto, "--data", json.dumps({"name": name}), "-H", f"apikey: {key}"]
    command += ["-H", f"host: {host}", "--check", f"grpc={expected}", "--threshold", "checks>99%", f"grpc://127.0.0.1:{port}{METHOD}"]
    return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=30).returncode == 0


def called(name, port, admin, greeter):
    host = f"{name}.localhost"
    key = {"apikey": KEY}
    code, fields, body = ask(port, "GET", "/helloworld/Ann", host, key)
    verdict((code, json.loads(body)) == (200, {"message": "Ann"}), f"{name}: GET by REST: {code} {body[:80]}")
    code, _, body = ask(port, "POST", "/helloworld", host, key, '{"name":"Bob"}')
    verdict((code, json.loads(body)) == (200, {"message": "Bob"}), f"{name}: POST by REST")
    code, _, body = ask(port, "GET", "/helloworld/nobody", host, key)
    verdict(code == 404 and b"nobody" in body, f"{name}: who is not found is 404: {code} {body[:120]}")
    code, _, body = ask(port, "GET", "/helloworld/Ann?nam=x", host, key)
    verdict(code == 400, f"{name}: a parameter that the message does not have is refused")
    verdict(ask(port, "GET", "/helloworld/Ann", host)[0] == 401, f"{name}: nobody without a key")
    code = ask(port, "GET", "/helloworld/Ann", host, {"apikey": "another"})[0]
    verdict(code == 401, f"{name}: nor with another one: {code}")
    verdict(by_grpc(port, host, "Ann", "UNAUTHENTICATED", key="another"), f"{name}: gRPC, and another key")
    ended = by_grpc_web(port, host, "Ann", key="another")[2]
    verdict(ended == "16", f"{name}: gRPC-Web, and another key: {ended}")
    verdict(by_grpc(port, host, "Ann", "OK"), f"{name}: gRPC")
    verdict(by_grpc(port, host, "nobody", "NOT_FOUND"), f"{name}: gRPC, and who is not found")
    code, reply, ended = by_grpc_web(port, host, "Ann")
    verdict((code, reply, ended) == (200, message("Ann"), "0"), f"{name}: gRPC-Web: {code} {reply} {ended}")
    verdict(by_grpc_web(port, host, "nobody")[2] == "5", f"{name}: gRPC-Web, and who is not found")
    until = time.monotonic() + 10
    endpoint = lambda: status(admin)[name]["endpoints"][0]
    while not endpoint()["healthy"] and time.monotonic() < until:
        time.sleep(0.05)
    verdict(endpoint()["healthy"], f"{name}: well by grpc.health.v1")
    greeter.stop()
    while endpoint()["healthy"] and time.monotonic() < until:
        time.sleep(0.05)
    verdict(not endpoint()["healthy"], f"{name}: out of rotation once it has ended")
    code = ask(port, "GET", "/helloworld/Ann", host, key)[0]
    verdict(code in (502, 503), f"{name}: and then {code}")


def limited(built, addresses):
    """Five requests an hour for all services together, whatever the protocol."""
    port, admin, child = weir("weir.yaml", {**addresses, "requests: 1000, per: 1s": "requests: 5, per: 1h"}, "limited")
    name = sorted(built)[0]
    host, key = f"{name}.localhost", {"apikey": KEY}
    codes = [ask(port, "GET", "/helloworld/Ann", host, key)[0] for _ in range(5)]
    verdict(codes == [200] * 5, f"limit: as many as may pass do: {codes}")
    code, fields, body = ask(port, "GET", "/helloworld/Ann", host, key)
    after = dict((field.lower(), value) for field, value in fields).get("retry-after", "")
    verdict(code == 429 and after.isdigit() and int(after) > 0, f"limit: REST is told 429 and when to try again: {code} {after!r} {body[:120]}")
    for name in sorted(built):
        host = f"{name}.localhost"
        verdict(by_grpc(port, host, "Ann", "RESOURCE_EXHAUSTED"), f"limit: {name}: gRPC is told RESOURCE_EXHAUSTED")
        ended = by_grpc_web(port, host, "Ann")[2]
        verdict(ended == "8", f"limit: {name}: gRPC-Web too: {ended}")
        verdict(ask(port, "GET", "/helloworld/Ann", host)[0] == 401, f"limit: {name}: who has no key is told that first")
    child.terminate()


def repeated(built, addresses):
    """One of two endpoints refuses connections: every call is answered anyway, by another attempt."""
    nobody = {name: free_port() for name in built}
    two = {old: f"127.0.0.1:{nobody[name]}, {addresses[old]}" for name, old in ADDRESSES.items() if name in built}
    # The probe must not remove the endpoint before it was tried.
    two["    health: { probe: { kind: grpc, interval: 1s, timeout: 500ms, unhealthy: 2 } }\n"] = ""
    port, admin, child = weir("weir.yaml", {**addresses, **two}, "repeated")
    for name in sorted(built):
        host, key = f"{name}.localhost", {"apikey": KEY}
        codes = [ask(port, "GET", "/helloworld/Ann", host, key)[0] for _ in range(10)]
        verdict(codes == [200] * 10, f"repeats: {name}: each call is answered though an endpoint refuses: {codes}")
        ended = [by_grpc_web(port, host, "Ann")[2] for _ in range(5)]
        verdict(ended == ["0"] * 5, f"repeats: {name}: by gRPC-Web too: {ended}")
        refused = next(e for e in status(admin)[name]["endpoints"] if e["address"].endswith(f":{nobody[name]}"))
        tried = refused["failed"] > 0 and (refused.get("last_error") or {}).get("cause") == "connect_refused"
        verdict(tried, f"repeats: {name}: and it had been tried: {refused['failed']} {refused.get('last_error')}")
    child.terminate()


class Collector(http.server.BaseHTTPRequestHandler):
    """Accepts OTLP exports over HTTP, and keeps them raw."""

    exported = []

    def do_POST(self):
        self.exported.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def traced(built, greeters, addresses):
    """A call is a span in the caller's trace, and its attempt another; the service continues that trace."""
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    replaced = dict(addresses)
    if "gozero" in built:  # by HTTP go-zero tells the trace that it continues
        at = f"127.0.0.1:{greeters['gozero'].http}"
        replaced["\nupstreams:\n"] = f"\nupstreams:\n  gozero_http: {{ endpoints: [ {at} ] }}\n"
        replaced["\nroutes:\n"] = '\nroutes:\n  gozero_http: { match: { hosts: [ http.localhost ], path: "/*" }, upstream: gozero_http }\n'
    env = {"OTLP": f"http://127.0.0.1:{collector.server_port}"}
    port, admin, child = weir("weir.yaml", replaced, "traced", env)
    traces = {name: os.urandom(16) for name in [*sorted(built), "unsampled"]}

    def headers(name, sampled="01"):
        return {"apikey": KEY, "traceparent": f"00-{traces[name].hex()}-00f067aa0ba902b7-{sampled}"}

    for name in sorted(built):
        code = ask(port, "GET", "/helloworld/Ann", f"{name}.localhost", headers(name))[0]
        verdict(code == 200, f"traces: {name}: a call with a trace: {code}")
    ask(port, "GET", "/helloworld/Ann", f"{sorted(built)[0]}.localhost", headers("unsampled", "00"))
    if "gozero" in built:
        fields = ask(port, "GET", "/helloworld/Ann", "http.localhost", headers("gozero"))[1]
        told = dict((field.lower(), value) for field, value in fields).get("traceparent", "")
        verdict(traces["gozero"].hex() in told and "00f067aa0ba902b7" not in told, f"traces: go-zero continues the trace, below a span of ours: {told!r}")
    until = time.monotonic() + 20
    spans = lambda trace: b"".join(Collector.exported).count(b"\x0a\x10" + trace)  # field 1 of a span: 16 bytes
    while time.monotonic() < until and any(spans(traces[name]) < 2 for name in built):
        time.sleep(0.05)
    for name in sorted(built):
        verdict(spans(traces[name]) >= 2, f"traces: {name}: the exchange and its attempt are told the collector ({spans(traces[name])})")
    verdict(spans(traces["unsampled"]) == 0, "traces: a call that its caller does not sample is not told")
    child.terminate()
    collector.shutdown()


def found(name, admin, count, what, within=20):
    """Waits until this many instances are listed; returns how long that took."""
    began = time.monotonic()
    while time.monotonic() < began + within:
        if len(status(admin)[name]["endpoints"]) == count:
            return verdict(True, f"{name}: {what}, after {time.monotonic() - began:.2f} s")
        time.sleep(0.01)
    return verdict(False, f"{name}: {what}: {json.dumps(status(admin)[name].get('discovery'))}")


def discovered(built):
    if not shutil.which("etcd"):
        print("SKIPPED discovery: etcd is not installed (scripts/ensure-tools.sh etcd)")
        return
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    start("etcd", "--data-dir", WORK / "etcd", "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
          "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
    wait_for_port(int(client.rsplit(":", 1)[1]))
    port, admin, _ = weir("discovery.yaml", {"http://127.0.0.1:2379": client})
    for name in GO:
        if name not in built:
            continue
        first = Greeter(name, built[name], client)
        found(name, admin, 1, "the first instance is found")
        code, _, body = ask(port, "GET", f"/{name}/helloworld/Ann", "weir.test")
        verdict((code, body) == (200, b'{"message":"Ann"}'), f"{name}: and answers: {code} {body[:80]}")
        if name == "kratos":
            found("kratos_http", admin, 1, "its address for HTTP is found too")
            code, _, body = ask(port, "GET", "/kratos-http/helloworld/Ann", "weir.test")
            verdict((code, body) == (200, b'{"message":"Ann"}'), f"kratos: and answers by HTTP: {code} {body[:80]}")
        second = Greeter(name, built[name], client)
        found(name, admin, 2, "the second one too")
        first.stop()
        found(name, admin, 1, "one that deregisters is gone")
        second.child.kill()
        second.child.wait()
        # Its lease lasts at most 15 s.
        found(name, admin, 0, "one that is killed is gone with its lease", 30)


def main():
    if not any((HERE / folder).is_dir() for folder in GO.values()):
        sys.exit("examples/services is not there")
    built = build()
    if not built:
        print("SKIPPED services: none of them could be built")
        return
    greeters = {name: Greeter(name, program) for name, program in built.items()}
    addresses = {ADDRESSES[name]: f"127.0.0.1:{greeter.grpc}" for name, greeter in greeters.items()}
    limited(built, addresses)
    repeated(built, addresses)
    traced(built, greeters, addresses)
    port, admin, child = weir("weir.yaml", addresses)
    for name, greeter in greeters.items():
        called(name, port, admin, greeter)
    child.terminate()
    discovered(built)


main()
sys.exit(1 if failed else 0)
