#!/usr/bin/env python3
"""The plain origin of the conformance runs: asyncio, keep-alive, counts its requests.

    GET|POST /...     200, 4 KiB body with Content-Length; a request body is read and discarded
    GET /chunked      the same, chunked
    GET /close        the same, ended by closing the connection
    GET /big          8 MiB, more than sockets hold
    GET /seen/ID      how many requests with `x-id: ID` have arrived

usage: origin.py PORT
"""

import asyncio
import collections
import socket
import sys

BODY = b"x" * 4096
BIG = BODY * 16, 128  # a piece, and how many
seen = collections.Counter()


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
            if "content-length" in fields:
                await reader.readexactly(int(fields["content-length"]))
            if "x-id" in fields:
                seen[fields["x-id"]] += 1
            if path == "/big":
                # The kernel would buffer megabytes of each. Filling hundreds of such buffers would delay all other
                # connections.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(BIG[0]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(BIG[0]) * BIG[1]))
                for _ in range(BIG[1]):
                    writer.write(BIG[0])
                    await writer.drain()
                continue
            writer.write(answer(path))
            await writer.drain()
            if path == "/close":
                return
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


def answer(path):
    if path == "/chunked":
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    if path == "/close":
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY
    body = str(seen[path[6:]]).encode() if path.startswith("/seen/") else BODY
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
