#!/usr/bin/env python3
"""HTTP/2 peers that fall silent on either side of weir, and slow ones that do not.

A peer that answers no PING is dropped within 20 s; one that answers is waited for, however long the message takes.
The frames are hand-made and sockets stay open, so silence is the only sign. All cases run concurrently, in half a
minute.
"""

import os
import socket
import struct
import sys
import threading
import time

from judge import HERE, WORK, failed, free_port, start_weir, verdict

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
GIVEN_UP_S, SLOW_S = 20.0, 24.0
SLACK_S = 1.0  # of a busy machine


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A field outside the tables, without Huffman coding (RFC 7541 §6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(path):
    fields = ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"silence.test"), (b":path", path))
    return frame(HEADERS, 0x5, 1, b"".join(literal(*field) for field in fields))


class Peer:
    """One connection; `read` returns frames, and the caller decides whether to answer PINGs."""

    def __init__(self, sock, answers):
        self.sock, self.answers, self.pings, self.rest = sock, answers, 0, b""

    def exactly(self, count):
        while len(self.rest) < count:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionResetError("closed")
            self.rest += more
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def read(self):
        head = self.exactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = self.exactly(int.from_bytes(head[:3], "big"))
        if kind == SETTINGS and not flags & 1:
            self.sock.sendall(frame(SETTINGS, 1, 0))
        if kind == PING and not flags & 1:
            self.pings += 1
            if self.answers:
                self.sock.sendall(frame(PING, 1, 0, payload))
        return kind, flags, stream, payload


def client(port, path, answers):
    """Sends a request, and reads until the answer or the end. Returns (status or body seen, seconds, PINGs)."""
    peer = Peer(socket.create_connection(("127.0.0.1", port), 5), answers)
    peer.sock.settimeout(60)
    peer.sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + request(path))
    began, body = time.monotonic(), b""
    try:
        while True:
            kind, flags, _, payload = peer.read()
            if kind == DATA:
                body += payload
                if flags & 1:
                    break
            elif kind in (GOAWAY, RST_STREAM):
                break
    except OSError:
        pass
    return body, time.monotonic() - began, peer.pings


def upstream(port, answers, serve):
    """Serves every connection in a separate thread."""
    listener = socket.create_server(("127.0.0.1", port))

    def one(sock):
        peer = Peer(sock, answers)
        try:
            peer.exactly(len(PREFACE))
            sock.sendall(frame(SETTINGS, 0, 0))
            while True:
                kind, _, stream, _ = peer.read()
                if kind == HEADERS:
                    serve(peer, stream)
        except OSError:
            pass

    def loop():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


def slowly(peer, stream):
    """The head and a word immediately, the rest much later; PINGs are answered meanwhile."""
    peer.sock.sendall(frame(HEADERS, 0x4, stream, b"\x88") + frame(DATA, 0, stream, b"begun "))

    def end():
        time.sleep(SLOW_S)
        peer.sock.sendall(frame(DATA, 1, stream, b"done"))

    threading.Thread(target=end, daemon=True).start()


def main():
    origin, dead = free_port(), free_port()
    upstream(origin, True, slowly)
    upstream(dead, False, lambda peer, stream: None)
    os.environ["DEAD_PORT"] = str(dead)
    port, _, _ = start_weir(HERE / "silence.yaml", origin)
    seen = {}
    cases = {"silent client": (b"/", False), "patient client": (b"/", True), "silent upstream": (b"/dead", True)}
    threads = [threading.Thread(target=lambda name=name, case=case: seen.update({name: client(port, *case)})) for name, case in cases.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    body, took, pings = seen["silent client"]
    verdict(pings > 0 and took <= GIVEN_UP_S + SLACK_S, f"a client that answers no PING is given up after {took:.1f} s ({pings} asked)")
    body, took, pings = seen["patient client"]
    verdict(body == b"begun done" and took >= SLOW_S, f"one that answers hears the end after {took:.1f} s ({pings} asked)")
    body, took, pings = seen["silent upstream"]
    verdict(bool(body) and took <= GIVEN_UP_S + SLACK_S, f"an upstream that answers no PING is given up after {took:.1f} s: {body.decode(errors='replace').strip()}")
    log = (WORK / "weir.log").read_text()
    verdict("the connection is dead" in log, "and the log says so")
    sys.exit(1 if failed else 0)


main()
