"""How exact a limit is that gateways keep together in a Redis: what passes, against what may, for 2 and 4 gateways. And what
the store adds to p50 and p99 where a limit is never reached."""

import shutil
import threading
import time
import urllib.request

from harness import load, rounds
from harness.process import Process, free_port
from harness.result import Result, Target

LIMIT, CONNECTIONS = 1_000, 8
# A twentieth of the burst, and the free request: what `weir check` prints.
AHEAD = LIMIT // 20 + 1
# Milliseconds that the store may add at p99.
ADDED = 1.0


# The arms that differ by the store alone.
WITHOUT, WITH = "1, without a store", "1, with a store"


def config(limit, port):
    """What a gateway's config is filled with: one route with this limit, and a Redis there, if any."""
    stores = f'stores: {{ limits: {{ redis: "redis://127.0.0.1:{port}" }} }}' if port else ""
    return {"consumers": stores, "routes": f'{{ all: {{ match: {{ path: "/*" }}, upstream: origin, filters: [ {limit} ] }} }}'}


class Limits:
    name, about = "limits", f"one limit of {LIMIT:,} a second for 2 and 4 gateways, each sent more than all of it"

    def run(self, env):
        columns = [("name", "gateways", "{}"), ("passed", "passed", "{:,}"), ("exact", "exact", "{:,}"), ("error", "error", "{:+.2%}"), ("bound", "bound", "{:+.2%}"), ("waited", "waited", "{:.2%}"), ("p50_ms", "p50 ms", "{:.2f}"), ("p99_ms", "p99 ms", "{:.2f}")]
        redis = shutil.which("redis-server")
        gateway = next((g for g in env.gateways if g.has("routes") and g.role == "subject"), None)
        if not redis or not gateway:
            return Result(self.name, self.about, columns, [], notes=["needs Weir and redis-server (scripts/ensure-tools.sh redis-server)"])
        origin, table, targets = env.answer(), [], []
        for count in (2, 4):
            store, port = self.store(env, redis, str(count))
            row = self.measure(env, gateway, origin, port, count)
            store.stop()
            table.append(row)
            targets.append(Target(f"{count} gateways: error", row["error"], row["bound"]))
        store, port = self.store(env, redis, "latency")
        rows = self.latency(env, gateway, origin, port)
        store.stop()
        for arm in rows[0]:
            table.append(dict(rounds.medians(rows, arm), name=arm))
        added = [row[WITH]["p99_ms"] - row[WITHOUT]["p99_ms"] for row in rows]
        targets.append(Target("p99 added by the store", sorted(added)[len(added) // 2], ADDED, unit=" ms"))
        return Result(self.name, self.about, columns, table, targets, rows, settings={"limit": LIMIT, "connections": CONNECTIONS})

    @staticmethod
    def store(env, redis, name):
        port = free_port()
        store = Process("redis", [redis, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], env.scratch / f"redis-{name}.log")
        store.wait_for_port(port)
        return store, port

    @staticmethod
    def latency(env, gateway, origin, port):
        """One gateway with a limit that is never reached: with a store and without, in turn."""
        instances = {}
        for arm, more in ((WITHOUT, ""), (WITH, ", store: limits")):
            limit = f"{{ rate_limit: {{ requests: 10000000, per: 1s, by: address{more} }} }}"
            instances[arm] = gateway.start("routes", env, origin, label=f"weir {arm}", **config(limit, port if more else None))

        def once(arm, warm_up):
            return load.wrk(instances[arm].port, seconds=1 if warm_up else env.seconds, connections=CONNECTIONS)

        rows = rounds.interleave(list(instances), env.rounds, once, env.say)
        for instance in instances.values():
            instance.stop()
        return rows

    def measure(self, env, gateway, origin, port, count):
        limit = f"{{ rate_limit: {{ requests: {LIMIT}, per: 1s, by: route, store: limits }} }}"
        extra = config(limit, port)
        instances = [gateway.start("routes", env, origin, label=f"weir-{count}-{n}", **extra) for n in range(count)]
        got, began = [None] * count, time.monotonic()

        def drive(n):
            got[n] = load.wrk(instances[n].port, seconds=env.seconds, connections=CONNECTIONS)

        threads = [threading.Thread(target=drive, args=(n,)) for n in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        took = time.monotonic() - began
        waited = sum(self.reading(i, "waited") for i in instances)
        for i in instances:
            i.stop()
        requests = sum(g["requests"] for g in got)
        passed = requests - sum(g["errors"] for g in got)
        exact = LIMIT + int(LIMIT * took)
        bound = count * AHEAD / exact
        return {"name": str(count), "passed": passed, "exact": exact, "error": passed / exact - 1, "bound": bound, "waited": waited / max(requests, 1)}

    @staticmethod
    def reading(instance, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{instance.admin_port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("weir_filter_reading{") and f'what="{what}"' in line)
