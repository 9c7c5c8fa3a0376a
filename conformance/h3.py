#!/usr/bin/env python3
"""Our HTTP/3 codec against aioquic's: in both roles without QUIC in between, and as a server over QUIC.

Without QUIC, streams are bytes that arrive in pieces, and the streams in any order.

A conversation is a seed: requests with fields that repeat, bodies of 0 to 20,000 bytes, and trailers. Each request and
each response must arrive as it was sent.

usage: h3.py [--conversations N]
"""
import argparse
import asyncio
import random
import ssl
import subprocess
import sys

from environment import example, imported

VERSION = "1.7.2"


class Streams:
    """What aioquic's HTTP/3 needs of a QUIC connection: it collects bytes."""

    def __init__(self, is_client):
        from aioquic.quic.configuration import QuicConfiguration

        self.configuration = QuicConfiguration(is_client=is_client)
        self._quic_logger = None
        self._remote_max_datagram_frame_size = None
        self.next = {False: 0 if is_client else 1, True: 2 if is_client else 3}
        self.out, self.closed = [], None

    def get_next_available_stream_id(self, is_unidirectional=False):
        self.next[is_unidirectional] += 4
        return self.next[is_unidirectional] - 4

    def send_stream_data(self, stream_id, data, end_stream=False):
        self.out.append((stream_id, bytes(data), end_stream))

    def close(self, error_code=0, frame_type=None, reason_phrase=""):
        self.closed = f"{error_code:#x} {reason_phrase}"


class Peer:
    """aioquic's side of a conversation, with our side as a process."""

    def __init__(self, binary, is_client, chance):
        from aioquic.h3.connection import H3Connection

        self.chance, self.streams = chance, Streams(is_client)
        self.h3 = H3Connection(self.streams)
        self.weir = subprocess.Popen([binary, "server" if is_client else "client"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.to_weir, self.to_peer = {}, {}
        self.heads, self.bodies, self.trailers, self.ended, self.got = {}, {}, {}, set(), {}

    def ask(self, line):
        self.weir.stdin.write(line + "\n")
        self.weir.stdin.flush()
        answer = self.weir.stdout.readline()
        assert answer.endswith("\n"), f"our side ended with {self.weir.wait()}"
        for word in answer.split():
            kind, *rest = word.split(":")
            if kind == "w":
                held = self.to_peer.setdefault(int(rest[0]), [bytearray(), False])
                held[0] += bytes.fromhex(rest[2])
                held[1] |= rest[1] == "1"
            elif kind == "got":
                self.got[int(rest[0])] = bytes.fromhex(rest[1])
            else:
                raise AssertionError(f"our side: {word}")

    def move(self):
        """Moves pieces both ways until everything has arrived."""
        from aioquic.h3.events import DataReceived, HeadersReceived
        from aioquic.quic.events import StreamDataReceived

        while True:
            for stream, data, fin in self.streams.out:
                held = self.to_weir.setdefault(stream, [bytearray(), False])
                held[0] += data
                held[1] |= fin
            self.streams.out.clear()
            ways = [(self.to_weir, stream) for stream in self.to_weir] + [(self.to_peer, stream) for stream in self.to_peer]
            if not ways:
                return
            way, stream = self.chance.choice(ways)
            held = way[stream]
            length = len(held[0]) if self.chance.random() < 0.5 else self.chance.randrange(len(held[0]) + 1)
            piece = bytes(held[0][:length])
            del held[0][:length]
            fin = held[1] and not held[0]
            if not held[0]:
                del way[stream]
            if way is self.to_weir:
                self.ask(f"r {stream} {int(fin)} {piece.hex()}")
                continue
            for event in self.h3.handle_event(StreamDataReceived(data=piece, end_stream=fin, stream_id=stream)):
                if isinstance(event, HeadersReceived):
                    (self.trailers if event.stream_id in self.heads else self.heads)[event.stream_id] = event.headers
                elif isinstance(event, DataReceived):
                    self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                if event.stream_ended:
                    self.ended.add(event.stream_id)
            assert self.streams.closed is None, f"aioquic: {self.streams.closed}"

    def close(self):
        self.weir.stdin.close()
        self.weir.wait(10)


def fields(chance):
    return [(f"x-{chance.randrange(6)}", f"value-{chance.randrange(4)}") for _ in range(chance.randrange(8))]


def our_server(binary, chance):
    peer = Peer(binary, True, chance)
    try:
        for _ in range(8):
            asked = {}
            for _ in range(chance.randrange(1, 6)):
                stream = peer.streams.get_next_available_stream_id()
                path, body, more = f"/p/{stream}", chance.randbytes(chance.choice([0, 1, 300, 20_000])), fields(chance)
                head = [(":method", "POST"), (":scheme", "https"), (":authority", "a.test"), (":path", path), *more]
                peer.h3.send_headers(stream, [(name.encode(), value.encode()) for name, value in head])
                peer.h3.send_data(stream, body, False)
                peer.h3.send_headers(stream, [(b"x-sum", b"2")], True)
                asked[stream] = (path, body, more)
            peer.move()
            for stream, (path, body, more) in asked.items():
                text = f"POST {path} HTTP/1.1\r\nhost: a.test\r\n" + "".join(f"{name}: {value}\r\n" for name, value in more)
                assert peer.got.get(stream) == text.encode() + b"\r\n" + body + b"x-sum: 2\r\n", f"request {stream}: {peer.got.get(stream)!r:.200}"
                want = [(b":status", b"200"), (b"server", b"weir"), (b"x-method", b"POST"), (b"x-path", path.encode())]
                assert peer.heads[stream] == want, f"{peer.heads[stream]}"
                assert peer.bodies.get(stream, b"") == body and peer.trailers[stream] == [(b"x-sum", b"1")], f"response {stream}"
                assert stream in peer.ended, f"response {stream} has no end"
    finally:
        peer.close()


def our_client(binary, chance):
    peer = Peer(binary, False, chance)
    try:
        stream = 0
        for _ in range(8):
            asked = {}
            for _ in range(chance.randrange(1, 6)):
                body, more = chance.randbytes(chance.choice([0, 1, 300, 20_000])), fields(chance)
                text = f"PUT /p/{stream} HTTP/1.1\r\nhost: a.test\r\n" + "".join(f"{name}: {value}\r\n" for name, value in more) + "\r\n"
                peer.ask(f"q {text.encode().hex()} {body.hex()}")
                asked[stream] = (body, more)
                stream += 4
            peer.move()
            for id, (body, more) in asked.items():
                want = [(":method", "PUT"), (":scheme", "https"), (":authority", "a.test"), (":path", f"/p/{id}"), *more]
                assert peer.heads[id] == [(name.encode(), value.encode()) for name, value in want], f"{peer.heads[id]}"
                assert peer.bodies.get(id, b"") == body and peer.trailers[id] == [(b"x-sum", b"1")] and id in peer.ended, f"request {id}"
                head = [(":status", "200"), ("server", "aioquic"), *more]
                peer.h3.send_headers(id, [(name.encode(), value.encode()) for name, value in head])
                peer.h3.send_data(id, body, False)
                peer.h3.send_headers(id, [(b"x-sum", b"3")], True)
            peer.move()
            for id, (body, more) in asked.items():
                text = "HTTP/1.1 200 \r\nserver: aioquic\r\n" + "".join(f"{name}: {value}\r\n" for name, value in more)
                assert peer.got.get(id) == text.encode() + b"\r\n" + body + b"x-sum: 3\r\n", f"response {id}: {peer.got.get(id)!r:.200}"
    finally:
        peer.close()


async def ask_over_quic(port, connections, requests):
    """Requests of many sizes on a few connections at the same time."""
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration

    class Client(QuicConnectionProtocol):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self.h3, self.got = H3Connection(self._quic), {}

        async def ask(self, path, body):
            stream = self._quic.get_next_available_stream_id()
            done = asyncio.get_running_loop().create_future()
            self.got[stream] = [[], b"", done]
            head = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path), ("x-a", "b")]
            self.h3.send_headers(stream, [(name.encode(), value.encode()) for name, value in head])
            self.h3.send_data(stream, body, True)
            self.transmit()
            return await asyncio.wait_for(done, 30)

        def quic_event_received(self, event):
            for got in self.h3.handle_event(event):
                message = self.got[got.stream_id]
                if isinstance(got, HeadersReceived):
                    message[0] += got.headers
                elif isinstance(got, DataReceived):
                    message[1] += got.data
                if got.stream_ended:
                    message[2].set_result((dict(message[0]), message[1]))

    async def one(n):
        config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name="localhost")
        async with connect("127.0.0.1", port, configuration=config, create_protocol=Client) as client:
            chance = random.Random(n)
            bodies = [chance.randbytes(chance.choice([0, 10, 3000, 300_000])) for _ in range(requests)]
            answers = await asyncio.gather(*(client.ask(f"/{n}/{nth}", body) for nth, body in enumerate(bodies)))
            for nth, (body, (head, got)) in enumerate(zip(bodies, answers)):
                assert head[b":status"] == b"200" and head[b"x-request"] == f"POST /{n}/{nth} HTTP/1.1".encode(), head
                assert got == body, f"{len(got)} bytes, not {len(body)}"

    await asyncio.gather(*(one(n) for n in range(connections)))


def over_quic():
    binary = example("WEIR_H3_QUIC", "weir-quic", "h3")
    server = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        asyncio.run(ask_over_quic(int(server.stdout.readline()), 4, 25))
    finally:
        server.stdin.close()
        server.wait(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=40, help="for each role (40)")
    asked = parser.parse_args()
    imported("h3", "aioquic", VERSION, "aioquic.h3.connection")
    binary = example("WEIR_H3", "weir-h3", "h3_lines")
    failed = False
    for role in (our_server, our_client):
        seed = 0
        try:
            for seed in range(asked.conversations):
                role(binary, random.Random(seed))
            print(f"PASS h3: {role.__name__}: {asked.conversations} conversations with aioquic {VERSION}")
        except Exception as e:
            failed = True
            print(f"FAIL h3: {role.__name__}, seed {seed}: {type(e).__name__}: {e}")
    try:
        over_quic()
        print(f"PASS h3: 100 requests of aioquic {VERSION} over QUIC, on 4 connections")
    except Exception as e:
        failed = True
        print(f"FAIL h3: over QUIC: {type(e).__name__}: {e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
