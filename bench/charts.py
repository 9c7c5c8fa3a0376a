#!/usr/bin/env python3
"""Draws the charts of docs/explain/benchmarks.md from the committed results, and writes that page's tables.

    bench/charts.py            writes docs/images/bench-*.svg and the generated parts of the page
    bench/charts.py --check    exits with 1 if a file differs from what the results give (a test does this)

The newest result of each suite counts, by its date. No figure on the page or in a chart is written by hand.
"""

import functools
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True

from harness import rounds, svg  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
IMAGES = ROOT / "docs/images"
PAGE = ROOT / "docs/explain/benchmarks.md"
NAMES = {
    "caddy": "Caddy", "envoy": "Envoy", "haproxy": "HAProxy", "nginx": "nginx", "nginx-lua": "nginx with Lua", "nginx-new": "nginx",
    "relay": "bare relay", "traefik": "Traefik", "weir": "Weir",
}  # fmt: skip
# Another program has to be this much better before the page says that Weir loses: less is noise.
NOISE = 0.03
ONE = ("h1-64", "h1-1000", "post-144", "nokeepalive", "tls13")
TWO = ("h2-h1", "h2-h2c", "grpc")
# Judged by targets of their own.
REST = ("filters", "slow-1000", "routes", "workers-2", "idle-10k", "body-1g", "cache-hit", "style-sheet", "cache-variant", "tracing")
LABELS = {
    "h1-64": "HTTP/1.1, 64 connections", "h1-1000": "HTTP/1.1, 1,000 connections", "post-144": "POST of 144 bytes, 500 connections",
    "nokeepalive": "the client closes after each request", "tls13": "TLS 1.3, 64 connections", "h2-h1": "HTTP/2 to HTTP/1.1",
    "h2-h2c": "HTTP/2 to HTTP/2", "grpc": "unary gRPC", "body-1g": "a body of 1 GiB", "cache-hit": "a cache hit",
    "filters": "`key_auth` and `rate_limit`", "idle-10k": "10,000 idle connections", "slow-1000": "16 connections",
    "style-sheet": "a file of 230 KB",
}  # fmt: skip
# The figures by which programs are compared: their key, their name, and whether less (1) or more (-1) is better.
FIGURES = (
    ("us", "processor time", 1), ("cpu_ms", "processor time", 1), ("p99_ms", "p99", 1), ("rate", "rate", -1),
    ("rss_mib", "memory", 1), ("each_kib", "memory per connection", 1),
)  # fmt: skip
# The same for published workloads.
PUBLISHED_FIGURES = (("cost", "processor time per response", 1), ("p99", "p99", 1), ("rate", "rate", -1))


def newest(folder, key):
    """The newest result of each kind in a folder: by date, then by the time it was written, then by file name."""
    found = {}
    for path in folder.glob("*.json"):
        result = json.loads(path.read_text())
        order = (path.name[:10], result.get("written", ""), path.name)
        name = key(path, result)
        if name not in found or order > found[name][0]:
            found[name] = (order, dict(result, file=path.stem))
    return {name: result for name, (_, result) in sorted(found.items())}


def suites(results):
    return newest(results, lambda _, result: result["suite"])


def published(results):
    return newest(results / "published", lambda path, _: bench_file(path))


def bench_file(path):
    """The name of the bench file that a published result is of."""
    return re.sub(r"^\d+-\d+-\d+-[0-9a-f]+-", "", path.stem)


def label(name, versions):
    """A gateway's name with its version."""
    found = re.search(r"\d+\.\d+(\.\d+)?", versions.get(name, ""))
    text = NAMES.get(name, name)
    return f"{text} {found[0]}" if found and name not in ("weir", "relay") else text


def cost_groups(found, wanted):
    """The bars of the suites that compare gateways, Weir first."""
    groups = []
    for suite in (s for s in wanted if s in found):
        result = found[suite]
        kind = {"weir": "w", "relay": "f"}
        rows = [(label(r["name"], result["versions"]), r["us"], kind.get(r["name"], "b")) for r in result["rows"]]
        rows.sort(key=lambda row: ("wbf".index(row[2]), row[1]))
        groups.append((LABELS[suite], rows))
    return groups


def cost_table(found, wanted):
    lines = ["| | µs per request | × Weir, within rounds | requests/s | p99 | errors |", "|---|---:|---:|---:|---:|---:|"]
    for suite in (s for s in wanted if s in found):
        result = found[suite]
        lines.append(f"| **{LABELS[suite]}** (`{suite}`) | | | | | |")
        for row in sorted(result["rows"], key=lambda r: (r["name"] != "weir", r["us"])):
            ratio = rounds.ratio(result["rounds"], row["name"], ["weir"], "us")
            times = f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "-"
            p99 = f"{row['p99_ms']:.3g} ms" if "p99_ms" in row else "-"
            lines.append(f"| {label(row['name'], result['versions'])} | {row['us']:.1f} | {times} | {row['rate']:,.0f} | {p99} | {row['errors']} |")
    return lines + [""] + provenance(found, wanted)


def linked(name, file, folder=""):
    """A result's name with a link to its file, for the page."""
    return f"[`{name}`](../../bench/results/{folder}{file}.md)"


def provenance(found, wanted):
    """Where and how results were measured: only ratios compare between machines."""
    runs = {}
    for suite in (s for s in wanted if s in found):
        r = found[suite]
        m = r["machine"]
        disturbed = f"; other programs used {r['others_share']:.0%} of the machine" if r.get("others_share", 0) > 0.05 else ""
        runs.setdefault(f"{m['processor']}, {m['cores']} cores, kernel {m['kernel']}, {r['date']}, commit {r['commit']}{disturbed}", []).append(linked(suite, r["file"]))
    return [f"- {', '.join(names)}: {run}" for run, names in sorted(runs.items())] + [""]


def figures_of(target):
    """A target's value and bound, as text."""
    sign = "≥" if target["at_least"] else "≤"
    return f"{svg.number(target['value'])}{target['unit']}", f"{sign} {target['bound']:g}{target['unit']}"


def target_table(found, wanted):
    lines = ["| | measured | target | | suite |", "|---|---:|---:|---|---|"]
    for suite in (s for s in wanted if s in found):
        for t in found[suite]["targets"]:
            if t["value"] is None:
                continue
            met = {True: "met", False: "**missed**", None: ""}[t["met"]]
            value, bound = figures_of(t)
            lines.append(f"| {t['what']} | {value} | {bound} | {met} | `{suite}` |")
    return lines + [""] + provenance(found, wanted)


def h3_groups(found):
    if "h3" not in found:
        return []
    rows = {r["name"]: r["us"] for r in found["h3"]["rows"] if r.get("us")}
    kinds = [("HTTP/3, the gateway's own answer of 1 KiB", "h3"), ("HTTP/2, the same", "h2")]
    return [(text, [(n.rsplit(" ", 1)[0], us, "w" if n.startswith("Weir") else "b") for n, us in rows.items() if n.endswith(p)]) for text, p in kinds]


def content_groups(found):
    groups = []
    for suite, text in (("cache-hit", "a cache hit of {}"), ("style-sheet", "a file of 230 KB, {}")):
        for arm in dict.fromkeys(r["name"].split(" ", 1)[1] for r in found.get(suite, {"rows": []})["rows"]):
            rows = [(r["name"].split(" ", 1)[0], r["us"]) for r in found[suite]["rows"] if r["name"].split(" ", 1)[1] == arm]
            rows = [(label(n, found[suite]["versions"]), us, "w" if n == "weir" else "f" if n not in NAMES else "b") for n, us in rows]
            if len(rows) > 1:
                groups.append((text.format(arm), rows))
    return groups


def load_groups(found):
    kinds = (("load-h1", "HTTP/1.1"), ("load-h2", "HTTP/2"), ("load-grpc", "gRPC"))
    return [(text, [(r["name"], r["per_core_second"], "w" if r["name"] == "weir" else "b") for r in found[s]["rows"]]) for s, text in kinds if s in found]


def load_table(found):
    kinds = [s for s in ("load-h1", "load-h2", "load-grpc") if s in found]
    if not kinds:
        return ["No result yet: `bench/public.py --part testers`."]
    lines = ["![Load testers](../images/bench-load.svg)", "", "| tool | requests per core-second | weir over it, within rounds | |", "|---|---:|---:|---|"]
    for suite in kinds:
        for row in found[suite]["rows"]:
            ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
            lines.append(f"| {row['name']} {found[suite]['versions'].get(row['name'], '').removeprefix('weir ').strip('-')} | {row['per_core_second']:,.0f} | {ratio} | `{suite}` |")
    return lines + [""] + provenance(found, kinds)


def is_ours(name):
    return name.startswith("weir") or name.endswith(("_proxied", "_transcoded"))


def workloads(sets):
    """Every published workload: file, set, workload, and per target its figures."""
    for name, result in sets.items():
        for workload in result["workloads"]:
            targets = [(t, {k: v["value"] for k, v in t["figures"].items()}) for t in workload["comparison"]["targets"]]
            yield name, result, workload, [(t, f) for t, f in targets if f.get("rate")]


def published_groups(sets):
    groups = []
    for _, result, workload, targets in workloads(sets):
        rows = [(t["name"].replace("_", " "), f["cost"] / 1000, "w" if is_ours(t["name"]) else "b") for t, f in targets if f.get("cost")]
        title = result["name"] if len(result["workloads"]) == 1 else f"{result['name']} ({workload['name'].replace('_', ' ')})"
        groups.append((title, sorted(rows, key=lambda r: r[1])))
    return groups


def published_table(sets):
    lines = ["| workload | target | responses/s | p99 | µs per response | verdict |", "|---|---|---:|---:|---:|---|"]
    for name, _, workload, targets in workloads(sets):
        c = workload["comparison"]
        reasons = " ".join(sorted({r for t in c["targets"] for r in t["reasons"]}))
        for at, (t, f) in enumerate(targets):
            first = f"`{name}` {workload['name']}" if at == 0 else ""
            repeated = f", blocks measured again: {len(c['repeated'])}" if c.get("repeated") else ""
            verdict = f"{c['grade']} {reasons}".strip() + repeated if at == 0 else ""
            cost = f"{f['cost'] / 1000:.1f}" if f.get("cost") else "-"
            errors = f", **{t['errors']} errors**" if t["errors"] else ""
            p99 = f"{f['p99'] / 1e6:.3g} ms" if "p99" in f else "-"  # too few responses
            lines.append(f"| {first} | {t['name'].replace('_', ' ')} | {f['rate']:,.0f} | {p99}{errors} | {cost} | {verdict} |")
    runs, versions, left_out = {}, {}, []
    for name, result in sets.items():
        generator = result["workloads"][0]["comparison"]["generator"]
        day, commit = re.match(r"(\d+-\d+-\d+)-([0-9a-f]+)", result["file"]).groups()
        runs.setdefault(f"{generator['cpu']}, {generator['kernel']}, {day}, commit {commit}", []).append(linked(name, result["file"], "published/"))
        versions.update(result["versions"])
        left_out += [f"`{name}` {left['target']}" for left in result["left_out"]]
    numbers = {name: re.search(r"\d+\.\d+(\.\d+)?", text) for name, text in versions.items()}
    lines += ["", *(f"- {', '.join(names)}: {run}" for run, names in sorted(runs.items()))]
    lines += ["- " + ", ".join(f"{name.replace('_', ' ')} {number[0]}" for name, number in sorted(numbers.items()) if number)]
    return lines + ([f"- Left out, because they were not there: {', '.join(left_out)}"] if left_out else []) + [""]


def is_better(theirs, ours, sign):
    """Whether a figure is better by more than noise: less of it with the sign 1, more of it with -1."""
    return (theirs / ours) ** sign < 1 - NOISE


def better(program, theirs, ours, figures=FIGURES):
    """A text for each figure by which a program is better than Weir."""
    return [
        f"{program} has {theirs[key] / ours[key]:.2f} × the {what} of Weir"
        for key, what, sign in figures
        if theirs.get(key) and ours.get(key) and is_better(theirs[key], ours[key], sign)
    ]


def by_arm(found):
    """Rows of suites that compare arms, such as `weir 1 KB` and `nginx 1 KB`: suite, arm, program and the two rows."""
    for suite in (s for s in REST if s in found):
        rows = {row["name"]: row for row in found[suite]["rows"] if "name" in row}
        for name, row in rows.items():
            program, _, arm = name.partition(" ")
            ours = rows.get(f"weir {arm}".strip())
            if program in NAMES and program not in ("weir", "relay") and ours:
                yield suite, arm, program, row, ours


def losses(found, sets):
    """Where another program was better than Weir in the same run, and targets that were missed."""
    lines = []
    for suite in (s for s in ONE + TWO if s in found):
        result = found[suite]
        weir = next(row for row in result["rows"] if row["name"] == "weir")
        for row in result["rows"]:
            if row["name"] in ("weir", "relay"):
                continue
            program, texts = label(row["name"], result["versions"]), []
            ratio = rounds.ratio(result["rounds"], row["name"], ["weir"], "us")
            if ratio and ratio["median"] < 1 - NOISE:
                texts.append(f"{program} has {ratio['median']:.2f} × the processor time of Weir")
            rest = {key: value for key, value in row.items() if key != "us"}  # compared within rounds, above
            texts += better(program, rest, weir)
            lines += [f"- {LABELS[suite]}: {text} ({linked(suite, result['file'])})." for text in texts]
    for suite, arm, program, row, ours in by_arm(found):
        case, result = LABELS.get(suite, suite) + (f" ({arm})" if arm else ""), found[suite]
        for text in better(label(program, result["versions"]), row, ours):
            lines.append(f"- {case}: {text} ({linked(suite, result['file'])}).")
    for name, _, workload, targets in workloads(sets):
        ours = next((f for t, f in targets if t["name"].startswith("weir")), None)
        for t, f in targets if ours else []:
            if is_ours(t["name"]) or any(t["name"].startswith(s) for s in ("direct", "kratos", "gozero", "sponge", "tonic")):
                continue
            for text in better(t["name"].replace("_", " "), f, ours, PUBLISHED_FIGURES):
                lines.append(f"- `{name}` {workload['name'].replace('_', ' ')}: {text}.")
    for suite, result in found.items():
        for t in result["targets"]:
            if t["met"] is False and "weir" not in t["what"].split(" × ")[-1]:
                value, bound = figures_of(t)
                lines.append(f"- Missed target: {t['what']}: {value}, wanted {bound} ({linked(suite, result['file'])}).")
    return lines or ["- In none of the results on this page."]


def documents(results=RESULTS):
    """Every generated document: SVG by file name, and each part of the page by its marker."""
    found, sets = suites(results), published(results)
    tests, services = ({n: r for n, r in sets.items() if n.startswith(kind)} for kind in ("w", "services"))
    cost = functools.partial(svg.bars, unit="microseconds of processor time per request, one core; less is better")
    images = {
        "bench-cost": cost("What a request costs", groups=cost_groups(found, ("h1-64", "tls13", "grpc"))),
        "bench-http1": cost("HTTP/1.1", groups=cost_groups(found, ONE)),
        "bench-http2": cost("HTTP/2 and gRPC", groups=cost_groups(found, TWO)),
        "bench-http3": cost("HTTP/3", groups=h3_groups(found)),
        "bench-content": cost("Cache and files (each group has its own scale)", groups=content_groups(found), one_scale=False),
        "bench-published": cost("Published load tests, W1 to W10 (each group has its own scale)", groups=published_groups(tests), one_scale=False),
        "bench-services": cost("Service frameworks, directly and through Weir: the process asked", groups=published_groups(services), one_scale=False),
        "bench-load": svg.bars("Load testers", "requests per second of the tester's processor time; more is better", load_groups(found), one_scale=False),
    }
    parts = {
        "losses": losses(found, sets),
        "http1": cost_table(found, ONE),
        "http2": cost_table(found, TWO),
        "http3": target_table(found, ("h3",)),
        "rest": target_table(found, REST),
        "published": published_table(tests),
        "services": published_table(services),
        "load": load_table(found),
    }
    return {name: text for name, text in images.items() if "<rect" in text}, parts


def page(text, parts):
    """The page with its generated parts."""
    for name, lines in parts.items():
        text, n = re.subn(rf"(<!-- results: {name} -->\n).*?(<!-- /results -->)", lambda m: m[1] + "\n" + "\n".join(lines).strip() + "\n\n" + m[2], text, flags=re.S)
        if n != 1:
            sys.exit(f"{PAGE.name} must have the markers `<!-- results: {name} -->` and `<!-- /results -->` once")
    return text


def outdated():
    """The files that differ from what the results give, with their new text."""
    images, parts = documents()
    wanted = {IMAGES / f"{name}.svg": text for name, text in images.items()}
    wanted[PAGE] = page(PAGE.read_text(), parts)
    changed = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    changed.update({path: None for path in IMAGES.glob("bench-*.svg") if path not in wanted})
    return changed


def main(arguments):
    changed = outdated()
    if arguments == ["--check"]:
        for path in changed:
            print(f"{path.relative_to(ROOT)} is not what bench/results gives: run bench/charts.py")
        return bool(changed)
    if arguments:
        sys.exit(__doc__)
    IMAGES.mkdir(exist_ok=True)
    for path, text in changed.items():
        path.unlink() if text is None else path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
