"""Slow clients: does a crowd that sends a byte now and then delay the others?"""

import signal
import time

from harness import process, rounds
from harness.result import Result, Target
from .requests import sample

SLOW, INTERVAL_MS, CONNECTIONS = 1000, 500, 16
COLUMNS = [
    ("name", "gateway", "{}"),
    ("rate", "requests/s", "{:.0f}"),
    ("us", "µs/request", "{:.2f}"),
    ("p50_ms", "p50 ms", "{:.3f}"),
    ("p99_ms", "p99 ms", "{:.3f}"),
    ("errors", "errors", "{:d}"),
    ("vs_without", "p99 × without", "{:.3f}"),
]


class Slow:
    name, about = "slow-1000", "p99 of 16 ordinary connections, with and without 1,000 slow ones beside them"

    def run(self, env):
        origin = env.answer()
        instances = {g.name: g.start("plain", env, origin) for g in env.gateways if g.has("plain") and g.role != "floor"}
        arms = [f"{n}{with_}" for n in instances for with_ in ("", " + slow")]

        def once(arm, warm_up):
            instance = instances[arm.removesuffix(" + slow")]
            crowd = None
            if arm.endswith("+ slow"):
                crowd = process.Process("dribble", [str(env.tools / "dribble"), str(instance.port), str(SLOW), str(INTERVAL_MS)], env.scratch / "dribble.log")
                self.wait_until_open(env.scratch / "dribble.log")
            try:
                return sample(instance, 1 if warm_up else env.seconds, connections=CONNECTIONS)
            finally:
                if crowd:
                    crowd.child.send_signal(signal.SIGTERM)
                    crowd.child.wait(5)
                    crowd.stop()

        rows = rounds.drop_disturbed(rounds.interleave(arms, env.rounds, once, env.say))
        for i in instances.values():
            i.stop()
        table, targets = [], []
        for arm in arms:
            row = dict(rounds.medians(rows, arm), name=arm)
            if arm.endswith("+ slow"):
                name = arm.removesuffix(" + slow")
                r = rounds.ratio(rows, arm, [name], "p99_ms")
                row["vs_without"] = r and r["median"]
                if instances[name].role == "subject":
                    targets.append(Target(f"{name}, p99 × without", row["vs_without"], 1.2))
            table.append(row)
        return Result(self.name, self.about, COLUMNS, table, targets, rows, settings={"slow": SLOW, "interval_ms": INTERVAL_MS, "connections": CONNECTIONS})

    @staticmethod
    def wait_until_open(log, seconds=10):
        until = time.monotonic() + seconds
        while "open" not in log.read_text():
            if time.monotonic() > until:
                raise RuntimeError("the slow clients could not all connect")
            time.sleep(0.02)
