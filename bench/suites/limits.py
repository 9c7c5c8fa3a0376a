"""How exact a limit is that gateways keep together in a Redis: what passes, against what may, for 2 and 4 gateways."""

import shutil
import threading
import time
import urllib.request

from harness import load
from harness.process import Process, free_port
from harness.result import Result, Target

LIMIT, CONNECTIONS = 1_000, 8
# A twentieth of the burst, and the free request: what `weir check` prints.
AHEAD = LIMIT // 20 + 1


class Limits:
    name, about = "limits", f"one limit of {LIMIT:,} a second for 2 and 4 gateways, each sent more than all of it"

    def run(self, env):
        columns = [("name", "gateways", "{}"), ("passed", "passed", "{:,}"), ("exact", "exact", "{:,}"), ("error", "error", "{:+.2%}"), ("bound", "bound", "{:+.2%}"), ("waited", "waited", "{:.2%}")]
        redis = shutil.which("redis-server")
        gateway = next((g for g in env.gateways if g.has("routes") and g.role == "subject"), None)
        if not redis or not gateway:
            return Result(self.name, self.about, columns, [], notes=["needs Weir and redis-server (scripts/ensure-tools.sh redis-server)"])
        origin, table, targets = env.answer(), [], []
        for count in (2, 4):
            port = free_port()
            store = Process("redis", [redis, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], env.scratch / f"redis-{count}.log")
            store.wait_for_port(port)
            row = self.measure(env, gateway, origin, port, count)
            store.stop()
            table.append(row)
            targets.append(Target(f"{count} gateways: error", row["error"], row["bound"]))
        return Result(self.name, self.about, columns, table, targets, settings={"limit": LIMIT, "connections": CONNECTIONS})

    def measure(self, env, gateway, origin, port, count):
        limit = f"{{ rate_limit: {{ requests: {LIMIT}, per: 1s, by: route, store: limits }} }}"
        extra = {
            "consumers": f'stores: {{ limits: {{ redis: "redis://127.0.0.1:{port}" }} }}',
            "routes": f'{{ all: {{ match: {{ path: "/*" }}, upstream: origin, filters: [ {limit} ] }} }}',
        }
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
