#!/usr/bin/env python3
"""Puts the newest results into the README, between its `cost-table` markers. usage: bench/table.py [RESULTS]"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPARED = ("h1-64", "h1-1000", "post-144", "nokeepalive", "tls13", "h2-h1", "h2-h2c", "grpc")
# Other questions of newcomers. The rest is in bench/results/.
OTHERS = ("body-1g", "idle-10k", "filters", "workers-2", "routes", "slow-1000")
NAMES = {"weir": "Weir", "nginx": "nginx", "haproxy": "HAProxy", "relay": "bare relay"}


def newest(folder):
    """The latest result of each displayed suite, by date and then by time of writing."""
    found = {}
    for path in sorted(folder.glob("*.json"), key=lambda p: (p.name[:10], p.stat().st_mtime)):
        result = json.loads(path.read_text())
        if result["suite"] in COMPARED + OTHERS:
            found[result["suite"]] = result
    return found


def table(results):
    """µs per request for the suites that compare gateways, and the targets of the others."""
    lines = ["| µs per request | " + " | ".join(NAMES.values()) + " | Weir × best peer | suite |", "|---" * (len(NAMES) + 3) + "|"]
    for suite in COMPARED:
        if suite not in results:
            continue
        rows = {r["name"]: r for r in results[suite]["rows"]}
        costs = [f"{rows[n]['us']:.1f}" if n in rows else "-" for n in NAMES]
        best = rows.get("weir", {}).get("vs_peer")
        lines.append(f"| {results[suite]['about']} | " + " | ".join(costs) + f" | {f'{best:.2f}' if best else '-'} | `{suite}` |")
    others = [(s, t) for s, r in results.items() for t in r["targets"] if s not in COMPARED]
    if others:
        lines += ["", "| also | measured | target | suite |", "|---|---|---|---|"]
    for suite, t in others:
        value = "-" if t["value"] is None else f"{t['value']:.3g}{t['unit']}" if t["value"] < 1000 else f"{t['value']:.0f}{t['unit']}"
        lines.append(f"| {t['what']} | {value} | {'≥' if t['at_least'] else '≤'} {t['bound']:g}{t['unit']} | `{suite}` |")
    return lines


def main():
    results = newest(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/results")
    if not results:
        return "no results yet: make bench"
    # If suites ran on different machines or commits, say so: only their ratios are comparable.
    runs = {}
    for suite, r in results.items():
        m = r["machine"]
        runs.setdefault(f"{m['processor']}, {m['cores']} cores, kernel {m['kernel']}, {r['date']}, commit {r['commit']}", []).append(f"`{suite}`")
    said = [f"- {', '.join(suites)}: {run}" for run, suites in sorted(runs.items())]
    lines = table(results) + ["", *said, "", "Reproduce a row: `bench/run.py --suite SUITE`."]
    readme = ROOT / "README.md"
    text, n = re.subn(r"(<!-- cost-table -->\n).*?(<!-- /cost-table -->)", lambda k: k[1] + "\n".join(lines) + "\n" + k[2], readme.read_text(), flags=re.S)
    if not n:
        return "README.md has no cost-table markers"
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
