"""Small requests through every gateway: the cost of one request."""

import subprocess
import sys

from harness import load, process, rounds
from harness.result import REQUEST_COLUMNS, Result, Target


def sample(instance, seconds, client=load.wrk, **how):
    """One client run on one gateway, with the processor time of the gateway's processes."""
    pids = instance.pids()
    before = process.cpu_us(pids)
    try:
        got = client(instance.port, seconds=seconds, **how)
    except subprocess.TimeoutExpired as e:
        # h2load waits forever for a connection that was not established in time.
        sys.exit(f"{instance.label}: the client did not end, on a machine that is too busy? {e}")
    used = process.cpu_us(pids) - before
    return dict(got, us=used / max(got["requests"], 1), rss_mib=process.rss_mib(pids))


def table_rows(rows, instances):
    """Medians per instance, with its ratios to the floor and to the better peer of the same round."""
    peers = [i.label for i in instances if i.role == "peer"]
    floors = [i.label for i in instances if i.role == "floor"]
    out = []
    for i in instances:
        row = dict(rounds.medians(rows, i.label), name=i.label)
        for key, others in (("vs_floor", floors), ("vs_peer", peers)):
            r = rounds.ratio(rows, i.label, others, "us") if i.label not in floors else None
            row[key] = r and r["median"]
            row[key + "_range"] = r and [r["low"], r["high"]]
        out.append(row)
    return out


class Requests:
    """wrk on each gateway in turn, in rotating order.

    `floor` says whether the relay takes part, or names its variant if that is another one.
    """

    def __init__(self, name, about, *, connections, variant="plain", headers=(), post=0, floor=True, others=False, peer_target=None, floor_target=None):
        self.name, self.about, self.connections, self.variant = name, about, connections, variant
        self.headers, self.post, self.others = headers, post, others
        self.floor = variant if floor is True else floor
        self.peer_target, self.floor_target = peer_target, floor_target

    def run(self, env):
        origin = env.answer()
        variants = [(g, self.floor if g.role == "floor" else self.variant) for g in (env.all_gateways if self.others else env.gateways)]
        instances = [g.start(variant, env, origin) for g, variant in variants if variant and g.has(variant)]
        how = {
            "connections": self.connections,
            "scheme": "https" if self.variant == "tls" else "http",
            "headers": self.headers,
            "script": load.post_script(env.scratch, self.post) if self.post else None,
        }
        rows = rounds.interleave(
            [i.label for i in instances],
            env.rounds,
            lambda label, warm_up: sample(next(i for i in instances if i.label == label), 1 if warm_up else env.seconds, **how),
            env.say,
        )
        for i in instances:
            i.stop()
        rows = rounds.drop_disturbed(rows)
        table = table_rows(rows, instances)
        targets = []
        for row in (r for r, i in zip(table, instances) if i.role == "subject"):
            if self.peer_target:
                targets.append(Target(f"{row['name']} × best peer", row["vs_peer"], self.peer_target))
            if self.floor_target:
                targets.append(Target(f"{row['name']} × relay", row["vs_floor"], self.floor_target))
        return Result(self.name, self.about, REQUEST_COLUMNS, table, targets, rows, settings={"connections": self.connections, "headers": list(self.headers), "post": self.post, "tls": self.variant == "tls"})
