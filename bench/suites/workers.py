"""Two workers against one: does a request cost more when cores share the work?"""

from harness import rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample


class Workers:
    name, about = "workers-2", "two workers against one, 64 connections"

    def run(self, env):
        origin = env.answer()
        instances = {}
        for g in (g for g in env.gateways if g.has("plain") and g.role != "floor"):
            for n in (1, 2):
                label = f"{g.name} {n}"
                instances[label] = g.start("plain", env, origin, label=label, workers=n)
        rows = rounds.interleave(list(instances), env.rounds, lambda label, warm_up: sample(instances[label], 1 if warm_up else env.seconds, connections=64), env.say)
        for i in instances.values():
            i.stop()
        rows = rounds.drop_disturbed(rows)
        table, targets = [], []
        for label, instance in instances.items():
            name, n = label.rsplit(" ", 1)
            row = dict(rounds.medians(rows, label), name=f"{name}, {n} worker{'s' if n == '2' else ''}")
            if n == "2":
                r = rounds.ratio(rows, label, [f"{name} 1"], "us")
                row["vs_one"] = r and r["median"]
                if instance.role == "subject":
                    targets.append(Target(f"{name}, two workers × one", row["vs_one"], 1.11))
            table.append(row)
        columns = REQUEST_COLUMNS[:-2] + [("vs_one", "× one worker", "{:.3f}")]
        return Result(self.name, self.about, columns, table, targets, rows, settings={"connections": 64})
