#!/usr/bin/env python3
"""Limits in a Redis cluster of three nodes: while a slot moves (ASK, then MOVED), and while a node is gone.

Two gateways share 60 requests a day. Whatever the cluster does, no request fails, and their total stays within the
bound of docs/guide/limits.md.
"""

import http.client
import os
import shutil
import subprocess
import sys
import time

from judge import HERE, ROOT, WORK, failed, free_port, start, start_weir, verdict, wait_for_port

REQUESTS, LEASE, GATEWAYS = 60, 3, 2
SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


class Node:
    def __init__(self, number):
        self.folder = WORK / f"node-{number}"
        self.folder.mkdir()
        self.port, self.bus = free_port(), free_port()
        self.child = None
        self.start()

    def start(self):
        options = {
            "--port": self.port, "--bind": "127.0.0.1", "--save": "", "--appendonly": "no", "--dir": self.folder, "--cluster-enabled": "yes",
            "--cluster-port": self.bus, "--cluster-node-timeout": 1000, "--cluster-require-full-coverage": "no",
        }
        self.child = start("redis-server", *(word for pair in options.items() for word in pair), name=f"redis-{self.port}")
        wait_for_port(self.port)

    def kill(self):
        self.child.kill()
        self.child.wait(10)

    def ask(self, *words):
        command = ["redis-cli", "--raw", "-p", str(self.port), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.strip()

    def is_well(self):
        told = self.ask("CLUSTER", "INFO")
        return all(f"cluster_{it}" in told for it in ("known_nodes:3", "slots_ok:16384", "state:ok"))


def eventually(what, holds, seconds=30):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            sys.exit(f"redis_cluster: not within {seconds} s: {what}")
        time.sleep(0.05)


def owner(nodes, route="few"):
    """The node with the key of a route's limit, and the key."""
    for node in nodes:
        for key in node.ask("KEYS", f"judge:routes.{route}:*").split():
            return node, key
    return None, None


class Gateway:
    def __init__(self, nodes):
        for name, node in zip(("FIRST", "SECOND", "THIRD"), nodes):
            os.environ[name] = f"redis://127.0.0.1:{node.port}"
        port, self.admin, _ = start_weir(HERE / "redis_cluster.yaml", 1)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def ask(self, path="/few"):
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        answer.read()
        return answer.status

    def reading(self, what, route="few"):
        told = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        told.request("GET", "/metrics")
        lines = told.getresponse().read().decode().splitlines()
        return next(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"weir_rate_limit_{what}{{", f"weir_rate_limit_{what}_total{{")) and route in line)


def main():
    subprocess.run([ROOT / "scripts/ensure-tools.sh", "redis-server"], check=True, stdin=subprocess.DEVNULL)
    if not shutil.which("redis-cli"):
        sys.exit("redis_cluster: redis-cli is missing (Debian: redis-tools)")
    nodes = [Node(number) for number in range(3)]
    for number, (node, (first, last)) in enumerate(zip(nodes, SLOTS)):
        node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for node in nodes[1:]:
        nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
    eventually("the nodes are a cluster", lambda: all(node.is_well() for node in nodes))
    gateways = [Gateway(nodes), Gateway(nodes[2:] + nodes[:2])]
    passed = lambda times: sum(gateway.ask() == 200 for _ in range(times) for gateway in gateways)

    # === a slot that moves
    total = passed(5)
    source, key = owner(nodes)
    target = nodes[(nodes.index(source) + 1) % 3]
    slot, ids = source.ask("CLUSTER", "KEYSLOT", key), {node: node.ask("CLUSTER", "MYID") for node in nodes}
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    total += passed(5)
    source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    total += passed(5)
    verdict(owner(nodes)[0] is target, "redis_cluster: the key has moved, and is not made anew where it was (ASK)")
    for node in (target, source, nodes[(nodes.index(source) + 2) % 3]):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    total += passed(5)
    verdict(total == 40, f"redis_cluster: {total} of 40 requests pass while a slot moves")
    without = [gateway.reading("without_store") for gateway in gateways]
    verdict(without == [0, 0], f"redis_cluster: all of them counted in the store: {without} were not")
    total += passed(40)
    most = REQUESTS + GATEWAYS * (1 + LEASE)
    verdict(REQUESTS - 10 <= total <= most, f"redis_cluster: {total} pass in all (expected {REQUESTS - 10} to {most})")

    # === a node that is gone
    for gateway in gateways * 5:
        gateway.ask("/many")
    gone, _ = owner(nodes, "many")
    gone.kill()
    began = time.monotonic()
    statuses = [gateway.ask("/many") for _ in range(50) for gateway in gateways]
    took = time.monotonic() - began
    verdict(set(statuses) == {200} and took < 30, f"redis_cluster: with a node gone, 100 requests pass in {took:.1f} s: {sorted(set(statuses))}")
    without = sum(gateway.reading("without_store", "many") for gateway in gateways)
    verdict(without > 0, f"redis_cluster: {without} of them were counted without the store")
    gone.start()
    eventually("the node is back", lambda: all(node.is_well() for node in nodes))
    began = time.monotonic()
    eventually("the limit is kept there again", lambda: {gateway.ask("/many") for gateway in gateways} == {200} and owner(nodes, "many")[0] is gone)
    eventually("the gateways use it", lambda: all(gateway.reading("store_up", "many") == 1 for gateway in gateways))
    verdict(True, f"redis_cluster: back, and empty, it is used again after {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
