#!/usr/bin/env python3
"""ACME with a real authority, Pebble: scenarios too long for a test. Two nodes with one storage order once, and
either of them answers challenges. A renewal by ARI under load fails no handshake. If the authority is away for days
(simulated by the clock), the last certificate stays. A clock that is wrong by months orders at most once an hour.

usage: acme.py [--weir BINARY]
"""
import argparse
import glob
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = pathlib.Path(os.environ.get("CONF_TOOLS") or pathlib.Path.home() / ".cache/weir-conformance")
PEBBLE = TOOLS / "pebble-2.10.1"
FAILED = []
STARTED = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def judge(text, good, why=""):
    print(f"{'PASS' if good else 'FAIL'} acme: {text}{'' if good else f': {why}'}", flush=True)
    if not good:
        FAILED.append(text)


def wait(what, condition, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise SystemExit(f"FAIL acme: not within {seconds} s: {what}")


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def start(command, log, **more):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **more)
    STARTED.append(process)
    return process


def end(process):
    process.terminate()
    process.wait(30)
    STARTED.remove(process)


class Authority:
    """Pebble and its DNS server, which resolves every name to this machine."""

    def __init__(self, work, http, tls):
        self.work, self.acme, self.management, self.dns, self.records = work, *(free_port() for _ in range(4))
        self.processes = []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650", "-subj", "/CN=pebble",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", work / "pebble.key", "-out", work / "pebble.pem"],
                       check=True, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        config = {"listenAddress": f"127.0.0.1:{self.acme}", "managementListenAddress": f"127.0.0.1:{self.management}", "certificate": str(work / "pebble.pem"),
                  "privateKey": str(work / "pebble.key"), "httpPort": http, "tlsPort": tls, "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
                  "profiles": {"default": {"description": "ninety days", "validityPeriod": 7776000}}}
        (work / "pebble.json").write_text(json.dumps({"pebble": config}))

    def start(self):
        log = open(self.work / "pebble.log", "ab")
        dns = ["-dnsserver", f"127.0.0.1:{self.dns}"]
        off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]
        self.processes = [start([PEBBLE / "pebble-challtestsrv", *dns, "-management", f"127.0.0.1:{self.records}", *off], log),
                          start([PEBBLE / "pebble", "-config", self.work / "pebble.json", "-strict", *dns], log, env=dict(os.environ, PEBBLE_VA_NOSLEEP="1"))]
        wait("Pebble listens", lambda: listens(self.acme) and listens(self.management))

    def stop(self):
        for process in self.processes:
            end(process)

    def manage(self, path, body=None):
        context = ssl.create_default_context(cafile=str(self.work / "pebble.pem"))
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(f"https://127.0.0.1:{self.management}{path}", data, context=context) as answer:
            return answer.read().decode()


class Node:
    """A weir with its own ports, and a storage that may be shared."""

    def __init__(self, weir, work, name, authority, challenge, http, tls):
        self.weir, self.work, self.name, self.tls, self.admin = weir, work, name, tls, free_port()
        self.config, self.log = work / f"{name}.yaml", work / f"{name}.log"
        text = (HERE / "acme.yaml").read_text()
        values = {"HTTP": http, "TLS": tls, "ADMIN_PORT": self.admin, "DIRECTORY": f"https://127.0.0.1:{authority.acme}/dir", "CA": work / "pebble.pem",
                  "STORAGE": work / "storage", "CHALLENGE": challenge}
        self.environment = {key: str(value) for key, value in values.items()}
        self.config.write_text(text)

    def start(self, clock=None):
        turned = {"LD_PRELOAD": faketime(), "FAKETIME": clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if clock else {}
        self.process = start([self.weir, "run", "-c", self.config], open(self.log, "ab"), env={**os.environ, **self.environment, **turned})
        wait(f"{self.name} listens", lambda: listens(self.tls) and listens(self.admin))

    def stop(self):
        end(self.process)

    def logged(self, text):
        return [line for line in self.log.read_text(errors="replace").splitlines() if text in line]

    def shown(self):
        """The certificate that clients see, trusted or not."""
        return ssl.get_server_certificate(("127.0.0.1", self.tls), timeout=10)

    def status(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status") as answer:
            return json.load(answer)["certificates"][0]


def faketime():
    """Preloads the library: its command would stay as a parent, and be killed instead of weir."""
    return glob.glob("/usr/lib/*/faketime/libfaketime.so.1")[0]


def state_of(work):
    return pathlib.Path(glob.glob(str(work / "storage/*/certificates/a.test/state.json"))[0])


def forget(work, *keys):
    """Simulates the passing of time."""
    path = state_of(work)
    state = json.loads(path.read_text())
    state.update({key: 0 for key in keys})
    state["suggestion"] = None
    path.write_text(json.dumps(state))


def two_nodes(weir, work):
    http, tls = free_port(), free_port()
    authority = Authority(work, http, tls)
    # The authority asks only the first node, whichever has the lock. It comes once both are there.
    nodes = [Node(weir, work, "one", authority, "http-01", http, tls), Node(weir, work, "two", authority, "http-01", free_port(), free_port())]
    for node in nodes:
        node.start()
    authority.start()
    wait("both show a certificate", lambda: all(node.status()["acme"]["state"] == "issued" for node in nodes))
    judge("two nodes show the same certificate", nodes[0].shown() == nodes[1].shown())
    issued = sum(len(node.logged("certificate issued")) for node in nodes)
    judge("two nodes order once", issued == 1, f"{issued} orders")
    orders = len(glob.glob(str(work / "storage/*/certificates/a.test/order.json")))
    locks = len(glob.glob(str(work / "storage/*/certificates/a.test/lock*")))
    judge("order and lock are gone afterwards", orders == locks == 0, f"{orders} orders, {locks} locks")
    modes = {oct(os.stat(path).st_mode & 0o77) for path in glob.glob(str(work / "storage/*/certificates/a.test/*"))}
    judge("nobody else may read what is kept", modes == {"0o0"}, str(modes))
    return authority, nodes


def renewal_under_load(authority, nodes, work):
    loaded, other = nodes
    before = loaded.shown()
    other.stop()
    past = {"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}, "explanationURL": "https://ca.test/incident"}
    authority.manage("/set-renewal-info/", {"Certificate": before, "ARIResponse": json.dumps(past)})
    forget(work, "look_at", "issued_at")
    failures, handshakes, done = [], [0], threading.Event()
    trusting = ssl.create_default_context(cadata=authority.manage("/roots/0"))

    def shake():
        while not done.is_set():
            try:
                with socket.create_connection(("127.0.0.1", loaded.tls), 10) as raw, trusting.wrap_socket(raw, server_hostname="a.test") as tls:
                    tls.sendall(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
                    assert tls.recv(100).startswith(b"HTTP/1.1 200")
                handshakes[0] += 1
            except (OSError, AssertionError) as e:
                failures.append(repr(e))

    threads = [threading.Thread(target=shake) for _ in range(4)]
    for thread in threads:
        thread.start()
    other.start()
    wait("the renewal is shown", lambda: loaded.shown() != before)
    time.sleep(1)
    done.set()
    for thread in threads:
        thread.join()
    judge(f"no handshake fails while a certificate is replaced ({handshakes[0]} of them)", not failures and handshakes[0] > 100, str(failures[:3]))
    judge("the authority's word renews it", bool(other.logged("the certificate authority says when to renew")) and bool(other.logged("certificate issued")))
    judge("the other node takes it from the storage", bool(loaded.logged("certificate loaded from the storage")))


def away_for_days(authority, nodes, work):
    """libfaketime changes weir's clock. The authority keeps the real time."""
    for node in nodes:
        node.stop()
    authority.stop()
    node = nodes[0]
    before = certificate_file(work).read_bytes()
    node.start("+70d")
    wait("it failed", lambda: node.status()["acme"]["failures"] >= 2)
    status = node.status()
    judge("an authority that is away at the time of renewal leaves the certificate", status["acme"]["state"] == "issued" and status["days_left"] < 21, str(status))
    node.stop()
    node.start("+100d")
    wait("it failed", lambda: node.status()["acme"]["failures"] >= 2)
    judge("also when it has expired", node.status()["acme"]["state"] == "expired" and certificate_file(work).read_bytes() == before, str(node.status()))
    node.stop()
    forget(work, "next_try", "failures", "issued_at")
    authority.start()
    # By this clock its certificate ends in 5 days, so it is due again immediately: once an hour is enough.
    node.start("+85d")
    wait("a new one came", lambda: certificate_file(work).read_bytes() != before)
    wait("it is shown", lambda: node.status()["acme"]["state"] == "issued")
    issued = len(node.logged("certificate issued"))
    time.sleep(5)
    judge("the next one comes when the authority does", node.status()["acme"]["state"] == "issued", str(node.status()))
    judge("a wrong clock orders no second one at once", len(node.logged("certificate issued")) == issued)
    node.stop()


def certificate_file(work):
    return pathlib.Path(glob.glob(str(work / "storage/*/certificates/a.test/certificate.pem"))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weir", default=os.environ.get("WEIR_BIN", str(HERE.parent / "target/release/weir")))
    weir = str(pathlib.Path(parser.parse_args().weir).resolve())
    subprocess.run([HERE.parent / "scripts/ensure-tools.sh", "pebble", "faketime", "openssl"], check=True)
    if not (PEBBLE / "pebble").exists():
        raise SystemExit("FAIL acme: Pebble could not be built")
    work = pathlib.Path(tempfile.mkdtemp())
    try:
        authority, nodes = two_nodes(weir, work)
        renewal_under_load(authority, nodes, work)
        away_for_days(authority, nodes, work)
    except SystemExit:
        for log in sorted(work.glob("*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]), file=sys.stderr)
        raise
    finally:
        for process in list(STARTED):
            process.kill()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if FAILED else 0)


main()
