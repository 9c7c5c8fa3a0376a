"""The cost of two filters: key_auth and rate_limit on every request, with metrics read once a second, compared with
none."""

import threading

from harness import load, rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample

# Both arms send it, so that both parse the same bytes.
KEY = "x-api-key: bench-key-of-plain-length-0123456789"


class Filters:
    name, about = "filters", "key_auth + rate_limit + metrics read once a second, against without, 64 connections"

    def run(self, env):
        origin = env.answer()
        instances = {}
        for g in (g for g in env.all_gateways if g.has("filters")):
            instances[g.name] = g.start("plain" if g.has("plain") else "without", env, origin)
            instances[f"{g.name} + filters"] = g.start("filters", env, origin, label=f"{g.name} + filters")

        def once(label, warm_up):
            over = threading.Event()
            if label.endswith("filters"):
                threading.Thread(target=self.scrape, args=(instances[label].admin_port, over), daemon=True).start()
            try:
                return sample(instances[label], 1 if warm_up else env.seconds, connections=64, headers=[KEY])
            finally:
                over.set()

        if not instances:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["no gateway here has filters"])
        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for i in instances.values():
            i.stop()
        table, targets = [], []
        for label in instances:
            row = dict(rounds.medians(rows, label), name=label)
            if label.endswith("filters"):
                r = rounds.ratio(rows, label, [label.removesuffix(" + filters")], "us")
                row["vs_without"] = r and r["median"]
                if instances[label].role == "subject":
                    targets.append(Target(f"{label} × without", row["vs_without"], 1.03))
            table.append(row)
        columns = REQUEST_COLUMNS[:-2] + [("vs_without", "× without", "{:.3f}")]
        return Result(self.name, self.about, columns, table, targets, rows, settings={"connections": 64})

    @staticmethod
    def scrape(admin_port, over):
        while not over.wait(1):
            try:
                load.get(admin_port, "/metrics")
            except (OSError, RuntimeError):
                return
