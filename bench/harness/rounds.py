"""Rounds: every arm once per round, in rotating order, so that disturbances affect all equally.

We report the median over rounds of ratios taken within a round. On a shared machine, absolute figures drift by a
quarter between runs, ratios of neighbors by a few percent.
"""

import statistics as st


def interleave(arms, rounds, sample, progress=print):
    """Calls `sample(arm, warm_up)` for each arm in each round and returns a list of {arm: sample}.

    Round 0 is a warm-up and is discarded: it fills the pools and the caches.
    """
    kept = []
    for r in range(rounds + 1):
        k = r % len(arms)
        row = {arm: sample(arm, r == 0) for arm in arms[k:] + arms[:k]}
        if r:
            kept.append(row)
            progress(f"  round {r}/{rounds}")
    return kept


def drop_disturbed(rows, key="rate"):
    """Sets to None each sample under half of its arm's median rate: the machine was busy elsewhere."""
    for arm in rows[0]:
        half = st.median(row[arm][key] for row in rows) / 2
        for row in rows:
            if row[arm][key] < half and not row[arm].get("errors"):
                row[arm] = None
    return rows


def medians(rows, arm):
    """The median of each of an arm's numbers over its undisturbed rounds; errors are summed."""
    samples = [row[arm] for row in rows if row[arm]]
    out = {k: st.median(s[k] for s in samples) for k in samples[0]}
    if "errors" in out:
        out["errors"] = sum(s["errors"] for s in samples)
    out["rounds"] = len(samples)
    return out


def ratio(rows, arm, others, key):
    """Median, minimum and maximum over rounds of the arm's `key`, relative to the least `key` of `others` in the same
    round.

    None if no round has all of them.
    """
    others = [o for o in others if o != arm]
    if not others:
        return None
    pairs = [row[arm][key] / min(row[o][key] for o in others) for row in rows if row[arm] and all(row.get(o) for o in others)]
    return {"median": st.median(pairs), "low": min(pairs), "high": max(pairs)} if pairs else None
