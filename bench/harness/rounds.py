"""Rounds: every arm once per round, in an order that rotates, so that what disturbs the machine disturbs all alike.

Ratios are taken within a round and their median over the rounds is what we report: absolute figures drift by a quarter
between runs on a shared machine, ratios of neighbours by a few percent.
"""

import statistics as st


def interleave(arms, rounds, sample, progress=print):
    """Calls `sample(arm, warm_up)` for each arm in each round and returns a list of {arm: sample}.

    Round 0 is a warm-up and is not kept: it fills the pools and the caches.
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
    """Sets to None each sample under half of its arm's own median rate: the machine was busy elsewhere."""
    for arm in rows[0]:
        half = st.median(row[arm][key] for row in rows) / 2
        for row in rows:
            if row[arm][key] < half and not row[arm].get("errors"):
                row[arm] = None
    return rows


def medians(rows, arm):
    """The median of each number of an arm over its undisturbed rounds; errors are added up."""
    samples = [row[arm] for row in rows if row[arm]]
    out = {k: st.median(s[k] for s in samples) for k in samples[0]}
    if "errors" in out:
        out["errors"] = sum(s["errors"] for s in samples)
    out["rounds"] = len(samples)
    return out


def ratio(rows, arm, others, key):
    """Median, lowest and highest over rounds of the arm's `key` over the least `key` of `others` in the same round.

    None when no round holds all of them.
    """
    others = [o for o in others if o != arm]
    if not others:
        return None
    pairs = [row[arm][key] / min(row[o][key] for o in others) for row in rows if row[arm] and all(row.get(o) for o in others)]
    return {"median": st.median(pairs), "low": min(pairs), "high": max(pairs)} if pairs else None
