"""Ten thousand routes compared with ten: the cost of a route lookup. Every route is requested, in shuffled order."""

from harness import load, rounds
from harness.result import REQUEST_COLUMNS, Result, Target
from .requests import sample

FEW, MANY = 10, 10_000


def table_of(count):
    """Routes with a literal, a capture and another literal, as in an API."""
    lines = [f'  r{i}: {{ match: {{ path: "/api/v{i % 7}/thing{i}/{{id}}/detail" }}, upstream: origin }}' for i in range(count)]
    return "{\n" + ",\n".join(lines) + "\n}"


class Routes:
    name, about = "routes", "a request among 10,000 routes against one among 10, 64 connections"

    def run(self, env):
        origin = env.answer()
        instances = {}
        for g in (g for g in env.gateways if g.has("routes")):
            for count in (FEW, MANY):
                label = f"{g.name}, {count} routes"
                instances[label] = g.start("routes", env, origin, label=f"{g.name}-{count}", routes=table_of(count), count=count), load.routes_script(env.scratch, count)
        if not instances:
            return Result(self.name, self.about, REQUEST_COLUMNS, [], notes=["no gateway here has a table of routes"])

        def once(label, warm_up):
            instance, script = instances[label]
            return sample(instance, 1 if warm_up else env.seconds, connections=64, script=script)

        rows = rounds.drop_disturbed(rounds.interleave(list(instances), env.rounds, once, env.say))
        for i, _ in instances.values():
            i.stop()
        table, targets = [], []
        for label in instances:
            row = dict(rounds.medians(rows, label), name=label)
            name, count = label.split(", ")
            if count == f"{MANY} routes":
                r = rounds.ratio(rows, label, [f"{name}, {FEW} routes"], "us")
                row["vs_few"] = r and r["median"]
                targets.append(Target(f"{name}, {MANY} routes × {FEW}", row["vs_few"], 1.05))
            table.append(row)
        columns = REQUEST_COLUMNS[:-2] + [("vs_few", f"× {FEW} routes", "{:.3f}")]
        return Result(self.name, self.about, columns, table, targets, rows, settings={"connections": 64})
