"""A large body, down and up: throughput, cost, and memory growth meanwhile."""

import threading

from harness import load, process, rounds
from harness.result import Result, Target

GIB = 1 << 30
COLUMNS = [
    ("name", "gateway", "{}"),
    ("rate", "MiB/s", "{:.0f}"),
    ("cpu_ms", "processor ms/GiB", "{:.0f}"),
    ("growth_mib", "RSS growth MiB", "{:.1f}"),
    ("vs_nginx", "speed × nginx", "{:.3f}"),
]


class Body:
    name, about = "body-1g", "one body of 1 GiB, down and up"

    def run(self, env):
        origin = env.blob(GIB)
        instances = {g.name: g.start("plain", env, origin) for g in env.gateways if g.has("plain")}
        # Before any streaming, because growth in the warm-up counts too.
        bases = {name: process.rss_mib(i.pids()) for name, i in instances.items()}
        arms = [f"{name} {way}" for name in instances for way in ("down", "up")]
        rows = rounds.interleave(arms, env.rounds, lambda arm, _: self.once(instances, bases, arm), env.say)
        for i in instances.values():
            i.stop()
        table, targets = [], []
        for arm in arms:
            name, way = arm.split(" ")
            row = dict(rounds.medians(rows, arm), name=arm)
            row["growth_mib"] = max(r[arm]["growth_mib"] for r in rows)
            r = rounds.ratio(rows, arm, [f"nginx {way}"], "rate") if f"nginx {way}" in arms else None
            row["vs_nginx"] = r and r["median"]
            table.append(row)
            if instances[name].role == "subject":
                targets.append(Target(f"{arm}, speed × nginx", row["vs_nginx"], 1.0, at_least=True))
                targets.append(Target(f"{arm}, RSS growth", row["growth_mib"], 20, unit=" MiB"))
        return Result(self.name, self.about, COLUMNS, table, targets, rows, settings={"bytes": GIB})

    @staticmethod
    def once(instances, bases, arm):
        name, way = arm.split(" ")
        instance = instances[name]
        pids = instance.pids()
        peak = process.rss_mib(pids)
        over = threading.Event()

        def watch():
            nonlocal peak
            while not over.wait(0.02):
                peak = max(peak, process.rss_mib(pids))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        before = process.cpu_us(pids)
        size, seconds = load.download(instance.port) if way == "down" else load.upload(instance.port, GIB)
        used = process.cpu_us(pids) - before
        over.set()
        watcher.join()
        return {"rate": size / (1 << 20) / seconds, "cpu_ms": used / 1000 * GIB / size, "growth_mib": peak - bases[name]}
