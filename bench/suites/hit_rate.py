"""The hit rate over a million requests, with our policy and with the crate moka. Counted, not timed; no gateway
runs."""

import subprocess

from harness.env import ROOT
from harness.result import Result, Target

COLUMNS = [
    ("name", "room for", "{}"),
    ("ours", "hits %", "{:.2f}"),
    ("moka", "moka's hits %", "{:.2f}"),
    ("more", "more", "{:+.2f}"),
]


class HitRate:
    name, about = "hit-rate", "hits of 1,000,000 requests over 100,000 objects, spread by Zipf's law with a scan among them"

    def run(self, env):
        command = ["cargo", "run", "--quiet", "--locked", "--release", "-p", "weir-cache", "--example", "hit_rate"]
        out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        table, targets = [], []
        for line in out.splitlines():
            room, ours, moka, requests = map(int, line.split())
            row = {"name": f"{room:,} objects", "ours": 100 * ours / requests, "moka": 100 * moka / requests}
            row["more"] = row["ours"] - row["moka"]
            table.append(row)
            targets.append(Target(f"{row['name']}: points more than moka", row["more"], -1, at_least=True))
        return Result(self.name, self.about, COLUMNS, table, targets, table)
