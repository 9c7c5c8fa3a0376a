#!/usr/bin/env python3
"""Floods over HTTP/3, from one client that connects again whenever it is cut. A flood that has a limit must be cut within
0.5 s. During all of them, a neighbor on HTTP/1.1 of the same gateway must be served about as fast as without.

usage: floods.py [WORD]...   (only the floods with all these words)
"""

import multiprocessing
import os
import random
import socket
import statistics
import sys
import time
import urllib.request

from gateway import AIOQUIC, Gateway, judge
from peer import Peer, frame, get, post, prefixed, section, varint

# How long each flood lasts.
LONGEST = 2
# The longest that the gateway may need to end one.
CUT = 0.5
LOAD = 0x107

FLOODS = []


def room(peer, is_one_way=False):
    """How many streams may be opened now, at most 10: aioquic resets those that it may not even open."""
    most = peer.quic._remote_max_streams_uni if is_one_way else peer.quic._remote_max_streams_bidi
    return max(0, min(10, most - peer.quic.get_next_available_stream_id(is_one_way) // 4))


def flood(text, *codes, how=None):
    """Adds a flood: `act` sends one portion of it, again and again. With codes, the connection must end with one."""

    def add(act):
        FLOODS.append((text, codes, how or (lambda port: Peer(port).setup()), act))

    return add


@flood("requests that are reset", LOAD)
def _(peer, n):
    for _ in range(room(peer)):
        stream = peer.request(frame(1, post("/sum")), False)
        peer.flush()
        peer.quic.reset_stream(stream, 0x10C)


# Each answer earns what stopping it costs, as over HTTP/2.
@flood("requests whose answers are stopped")
def _(peer, n):
    for _ in range(room(peer)):
        stream = peer.request(frame(1, get("/files/big")))
        peer.quic.stop_stream(stream, 0x10C)


@flood("malformed requests", LOAD)
def _(peer, n):
    for _ in range(10):
        peer.request(frame(1, section((":method", "GET"))))


@flood("empty DATA frames", LOAD)
def _(peer, n):
    if not n:
        peer.victim = peer.request(frame(1, post("/sum")), False)
    peer.more(peer.victim, frame(0) * 500)


@flood("unknown frames on a request stream", LOAD)
def _(peer, n):
    if not n:
        peer.victim = peer.request(frame(1, post("/sum")), False)
    peer.more(peer.victim, frame(0x21) * 500)


@flood("unknown frames on the control stream", LOAD)
def _(peer, n):
    peer.more(2, frame(0x21) * 500)


@flood("PRIORITY_UPDATE", LOAD)
def _(peer, n):
    peer.more(2, (varint(0xF0700) + b"\x04\0u=1") * 500)


@flood("MAX_PUSH_ID", LOAD)
def _(peer, n):
    peer.more(2, b"".join(frame(13, varint(n * 500 + k)) for k in range(500)))


@flood("GOAWAY", LOAD)
def _(peer, n):
    peer.more(2, frame(7, b"\0") * 500)


@flood("SETTINGS of many unknown settings", LOAD, how=lambda port: Peer(port).connect())
def _(peer, n):
    if not n:
        peer.uni(varint(0) + frame(4, b"".join(varint(0x4000 + k) + b"\0" for k in range(1000))))


@flood("streams of unknown types", LOAD)
def _(peer, n):
    for _ in range(5):
        peer.uni(varint(0x21) + b"abc", True)


@flood("unidirectional streams that are reset before their type", LOAD)
def _(peer, n):
    for _ in range(room(peer, True)):
        stream = peer.quic.get_next_available_stream_id(is_unidirectional=True)
        peer.uni(b"")
        peer.quic.reset_stream(stream, 0x10C)


@flood("insertions into QPACK's table", LOAD)
def _(peer, n):
    if not n:
        peer.more(6, b"\x3f\xe1\x1f\x42ab" + prefixed(4000, 7, 0) + b"c" * 4000)
    peer.more(6, b"\0" * 2000)  # each copies the entry


@flood("heads that refer 1,000 times to a large entry", 0x107, 0x10E)
def _(peer, n):
    if not n:
        peer.more(6, b"\x3f\xe1\x1f\x42ab" + prefixed(4000, 7, 0) + b"c" * 4000)
        peer.until(lambda: False, 0.1)  # so that no head waits for it
    for _ in range(5):
        peer.request(frame(1, b"\x02\0" + get()[2:] + b"\x80" * 1000))


@flood("connection ids that retire each other")
def _(peer, n):
    first = 10 + n * 5
    ids = [b"%08d" % (first + k) for k in range(5)]
    peer.quic._host_cids += [peer.quic._host_cids[0].__class__(cid=id, sequence_number=first + k) for k, id in enumerate(ids)]
    del peer.quic._host_cids[1:-20]
    peer.frames(b"".join(b"\x18" + varint(first + k) + varint(first) + b"\x08" + id + id * 2 for k, id in enumerate(ids)))
    peer.until(lambda: False, 0.002)


@flood("RETIRE_CONNECTION_ID of every id we are given")
def _(peer, n):
    for known in [peer.quic._peer_cid, *peer.quic._peer_cid_available][:1]:
        peer.quic.change_connection_id()
    peer.until(lambda: False, 0.002)


@flood("PATH_CHALLENGE", LOAD)
def _(peer, n):
    for _ in range(20):
        peer.frames(b"".join(b"\x1a" + os.urandom(8) for _ in range(100)))


@flood("PING", LOAD)
def _(peer, n):
    for _ in range(50):
        peer.frames(b"\x01" * 1000)


@flood("addresses that change all the time")
def _(peer, n):
    peer.socket.close()
    peer.socket = peer.new_socket()
    peer.frames(b"\x01")


@flood("packets that cannot be decrypted")
def _(peer, n):
    packet = bytearray(peer.packet(b"\x01" * 1000))
    packet[-1] ^= 1
    for _ in range(100):
        peer.send(bytes(packet))


@flood("acknowledgements of many ranges")
def _(peer, n):
    for _ in range(50):
        peer.frames(b"\x02\0\0\0\0\x01")


@flood("first packets from sources that never answer", how=lambda port: Peer(port).connect())
def _(peer, n):
    for _ in range(20):
        other = Peer(peer.address[1])
        other.socket.close()
        # Sources all over the loopback network, as a forger has them.
        other.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.socket.bind((f"127.{random.randrange(1, 250)}.{random.randrange(250)}.{random.randrange(1, 250)}", 0))
        other.quic.connect(other.address, 0)
        other.flush()
        other.socket.close()


@flood("100 requests that stall within their heads", how=lambda port: Peer(port).setup())
def _(peer, n):
    if not n:
        for _ in range(100):
            peer.request(b"\x01\x40\x40\0\0", False)
    peer.until(lambda: False, 0.05)


class Neighbor:
    """A process that asks on one connection over HTTP/1.1, one request after another, and notes how long each takes."""

    def __init__(self, port):
        self.over, self.times = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=self.run, args=(port,), daemon=True)
        self.process.start()

    def run(self, port):
        times = []
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not self.over.is_set():
                    began = time.monotonic()
                    s.sendall(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
                    got = b""
                    while not got.endswith(b"hello\n"):
                        piece = s.recv(4096)
                        assert piece, f"closed after {got!r}"
                        got += piece
                    times.append(time.monotonic() - began)
                    time.sleep(0.002)
            self.times.put(times)
        except Exception as e:
            self.times.put(repr(e))

    def end(self):
        """The 99th percentile in milliseconds."""
        self.over.set()
        times = self.times.get(timeout=10)
        self.process.join(5)
        assert isinstance(times, list) and times, f"the neighbor: {times}"
        return (statistics.quantiles(times, n=100)[98] if len(times) > 20 else max(times)) * 1000


def run(gateway, one, usual):
    text, codes, how, act = one
    neighbor, began, portions, cuts = Neighbor(gateway.plain), time.monotonic(), 0, []
    while time.monotonic() - began < LONGEST and len(cuts) < 20:
        peer = how(gateway.port)
        since, n = time.monotonic(), 0
        while not peer.closed and time.monotonic() - began < LONGEST:
            act(peer, n)
            n += 1
            peer.flush()
            peer.receive(0.0001)
        portions += n
        if peer.closed:
            assert not codes or peer.closed.error_code in codes, f"{peer.closed}"
            cuts.append(time.monotonic() - since)
        peer.close()
    p99 = neighbor.end()
    cut = f"cut {len(cuts)} times, the slowest after {max(cuts):.2f} s" if cuts else "never cut"
    print(f"     {text}: {cut}, {portions} portions; the neighbor's p99 {p99:.1f} ms, {usual:.1f} without", flush=True)
    if codes:
        assert cuts, "not cut"
        assert max(cuts) < CUT, f"cut after {max(cuts):.2f} s"
    # On two busy cores, a client that floods costs the neighbor as much as any client that is as busy.
    assert p99 < max(10 * usual, usual + 50), f"the neighbor's p99 is {p99:.1f} ms, {usual:.1f} without"


def unread_bodies(gateway):
    """100 connections with 100 streams each, whose bodies nobody reads: the origin never answers."""
    sink = socket.create_server(("127.0.0.1", int(os.environ["SINK_PORT"])), backlog=16384)
    before, peers = gateway.memory(), []
    for _ in range(100):
        peer = Peer(gateway.port, max_data=1 << 20).setup()
        for _ in range(100):
            peer.request(frame(1, post("/sink", 1 << 20)) + varint(0) + varint(1 << 20) + b"x" * 20_000, False)
        peer.until(lambda: False, 0.05)
        peers.append(peer)
    for _ in range(3):
        for peer in peers:
            peer.flush()
            peer.receive(0.0001)
    used = gateway.memory() - before
    for peer in peers:
        peer.close()
    sink.close()
    sent = sum(peer.sent for peer in peers)
    print(f"     {used >> 20} MiB for {sent >> 20} MiB sent on 10,000 streams of 100 connections")
    assert used < 400 << 20, f"{used >> 20} MiB"


def idle(gateway, many):
    """What an idle connection costs, after a request. All must be there at the end, before `timeouts.keepalive` (75 s) ends the first."""
    before, began, peers = gateway.memory(), time.monotonic(), []
    for _ in range(many):
        peer = Peer(gateway.port, idle_timeout=120).setup()
        peer.ask()  # a connection without any request ends after `timeouts.head`
        peers.append(peer)
        peer.socket.close()
    used = gateway.memory() - before
    assert time.monotonic() - began < 70, f"opening {many} took too long: fewer, by IDLE=N"
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/metrics") as metrics:
        there = sum(int(float(line.split()[-1])) for line in metrics.read().decode().splitlines() if line.startswith("weir_connections_active{"))
    assert there >= many, f"{there} connections are open"
    print(f"     {used / many / 1024:.1f} KiB for each of {many} idle connections, so {used * 10_000 / many / (1 << 20):.0f} MiB for 10,000")
    assert used * 10_000 / many <= 150 << 20, f"{used * 10_000 / many / (1 << 20):.0f} MiB for 10,000"


def main():
    words = sys.argv[1:]
    os.environ["SINK_PORT"] = str(judge.free_port())
    gateway = Gateway()
    quiet = Neighbor(gateway.plain)
    time.sleep(2)
    usual = quiet.end()
    # Memory first: later, connections would reuse what others have freed.
    for text, act in (
        ("10,000 idle connections cost at most 150 MiB", lambda: idle(gateway, int(os.environ.get("IDLE", "2000")))),
        ("bodies that nobody reads cost a bounded amount of memory", lambda: unread_bodies(gateway)),
    ):
        if all(word in text for word in words):
            check(text, gateway, act)
    for one in FLOODS:
        if all(word in one[0] for word in words):
            check(one[0], gateway, lambda one=one: run(gateway, one, usual))
    judge.verdict(gateway.child.poll() is None, f"http3 floods: the gateway still runs (aioquic {AIOQUIC})")
    sys.exit(bool(judge.failed))


def check(text, gateway, act):
    try:
        act()
        other = Peer(gateway.port).connect(8)
        other.uni(varint(0) + frame(4))
        assert bytes(other.ask().body) == b"hello\n", "the next client is not served"
        other.close()
        judge.verdict(True, f"http3 floods: {text}")
    except Exception as e:
        judge.verdict(False, f"http3 floods: {text}: {type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
