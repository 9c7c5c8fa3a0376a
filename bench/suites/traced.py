"""The cost of tracing: one request in a hundred is exported to a collector, compared with none."""

from harness import rounds
from harness.process import Process, free_port
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample

# A collector that accepts everything silently.
ARMS = {"weir": "", "weir + tracing 1 %": 'tracing: {{ otlp: "http://127.0.0.1:{port}", share: 1%, protocol: http }}'}


class Tracing:
    name, about = "tracing", "tracing of 1 % of requests, against off, 64 connections, 1 KiB answer"

    def run(self, env):
        subject = next((g for g in env.gateways if g.role == "subject" and g.has("routes")), None)
        if not subject:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["only Weir is measured here"])
        port, route = free_port(), '{ all: { match: { path: "/*" }, upstream: origin } }'
        collector = Process("collector", [str(env.tools / "answer"), str(port), "0"], env.scratch / "collector.log")
        collector.wait_for_port(port)
        instances = {
            label: subject.start("routes", env, env.answer(), label=label, consumers=tracing.format(port=port), routes=route)
            for label, tracing in ARMS.items()
        }

        def once(label, warm_up):
            return sample(instances[label], 1 if warm_up else env.seconds, connections=64)

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for i in instances.values():
            i.stop()
        collector.stop()
        table = [dict(rounds.medians(rows, label), name=label) for label in instances]
        off, on = list(instances)
        r = rounds.ratio(rows, on, [off], "us")
        table[1]["vs_off"] = r and r["median"]
        targets = [Target("tracing at 1 % × off", table[1]["vs_off"], 1.02)]
        columns = REQUEST_COLUMNS[:-2] + [("vs_off", "× off", "{:.3f}")]
        return Result(self.name, self.about, columns, table, targets, rows, settings={"connections": 64, "share": "1%"})
