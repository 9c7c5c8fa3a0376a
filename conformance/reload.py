#!/usr/bin/env python3
"""Reloads under load, with every request accounted for as in a Jepsen history.

Clients on keep-alive connections send GETs and POSTs with unique ids through weir to origins that record every id.
Meanwhile these steps repeat in turn (--steps):

  same       SIGHUP, the same config
  changed    SIGHUP, a config with a new route each time
  broken     SIGHUP, a config that does not parse
  absent     SIGHUP, no config at all
  upstream   SIGTERM to one of two origins, which closes idle connections, finishes its requests and is restarted

Afterwards each request is accounted for:

  failed     no 200, or a connection lost after the request was sent         must be 0
  lost       200 for a request the origin never saw                          must be 0
  mixed      the answer to another request                                   must be 0
  doubled    a POST seen twice                                               must be 0
  idleclose  an idle connection closed; a client may repeat, but had to      must be 0
  refused    a new connection not accepted                                   must be 0
  asleep     a connection idle for the whole run that does not answer at its end   must be 0
  raced      a POST answered 502 that no origin saw, with `upstream`: the origin closed the reused connection as the
             POST was written, and nobody may repeat it (RFC 9110 §9.2.2)    few
  tunnels    an upgraded connection that did not echo through the whole run  must be 0 (not tested with `upstream`)

By weir's own counters, each good config must have taken effect and each bad one must have been refused. The last
changed config must answer.

--gateway PORT --origin PORT --reload COMMAND tests another gateway in the same way; so does --steps upstream.
"""

import argparse
import asyncio
import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

from judge import HERE, WORK, failed, free_port, start, start_weir, verdict, wait_for_port

SLEEPERS, TUNNELS = 8, 4

counts = collections.Counter()
latencies = []


async def read_message(reader, first=b""):
    """Reads a head and a Content-Length or chunked body."""
    head = first + await reader.readuntil(b"\r\n\r\n")
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


class Origin:
    """Runs as a separate process. Records the id, waits a moment so that requests are in flight at a reload, and
    answers with the path. At SIGTERM it shuts down gracefully."""

    def __init__(self, port, ids, delay):
        self.port, self.delay = port, delay
        self.ids = os.open(ids, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.idle, self.all, self.stopping = set(), set(), asyncio.Event()

    async def run(self):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, backlog=1024)
        await self.stopping.wait()
        server.close()
        for writer in list(self.idle):
            writer.close()
        until = asyncio.get_running_loop().time() + 0.5  # for connections of which no request has come yet
        while self.all and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.005)

    async def serve(self, reader, writer):
        self.all.add(writer)
        used = False
        try:
            while not used or not self.stopping.is_set():
                if used:
                    self.idle.add(writer)
                first = await reader.readexactly(1)
                used = True
                self.idle.discard(writer)
                head, _ = await read_message(reader, first)
                method, path = head.split(b" ", 2)[:2]
                if b"\r\nupgrade: echo" in head.lower():
                    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
                    while piece := await reader.read(4096):
                        writer.write(piece)
                    return
                os.write(self.ids, method + b" " + path + b"\n")
                await asyncio.sleep(self.delay)
                close = b"Connection: close\r\n" if self.stopping.is_set() else b""
                writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (close, len(path), path))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.idle.discard(writer)
            self.all.discard(writer)
            writer.close()


class Origins:
    """The origin processes, and their records."""

    def __init__(self, ports, delay):
        self.ports, self.delay = ports, delay
        self.ids = WORK / "ids"
        self.ids.touch()
        self.children = [self.start(port) for port in ports]

    def start(self, port):
        return start(sys.executable, pathlib.Path(__file__), "--serve", port, self.ids, self.delay, name=f"origin-{port}")

    def restart(self, n):
        """Ends one with SIGTERM, waits, and starts it again."""
        k = n % len(self.ports)
        self.children[k].terminate()
        self.children[k].wait(10)
        self.children[k] = self.start(self.ports[k])
        wait_for_port(self.ports[k])

    def seen(self):
        return collections.Counter(tuple(line.split(b" ", 1)) for line in self.ids.read_bytes().splitlines())


class Client:
    """One keep-alive connection at a time, one request at a time, until `end`."""

    def __init__(self, number, port, end):
        self.number, self.port, self.end = number, port, end
        self.reader = self.writer = None
        self.used = 0
        self.answered, self.refused, self.silent = [], [], []

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
            self.refused.append((status, method, path))
        elif got != path:
            counts["mixed"] += 1
        else:
            counts["ok"] += 1
            self.answered.append((method, path))
        self.used += 1
        if b"connection: close" in head.lower():
            counts["asked to close"] += 1
            self.drop()

    def lost(self, method, path, error):
        """A reused connection that closes before any byte may be an idle close, if no origin saw the request.
        Everything else failed."""
        silent = isinstance(error, OSError) or (isinstance(error, asyncio.IncompleteReadError) and not error.partial)
        if self.used and silent and not isinstance(error, asyncio.TimeoutError):
            self.silent.append((method, path))
        else:
            counts["failed"] += 1
        counts[type(error).__name__] += 1
        self.drop()

    def drop(self):
        if self.writer:
            self.writer.close()
            self.writer = None


class Sleeper(Client):
    """One request, a sleep, and one more on the same connection."""

    async def run(self):
        try:
            await self.connected()
            await self.exchange(b"GET", b"/id/%d-first" % self.number)
            await asyncio.sleep(self.end - asyncio.get_running_loop().time())
            if self.writer:
                await self.exchange(b"GET", b"/id/%d-last" % self.number)
                self.drop()
                return
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
            pass
        counts["asleep"] += 1


async def tunnel(port, end):
    clock = asyncio.get_running_loop().time
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /tunnel HTTP/1.1\r\nHost: reload.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        i = 0
        while head.startswith(b"HTTP/1.1 101") and clock() < end:
            i += 1
            writer.write(b"%d\n" % i)
            if await asyncio.wait_for(reader.readline(), 5) != b"%d\n" % i:
                break
            counts["echoes"] += 1
            await asyncio.sleep(0.1)
        else:
            counts["tunnels"] += not head.startswith(b"HTTP/1.1 101")
            writer.close()
            return
    except (asyncio.IncompleteReadError, asyncio.TimeoutError, OSError):
        pass
    counts["tunnels"] += 1


class Steps:
    """The steps, in turn."""

    def __init__(self, names, origins):
        self.names, self.origins = names, origins
        self.good = (HERE / "reload.yaml").read_text()
        self.path = WORK / "weir.yaml"
        self.path.write_text(self.good)
        self.pid = self.last = None
        self.done = collections.Counter()

    async def next(self, n):
        name = self.names[n % len(self.names)]
        self.done[name] += 1
        if name == "upstream":
            await asyncio.to_thread(self.origins.restart, n)
        else:
            getattr(self, name)(n)
            os.kill(self.pid, signal.SIGHUP)

    def write(self, text):
        """Writes as an editor does: a new file replaces the old one."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    def same(self, _):
        self.write(self.good)

    def changed(self, n):
        self.last = n
        extra = f'  extra{n}: {{ match: {{ path: /extra/{n} }}, respond: {{ status: 200, body: "{n}" }} }}\n'
        self.write(self.good.replace("routes:\n", "routes:\n" + extra))

    def broken(self, _):
        self.write(self.good + "\nnonsense: { here: [\n")

    def absent(self, _):
        self.path.unlink(missing_ok=True)

    def account(self, port, admin):
        """Whether weir followed every step, at least: it may notice a changed file both before and after the
        signal."""
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as r:
            text = r.read().decode()
        told = {result: int(n) for result, n in re.findall(r'^weir_reloads_total\{result="(\w+)"\} (\d+)', text, re.M)}
        good, bad = self.done["same"] + self.done["changed"], self.done["broken"] + self.done["absent"]
        print(f"steps {dict(self.done)}, weir counts {told}")
        verdict(told.get("ok", 0) >= good and told.get("refused", 0) >= bad, f"reload: {good} good configs taken, {bad} bad ones refused")
        if not good:
            verdict(told.get("ok", 0) == 0, "reload: a bad config never takes effect")
        if self.last is not None and self.names == ["changed"]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/extra/{self.last}", timeout=5) as r:
                got = r.read().decode()
            verdict(got == str(self.last), "reload: the last config answers")


async def shell(command):
    p = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
    counts["reload command failed"] += await p.wait() != 0


async def main(args):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    ports = args.origin or [free_port(), free_port()]
    origins = Origins(ports, args.delay)
    for port in ports:
        await asyncio.to_thread(wait_for_port, port)
    os.environ["ORIGIN2_PORT"] = str(ports[-1])
    steps, admin = Steps(args.steps, origins), None
    if args.gateway:
        port = args.gateway
    else:
        port, admin, child = await asyncio.to_thread(start_weir, steps.path, ports[0])
        steps.pid = child.pid
    end = loop.time() + args.seconds
    clients = [Client(k, port, end) for k in range(args.clients)]
    tasks = [c.run() for c in clients + [Sleeper(args.clients + k, port, end) for k in range(SLEEPERS)]]
    if "upstream" not in args.steps:
        tasks += [tunnel(port, end) for _ in range(TUNNELS)]
    tasks = [asyncio.create_task(t) for t in tasks]
    n = 0
    while loop.time() < end - 1:
        await asyncio.sleep(args.every)
        if args.reload:
            await shell(args.reload)
        elif not args.gateway or args.steps == ["upstream"]:
            await steps.next(n)
        n += 1
    await asyncio.gather(*tasks)

    seen = origins.seen()
    for c in clients:
        counts["lost"] += sum(not seen[r] for r in c.answered)
        for status, method, path in c.refused:
            unseen = not seen[method, path]
            counts[f"status {status} {method.decode()} {'unseen' if unseen else 'seen'}"] += 1
            if "upstream" in args.steps and unseen and (status, method) == ("502", b"POST"):
                counts["raced"] += 1
                counts["failed"] -= 1
        for r in c.silent:
            counts["failed" if seen[r] else "idleclose"] += 1
    counts["doubled"] = sum(v > 1 for (method, _), v in seen.items() if method == b"POST")
    latencies.sort()
    at = lambda q: latencies[int(q * (len(latencies) - 1))] * 1000 if latencies else 0.0  # noqa: E731
    print(f"{'+'.join(args.steps)} every {args.every} s: {n} times, requests {sum(seen.values())}, p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, max {at(1):.1f} ms, {dict(counts)}")
    verdict(counts["ok"] > 0, f"reload: {counts['ok']} requests were answered")
    for what in ("failed", "lost", "mixed", "doubled", "idleclose", "refused", "asleep", "tunnels"):
        verdict(counts[what] == 0, f"reload: {what} {counts[what]}")
    if "upstream" in args.steps:
        verdict(counts["raced"] <= n, f"reload: raced {counts['raced']}, at most one for each of {n} ends of an upstream")
    if admin and args.steps != ["upstream"]:
        await asyncio.to_thread(steps.account, port, admin)
    return 1 if failed else 0


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--steps", type=lambda v: v.split(","), help="what is done in turn (default: a run of same,changed,broken,absent and one of upstream)")
    p.add_argument("--every", type=float, default=0.5, help="seconds between reloads (default 0.5)")
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--delay", type=float, default=0.02, help="seconds the origin thinks (default 0.02)")
    p.add_argument("--gateway", type=int, metavar="PORT", help="judge what listens here")
    p.add_argument("--origin", type=int, metavar="PORT", action="append", help="where an origin must listen, with --gateway; may be given twice")
    p.add_argument("--reload", metavar="COMMAND", help="how to reload it, with --gateway")
    return p.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(asyncio.run(Origin(int(sys.argv[2]), sys.argv[3], float(sys.argv[4])).run()))
    wanted = arguments()
    if wanted.steps is None and wanted.gateway is None:
        runs = [subprocess.call([sys.executable, __file__, "--steps", steps, *sys.argv[1:]]) for steps in ("same,changed,broken,absent", "upstream")]
        sys.exit(max(runs))
    wanted.steps = wanted.steps or ["same"]
    sys.exit(asyncio.run(main(wanted)))
