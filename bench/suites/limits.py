"""The accuracy of a shared limit, in a Redis and in a fleet without one: requests that pass, compared with the limit,
for 2 and 4 gateways. Also the latency that either store adds at p50 and p99 if a limit is never reached."""

import os
import shutil
import subprocess
import threading
import time
import urllib.request

from harness import load, rounds
from harness.gateway import Instance
from harness.process import Process, free_port
from harness.result import Result, Target

LIMIT, CONNECTIONS = 1_000, 8
# A twentieth of the burst, plus the free request: what `weir check` prints.
AHEAD = LIMIT // 20 + 1
# Milliseconds that the store may add at p99.
ADDED = 1.0
# The limit's period in seconds.
PER = 1
# Seconds until the nodes of a fleet agree on who keeps their limits.
PATIENCE = 20

# The arms that differ only in the store.
WITHOUT, WITH, WITH_FLEET = "1, without a store", "1, with a store", "1, with the fleet"

NEVER = "requests: 10000000, per: 1s, by: address"

# The config of a fleet's node: like bench/gateways/weir/weir.yaml, without the node's own keys.
BUNDLE = """
listeners: {{ web: {{ address: "127.0.0.1:${{BENCH_PORT}}", protocols: [http1] }} }}
upstreams: {{ origin: {{ endpoints: [ "127.0.0.1:{origin}" ] }} }}
stores: {{ limits: {{ fleet: {{}} }} }}
routes: {{ all: {{ match: {{ path: "/*" }}, upstream: origin, filters: [ {limit} ] }} }}
access_log: {{ output: "off" }}
shutdown: {{ drain: 1s }}
"""
NODE = """
source: {{ etcd: {{ servers: [ "http://127.0.0.1:{etcd}" ], cache: "{folder}/last-good", node: "{name}", address: 127.0.0.1 }} }}
admin: {{ address: "127.0.0.1:{admin}" }}
log: {{ level: warn }}
workers: 1
"""


def config(limit, port):
    """The values for a gateway's config: one route with this limit, and a Redis if any."""
    stores = f'stores: {{ limits: {{ redis: "redis://127.0.0.1:{port}" }} }}' if port else ""
    return {"consumers": stores, "routes": f'{{ all: {{ match: {{ path: "/*" }}, upstream: origin, filters: [ {limit} ] }} }}'}


class Redis:
    """Gateways that share a limit in a Redis."""

    def __init__(self, env, gateway, name):
        self.env, self.gateway, self.name, self.port = env, gateway, name, free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.store = Process("redis", command, env.scratch / f"redis-{name}.log")
        self.store.wait_for_port(self.port)

    def start(self, origin, limit, count):
        extra = config(f"{{ rate_limit: {{ {limit}, store: limits }} }}", self.port)
        return [self.gateway.start("routes", self.env, origin, label=f"weir-redis-{self.name}-{n}", **extra) for n in range(count)]

    def stop(self):
        self.store.stop()


class Fleet:
    """Nodes of a fleet, one of which keeps the limit: the first, because it joins first."""

    def __init__(self, env, gateway, name):
        self.env, self.folder, self.port = env, env.scratch / f"fleet-{name}", free_port()
        self.folder.mkdir()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        command = ["etcd", "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.store = Process("etcd", command, self.folder / "etcd.log")
        self.store.wait_for_port(self.port)
        self.url = client

    def start(self, origin, limit, count):
        limit = f"{{ rate_limit: {{ {limit}, store: limits }} }}"
        (self.folder / "bundle").mkdir()
        (self.folder / "bundle/weir.yaml").write_text(BUNDLE.format(origin=origin, limit=limit))
        publish = [str(self.env.weir), "fleet", "publish", str(self.folder / "bundle"), "--etcd", self.url]
        subprocess.run(publish, env=dict(os.environ, BENCH_PORT="8080"), check=True, stdout=subprocess.DEVNULL)
        nodes = []
        for n in range(count):
            nodes.append(self.node(f"n{n}", n + 1))
        # The keeper of the limits starts with an empty burst, which must first refill.
        time.sleep(PER)
        return nodes

    def node(self, name, gateways):
        port, admin, folder = free_port(), free_port(), self.folder / name
        folder.mkdir()
        (folder / "weir.yaml").write_text(NODE.format(etcd=self.port, folder=folder, name=name, admin=admin))
        command = ["env", f"BENCH_PORT={port}", str(self.env.weir), "run", "-c", str(folder / "weir.yaml")]
        process = Process(f"weir-{name}", command, folder / "log")
        process.wait_for_port(port)
        instance = Instance(f"weir-{name}", "subject", process, port, admin)
        # A node looks for the keeper of the limits when it first needs it.
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            answer.read()
        until = time.monotonic() + PATIENCE
        while metric(instance, "weir_rate_limit_store_up{") < 1 or metric(instance, "weir_rate_limit_store_gateways{") < gateways:
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not know who keeps the limits")
            time.sleep(0.05)
        return instance

    def stop(self):
        self.store.stop()


def metric(instance, begins, holds=""):
    """The sum of the samples whose line starts with `begins` and contains `holds`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{instance.admin_port}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(begins) and holds in line)


class Limits:
    name, about = "limits", f"one limit of {LIMIT:,} a second for 2 and 4 gateways, each sent more than all of it, in a Redis and in their fleet"

    def run(self, env):
        columns = [("name", "gateways", "{}"), ("passed", "passed", "{:,}"), ("exact", "exact", "{:,}"), ("error", "error", "{:+.2%}"), ("bound", "bound", "{:+.2%}"), ("waited", "waited", "{:.2%}"), ("p50_ms", "p50 ms", "{:.2f}"), ("p99_ms", "p99 ms", "{:.2f}")]
        kinds = [(kind, title) for kind, title, tool in ((Redis, "", "redis-server"), (Fleet, ", the fleet", "etcd")) if shutil.which(tool)]
        gateway = next((g for g in env.gateways if g.has("routes") and g.role == "subject"), None)
        if not kinds or not gateway:
            return Result(self.name, self.about, columns, [], notes=["needs Weir, and redis-server or etcd (scripts/ensure-tools.sh)"])
        origin, table, targets = env.answer(), [], []
        for kind, title in kinds:
            for count in (2, 4):
                store = kind(env, gateway, str(count))
                row = self.measure(env, store, origin, count)
                store.stop()
                table.append(dict(row, name=f"{count}{title}"))
                targets.append(Target(f"{count} gateways{title}: error", row["error"], row["bound"]))
        rows = self.latency(env, gateway, origin, [kind for kind, _ in kinds])
        for arm in rows[0]:
            table.append(dict(rounds.medians(rows, arm), name=arm))
        for arm in [arm for arm in rows[0] if arm != WITHOUT]:
            added = sorted(row[arm]["p99_ms"] - row[WITHOUT]["p99_ms"] for row in rows)
            targets.append(Target(f"p99 added: {arm}", added[len(added) // 2], ADDED, unit=" ms"))
        return Result(self.name, self.about, columns, table, targets, rows, settings={"limit": LIMIT, "connections": CONNECTIONS})

    @staticmethod
    def latency(env, gateway, origin, kinds):
        """A gateway with a limit that is never reached: without a store, and with each, in turn. In a fleet it is a
        node that asks another."""
        plain = gateway.start("routes", env, origin, label=f"weir {WITHOUT}", **config(f"{{ rate_limit: {{ {NEVER} }} }}", None))
        asked, running, stores = {WITHOUT: plain}, [plain], []
        for kind in kinds:
            store = kind(env, gateway, "latency")
            started = store.start(origin, NEVER, 2 if kind is Fleet else 1)
            asked[WITH_FLEET if kind is Fleet else WITH] = started[-1]
            running += started
            stores.append(store)

        def once(arm, warm_up):
            return load.wrk(asked[arm].port, seconds=1 if warm_up else env.seconds, connections=CONNECTIONS)

        rows = rounds.interleave(list(asked), env.rounds, once, env.say)
        for one in running + stores:
            one.stop()
        return rows

    @staticmethod
    def measure(env, store, origin, count):
        instances = store.start(origin, f"requests: {LIMIT}, per: 1s, by: route", count)
        got = [None] * count
        started = time.monotonic()

        def drive(n):
            got[n] = load.wrk(instances[n].port, seconds=env.seconds, connections=CONNECTIONS)

        threads = [threading.Thread(target=drive, args=(n,)) for n in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        took = time.monotonic() - started
        waited = sum(metric(i, "weir_rate_limit_store_waited_total{") for i in instances)
        for i in instances:
            i.stop()
        requests = sum(g["requests"] for g in got)
        passed = requests - sum(g["errors"] for g in got)
        exact = LIMIT + int(LIMIT * took)
        bound = count * AHEAD / exact
        return {"name": str(count), "passed": passed, "exact": exact, "error": passed / exact - 1, "bound": bound, "waited": waited / max(requests, 1)}
