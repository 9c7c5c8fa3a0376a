"""The cost of choosing an endpoint: every balancer with 3 and with 3,000 endpoints, without a gateway."""

import os
import re
import subprocess

from harness.env import ROOT
from harness.result import Result, Target

COLUMNS = [
    ("name", "balancer", "{}"),
    ("few", "ns with 3 endpoints", "{:.1f}"),
    ("many", "ns with 3,000 endpoints", "{:.1f}"),
]


class Pick:
    name, about = "pick", "choosing one of 3 and of 3,000 endpoints, best of five runs"

    def run(self, env):
        command = ["cargo", "test", "--locked", "--release", "-p", "weir-upstream", "--lib", "--", "--nocapture", "cost_of_a_pick"]
        env.say("  building the balancers with --release")
        asked = dict(os.environ, WEIR_BENCH_PICK="1")
        out = subprocess.run(command, cwd=ROOT, env=asked, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        costs = {}
        for name, endpoints, ns in re.findall(r"\bpick (\w+) (\d+) ([\d.]+)", out):
            costs.setdefault(name, {})[int(endpoints)] = float(ns)
        table = [{"name": name, "few": cost[3], "many": cost[3000]} for name, cost in costs.items()]
        targets = [Target(f"{name}, {n:,} endpoints", costs[name][n], 50, unit=" ns") for name in ("ewma", "hash") for n in (3, 3000)]
        return Result(self.name, self.about, COLUMNS, table, targets, notes=["A pick includes drawing a key, about 2 ns."])
