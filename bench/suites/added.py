"""Each arm's cost beyond the arm `none`: the difference within each round, so that a round's disturbance affects
both."""

import statistics as st

from harness import rounds
from harness.result import REQUEST_COLUMNS

COLUMNS = REQUEST_COLUMNS[:-2] + [("added", "µs added", "{:.2f}"), ("low", "least", "{:.2f}"), ("high", "most", "{:.2f}")]


def table(rows, arms):
    """A row per arm; arms measured together with `none` have their added cost, with minimum and maximum."""
    out = []
    for arm in arms:
        row = dict(rounds.medians(rows, arm), name=arm)
        added = [r[arm]["us"] - r["none"]["us"] for r in rows if r[arm] and r["none"]]
        if arm != "none" and added:
            row["added"], row["low"], row["high"] = st.median(added), min(added), max(added)
        out.append(row)
    return out
