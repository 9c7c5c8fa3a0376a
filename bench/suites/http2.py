"""The cost of a request by HTTP/2 over TLS, through every gateway that supports it."""

from harness import load, rounds
from harness.result import Result, Target

from .requests import sample, table_rows

COLUMNS = [
    ("name", "gateway", "{}"),
    ("rate", "requests/s", "{:.0f}"),
    ("us", "µs/request", "{:.2f}"),
    ("mean_ms", "mean ms", "{:.2f}"),
    ("max_ms", "max ms", "{:.1f}"),
    ("rss_mib", "RSS MiB", "{:.1f}"),
    ("errors", "errors", "{:d}"),
    ("vs_peer", "× best peer", "{:.3f}"),
]


class Http2:
    """h2load on each gateway in turn, in rotating order."""

    def __init__(self, name, about, *, variant, origin="answer", peer="best", target, connections=50, streams=10):
        self.name, self.about, self.variant, self.origin = name, about, variant, origin
        self.peer, self.target, self.connections, self.streams = peer, target, connections, streams

    def run(self, env):
        origin = getattr(env, self.origin)()
        chosen = [g for g in env.all_gateways if g.has(self.variant) and g.role != "floor"]
        instances = [g.start(self.variant, env, origin) for g in chosen]
        how = {"connections": self.connections, "streams": self.streams}
        if self.origin == "greeter":
            how.update(load.grpc_call(env.scratch))
        rows = rounds.interleave([i.label for i in instances], env.rounds, lambda label, warm_up: sample(next(i for i in instances if i.label == label), 1 if warm_up else env.seconds, client=load.h2load, **how), env.say)
        for i in instances:
            i.stop()
        rows = rounds.drop_disturbed(rows)
        table = table_rows(rows, instances)
        targets = []
        for row in (r for r, i in zip(table, instances) if i.role == "subject"):
            others = [i.label for i in instances if i.role == "peer" and self.peer in ("best", i.label)]
            ratio = rounds.ratio(rows, row["name"], others, "us")
            targets.append(Target(f"{row['name']} × {self.peer} peer" if self.peer == "best" else f"{row['name']} × {self.peer}", ratio and ratio["median"], self.target))
            targets.append(Target(f"{row['name']} errors", row["errors"], 0))
            targets.append(Target(f"{row['name']} slowest request", max((r[row["name"]] or {}).get("max_ms", 0) for r in rows), 1000, unit=" ms"))
        return Result(self.name, self.about, COLUMNS, table, targets, rows, settings=how)
