"""The memory of ten thousand idle connections, each silent after one request."""

from harness import load, process
from harness.result import Result, Target

COUNT = 10_000
COLUMNS = [
    ("name", "gateway", "{}"),
    ("before_mib", "RSS before MiB", "{:.1f}"),
    ("after_mib", "RSS after MiB", "{:.1f}"),
    ("growth_mib", "growth MiB", "{:.1f}"),
    ("each_kib", "KiB each", "{:.2f}"),
    ("open", "still open", "{:d}"),
]


class Idle:
    name, about = "idle-10k", "10,000 idle keep-alive connections after one request each"

    def run(self, env):
        origin = env.answer()
        table, targets = [], []
        for g in (g for g in env.gateways if g.has("plain") and g.role != "floor"):
            instance = g.start("plain", env, origin)
            load.wrk(instance.port, seconds=1, connections=64)  # so that what every run needs is allocated before we look
            before = process.rss_mib(instance.pids())
            held = load.idle_connections(instance.port, COUNT)
            after = process.rss_mib(instance.pids())
            alive = load.still_open(held)
            for s in held:
                s.close()
            instance.stop()
            env.say(f"  {g.name}: {after - before:.1f} MiB")
            table.append({"name": g.name, "before_mib": before, "after_mib": after, "growth_mib": after - before, "each_kib": (after - before) * 1024 / COUNT, "open": alive})
            if g.role == "subject":
                targets.append(Target(f"{g.name}, growth", after - before, 100, unit=" MiB"))
                targets.append(Target(f"{g.name}, still open", alive, COUNT, at_least=True))
        return Result(self.name, self.about, COLUMNS, table, targets, settings={"connections": COUNT})
