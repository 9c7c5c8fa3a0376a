#!/usr/bin/env python3
"""10,000 streams of a gRPC service over REST, gRPC-Web and Connect, with slow readers: each takes a little now and
then, of far more than it ever reads.

They may use a bounded amount of memory, and ordinary calls must be answered throughout. Half of those calls go to the
service that also fills 10,000 windows, and wait for it. The others go to a separate service, so their duration
depends only on weir. Both durations are printed, with the processor time of each process.

usage: grpc_slow.py [STREAMS]
"""

import base64
import http.client
import json
import os
import pathlib
import resource
import selectors
import socket
import struct
import sys
import time

from judge import HERE, WORK, failed, free_port, start, start_weir, verdict, wait_for_port, weir_bin

# Memory that one stream may cost weir: its two connections, and one piece of the body.
STREAM_KIB = 96
NAME = "x" * 500
REPLIES = 100_000  # 50 MB of each stream
# How long the streams read once all are open, in seconds.
READING = 20
PROTO = """syntax = "proto3";
package helloworld.v1;
import "google/api/annotations.proto";
service Greeter {
  rpc SayHello(HelloRequest) returns (HelloReply) { option (google.api.http) = { get: "/v1/hello/{name}" }; }
  rpc LotsOfReplies(HelloRequest) returns (stream HelloReply) { option (google.api.http) = { get: "/v1/replies/{name}" }; }
}
message HelloRequest { string name = 1; uint32 code = 2; uint32 delay_ms = 3; uint32 replies = 4; }
message HelloReply { string message = 1; repeated string metadata = 2; }
"""


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def requests():
    message = b"\x0a" + varint(len(NAME)) + NAME.encode() + b"\x20" + varint(REPLIES)
    framed = b"\0" + struct.pack(">I", len(message)) + message
    asked = json.dumps({"name": NAME, "replies": REPLIES}).encode()
    path = "/helloworld.v1.Greeter/LotsOfReplies"

    def post(media, body):
        return f"POST {path} HTTP/1.1\r\nHost: slow.test\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    return [
        f"GET /v1/replies/{NAME}?replies={REPLIES} HTTP/1.1\r\nHost: slow.test\r\n\r\n".encode(),
        f"GET /v1/replies/{NAME}?replies={REPLIES} HTTP/1.1\r\nHost: slow.test\r\nAccept: text/event-stream\r\n\r\n".encode(),
        post("application/grpc-web+proto", framed),
        post("application/grpc-web-text", base64.b64encode(framed)),
        post("application/connect+proto", framed),
        post("application/connect+json", b"\0" + struct.pack(">I", len(asked)) + asked),
    ]


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def processor_seconds(child):
    """A process's processor time."""
    fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ordinary(port, host="slow.test"):
    """The duration of an ordinary call, in seconds; None if the answer is wrong."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/v1/hello/Ann", headers={"Host": host})
        answer = connection.getresponse()
        good = answer.status == 200 and json.load(answer) == {"message": "hello Ann"}
    except OSError:
        good = False
    finally:
        connection.close()
    return time.monotonic() - began if good else None


def main():
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    possible = hard - 1000  # weir has as many, and its connections to the service
    if possible < streams:
        print(f"{possible} streams, not {streams}: no more descriptors may be open here", flush=True)
        streams = possible
    origin, other = free_port(), free_port()
    service = start(weir_bin(), "origin", "--http", f"127.0.0.1:{origin}", name="origin")
    start(weir_bin(), "origin", "--http", f"127.0.0.1:{other}", name="other")
    wait_for_port(origin)
    wait_for_port(other)
    os.environ["OTHER_PORT"] = str(other)
    proto = WORK / "greeter.proto"
    proto.write_text(PROTO)
    os.environ["PROTO"] = str(proto)
    port, _, weir = start_weir(HERE / "grpc_slow.yaml", origin)
    verdict(ordinary(port) is not None, "grpc_slow: an ordinary call is answered")
    before, ways = rss_kib(weir.pid), requests()
    readers, begun = selectors.DefaultSelector(), [False] * streams
    answered, calls, lost = 0, 0, 0
    slowest = {"slow.test": 0.0, "own.test": 0.0}

    def take_a_little():
        """Reads 64 bytes of every stream that has data. A reader that takes nothing for a minute is cut, as
        intended."""
        ended = 0
        for key, _ in readers.select(0):
            try:
                piece = key.fileobj.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                piece = b""
            if not piece:
                ended += 1
                readers.unregister(key.fileobj)
            elif not begun[key.data]:
                begun[key.data] = piece.startswith(b"HTTP/1.1 200")
        return ended

    def call():
        """One call to each service; returns how many were answered."""
        good = 0
        for host in slowest:
            took = ordinary(port, host)
            good += took is not None
            slowest[host] = max(slowest[host], took or 20)
        return good

    opened = []
    for n in range(streams):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what waits, waits at weir
        s.connect(("127.0.0.1", port))
        s.sendall(ways[n % len(ways)])
        s.setblocking(False)
        opened.append(s)
        readers.register(s, selectors.EVENT_READ, n)
        if n % 500 == 499:
            lost += take_a_little()
            calls, answered = calls + 2, answered + call()
    until = time.monotonic() + READING
    while time.monotonic() < until:
        round_ends = time.monotonic() + 1
        lost += take_a_little()
        calls, answered = calls + 2, answered + call()
        time.sleep(max(0, round_ends - time.monotonic()))
    cost = (rss_kib(weir.pid) - before) / streams
    verdict(sum(begun) == streams, f"grpc_slow: all of {streams} streams have begun ({sum(begun)})")
    verdict(lost == 0, f"grpc_slow: none of them ended ({lost})")
    took = f"the slowest in {slowest['own.test']:.2f} s, at the service of the streams in {slowest['slow.test']:.2f} s"
    verdict(answered == calls, f"grpc_slow: ordinary calls beside them are answered ({answered} of {calls}, {took})")
    print(f"processor time: weir {processor_seconds(weir):.1f} s, the service {processor_seconds(service):.1f} s", flush=True)
    verdict(cost < STREAM_KIB, f"grpc_slow: a stream costs {cost:.0f} KiB, at most {STREAM_KIB}")
    for s in opened:
        s.close()
    verdict(ordinary(port) is not None, "grpc_slow: an ordinary call is answered when they are gone")
    sys.exit(1 if failed else 0)


main()
