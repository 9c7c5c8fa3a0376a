#!/usr/bin/env python3
"""Reloads under load, every request accounted for in the manner of a Jepsen history.

Clients on keep-alive connections send GETs and POSTs with ids of their own through weir to an origin that writes every id
down, while weir is told to reload, again and again: the same config, a changed one, a broken one, none at all. Afterwards

  failed     no 200, or a connection lost after the request was sent         must be 0
  lost       200 for a request the origin never saw                          must be 0
  mixed      the answer of somebody else                                     must be 0
  doubled    a POST seen twice                                               must be 0
  idleclose  an idle connection closed; a client may repeat, but had to      must be 0
  refused    a new connection not accepted                                   must be 0

Another gateway is judged in the same way with --gateway PORT --origin PORT --reload COMMAND.
"""

import argparse
import asyncio
import collections
import os
import shutil
import signal
import sys

from judge import HERE, WORK, failed, free_port, start_weir, verdict

seen = collections.Counter()
counts = collections.Counter()
latencies = []


async def read_message(reader):
    """A head and a Content-Length or chunked body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n")[1:]:
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if line.startswith(b"transfer-encoding:") and b"chunked" in line:
            return head, await read_chunks(reader)
    return head, (await reader.readexactly(length) if length else b"")


async def read_chunks(reader):
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).strip(), 16)
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            return body
        body += chunk[:-2]


async def origin(reader, writer, delay):
    """Writes the id down, thinks for a moment so that requests are in flight at a reload, answers with the path."""
    try:
        while True:
            head, _ = await read_message(reader)
            method, path = head.split(b" ", 2)[:2]
            seen[method, path] += 1
            await asyncio.sleep(delay)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


class Client:
    """One keep-alive connection at a time, one request at a time, until `end`."""

    def __init__(self, number, port, end):
        self.number, self.port, self.end = number, port, end
        self.reader = self.writer = None
        self.used = 0

    async def run(self):
        clock = asyncio.get_running_loop().time
        i = 0
        while clock() < self.end:
            i += 1
            method = b"POST" if (i + self.number) % 2 else b"GET"
            path = b"/id/%d-%d" % (self.number, i)
            if not await self.connected():
                continue
            started = clock()
            try:
                await self.exchange(method, path)
                latencies.append(clock() - started)
            except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError) as e:
                self.lost(method, path, e)
        self.drop()

    async def connected(self):
        if self.writer:
            return True
        try:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
            self.used = 0
            return True
        except OSError:
            counts["refused"] += 1
            await asyncio.sleep(0.05)
            return False

    async def exchange(self, method, path):
        body = b"b" * 512 if method == b"POST" else b""
        length = b"Content-Length: 512\r\n" if body else b""
        self.writer.write(method + b" " + path + b" HTTP/1.1\r\nHost: reload.test\r\n" + length + b"\r\n" + body)
        await self.writer.drain()
        head, got = await asyncio.wait_for(read_message(self.reader), 10)
        status = head[9:12].decode()
        if status != "200":
            counts["failed"] += 1
            counts[f"status {status}"] += 1
        elif got != path:
            counts["mixed"] += 1
        elif not seen[method, path]:
            counts["lost"] += 1
        else:
            counts["ok"] += 1
        self.used += 1
        if b"connection: close" in head.lower():
            counts["asked to close"] += 1
            self.drop()

    def lost(self, method, path, error):
        """A reused connection that closes before any byte, on a request nobody saw, is an idle close; all else failed."""
        silent = isinstance(error, OSError) or (isinstance(error, asyncio.IncompleteReadError) and not error.partial)
        idle = self.used and silent and not isinstance(error, asyncio.TimeoutError) and not seen[method, path]
        counts["idleclose" if idle else "failed"] += 1
        counts[type(error).__name__] += 1
        self.drop()

    def drop(self):
        if self.writer:
            self.writer.close()
            self.writer = None


class Reloads:
    """What is done to weir, in turn: each step writes the config and sends SIGHUP."""

    def __init__(self, pid):
        self.pid = pid
        self.good = (HERE / "reload.yaml").read_text()
        self.path = WORK / "weir.yaml"
        self.steps = [self.same, self.changed, self.broken, self.absent]
        self.path.write_text(self.good)

    def next(self, n):
        self.steps[n % len(self.steps)](n)
        os.kill(self.pid, signal.SIGHUP)

    def same(self, _):
        self.path.write_text(self.good)

    def changed(self, n):
        extra = f'  extra{n}: {{ match: {{ path: /extra/{n} }}, respond: {{ status: 200, body: "{n}" }} }}\n'
        self.path.write_text(self.good.replace("routes:\n", "routes:\n" + extra))

    def broken(self, _):
        self.path.write_text(self.good + "\nnonsense: { here: [\n")

    def absent(self, _):
        self.path.unlink(missing_ok=True)


async def shell(command):
    p = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    counts["reload command failed"] += await p.wait() != 0


async def main(args):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    origin_port = args.origin or free_port()
    server = await asyncio.start_server(lambda r, w: origin(r, w, args.delay), "127.0.0.1", origin_port, backlog=1024)
    if args.gateway:
        port, reloads = args.gateway, None
    else:
        shutil.copy(HERE / "reload.yaml", WORK / "weir.yaml")
        port, _, child = await asyncio.to_thread(start_weir, WORK / "weir.yaml", origin_port)
        reloads = Reloads(child.pid)
    end = loop.time() + args.seconds
    clients = [asyncio.create_task(Client(k, port, end).run()) for k in range(args.clients)]
    n = 0
    while loop.time() < end - 1:
        await asyncio.sleep(args.every)
        if reloads:
            reloads.next(n)
        elif args.reload:
            await shell(args.reload)
        n += 1
    await asyncio.gather(*clients)
    server.close()

    counts["doubled"] = sum(v > 1 for (method, _), v in seen.items() if method == b"POST")
    latencies.sort()
    at = lambda q: latencies[int(q * (len(latencies) - 1))] * 1000 if latencies else 0.0  # noqa: E731
    print(f"reloads {n}, requests {sum(seen.values())}, p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, max {at(1):.1f} ms, {dict(counts)}")
    verdict(counts["ok"] > 0, f"reload: {counts['ok']} requests were answered")
    for what in ("failed", "lost", "mixed", "doubled", "idleclose", "refused"):
        verdict(counts[what] == 0, f"reload: {what} {counts[what]}")
    return 1 if failed else 0


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--every", type=float, default=0.5, help="seconds between reloads (default 0.5)")
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--delay", type=float, default=0.02, help="seconds the origin thinks (default 0.02)")
    p.add_argument("--gateway", type=int, metavar="PORT", help="judge what listens here")
    p.add_argument("--origin", type=int, metavar="PORT", help="where the origin must listen, with --gateway")
    p.add_argument("--reload", metavar="COMMAND", help="how to reload it, with --gateway")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
