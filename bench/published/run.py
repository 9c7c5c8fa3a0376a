#!/usr/bin/env python3
"""Runs this folder's bench files, saves the results, and writes the table in README.md.

usage: run.py [--bin WEIR] [-d TIME] [--commit C] [FILE.yaml ...]     runs these files, or all
       run.py --table                                     rewrites the table from the newest results

Each workload runs for the time that its file names: four rounds, 24 minutes for all. With -d it runs for TIME, in
blocks of another length, which fits a look but not a result.

With several cores, the generator has the last one to itself, and the files' processes run on the first (`taskset` in
each file). A result thus shows what one core of gateway and origin carries, and the generator never waits for them. As
root, all of them run with a raised priority and the generator with a real-time policy, so that other programs of the
machine do not interrupt a block.

Programs of bench/peers.py are used if it has installed them; otherwise the results name them as left out.

Results go to ../results/published/DATE-COMMIT-FILE.json (every round) and .md (the output), replacing older ones of
the same file and processor.
"""
import argparse, datetime, glob, json, os, pathlib, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True

import charts  # noqa: E402
import peers  # noqa: E402

RESULTS = os.path.join(HERE, "..", "results", "published")
README = os.path.join(HERE, "README.md")


def time(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def rate(value):
    return f"{value:,.0f}/s"


def run(binary, file, duration, commit):
    name = os.path.splitext(os.path.basename(file))[0]
    commit = commit or subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    day = datetime.datetime.now(datetime.timezone.utc).date()
    base = os.path.join(RESULTS, f"{day}-{commit}-{name}")
    command = [binary, "compare", "-f", file, "--save", base + ".json"] + (["-d", duration] if duration else [])
    command = ["taskset", "-c", str(max(os.sched_getaffinity(0)))] + command
    # Only the generator keeps the real-time policy: Weir starts the file's processes with the ordinary one.
    command = ["chrt", "-f", "1"] * may_be_real_time() + command
    command = ["nice", "-n", "-10"] * (os.geteuid() == 0) + command
    print(f"== {name}", flush=True)
    # The files' `taskset` finds programs through PATH.
    path = os.pathsep.join([os.path.dirname(binary)] * ("/" in binary) + [peers.path_with_peers()])
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=dict(os.environ, PATH=path))
    if done.returncode not in (0, 1) or not done.stdout:
        print(done.stderr, file=sys.stderr)
        os.path.exists(base + ".json") and os.remove(base + ".json")
        return
    # Every target's histograms would be most of the file; figures and rounds stay.
    with open(base + ".json") as f:
        result = json.load(f)
    for workload in result["workloads"]:
        for target in workload["comparison"]["targets"]:
            target.pop("latency", None)
    result["written"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with open(base + ".json", "w") as f:
        json.dump(result, f, indent=1)
    with open(base + ".md", "w") as f:
        f.write(f"# {result['name']}\n\n{result['about']}\n\n```\n{done.stdout}```\n")
    for path in glob.glob(os.path.join(RESULTS, f"*-{name}.json")):
        if path != base + ".json" and charts.bench_file(pathlib.Path(path)) == name and processors(path) == processors(base + ".json"):
            os.remove(path)
            os.path.exists(path[:-5] + ".md") and os.remove(path[:-5] + ".md")


def may_be_real_time():
    """Whether this user may set a real-time policy, and has the program for it."""
    return bool(shutil.which("chrt")) and subprocess.run(["chrt", "-f", "1", "true"], capture_output=True).returncode == 0


def processors(path):
    with open(path) as f:
        return {w["comparison"]["generator"]["cpu"] for w in json.load(f)["workloads"]}


def table():
    rows = ["| workload | published | on | measured here | verdict |", "|---|---|---|---|---|"]
    machines, left, versions = set(), [], {}
    for name, result in charts.published(charts.RESULTS).items():
        versions.update(result["versions"])
        left += [f"- `{name}`: {l['target']}: {l['reason'].strip().splitlines()[0][:200]}" for l in result["left_out"]]
        for workload in result["workloads"]:
            c = workload["comparison"]
            machines.add(f"{c['generator']['cpu']}, {c['generator']['kernel']}, {c['generator']['cores']} of its cores for the generator")
            told = []
            for p in workload["published"]:
                f = p["figures"]
                p99 = f" (p99 {time(f['p99'])})" if "p99" in f else ""
                told.append((f"{p['who']} {rate(f['rate'])}{p99}", p["machine"]))
            measured = []
            for t in c["targets"]:
                f = {k: v["value"] for k, v in t["figures"].items()}
                if "rate" in f:
                    cost = f", {time(f['cost'])}" if "cost" in f else ""
                    errors = f", **{t['errors']} errors**" if t["errors"] else ""
                    # Too few responses have no p99.
                    p99 = time(f["p99"]) if "p99" in f else "-"
                    measured.append(f"{t['name']} {rate(f['rate'])} (p99 {p99}{cost}){errors}")
            reasons = sorted({r for t in c["targets"] for r in t["reasons"]})
            repeated = f", blocks measured again: {len(c['repeated'])}" if c.get("repeated") else ""
            on = sorted({m for _, m in told})
            rows.append(
                f"| `{name}` {workload['name']} | {'<br>'.join(t for t, _ in told) or '-'} | {'<br>'.join(on) or '-'} "
                f"| {'<br>'.join(measured)} | {c['grade']} {' '.join(reasons)}{repeated} |"
            )
    text = "\n".join(rows) + "\n\nMeasured on " + "; ".join(sorted(machines)) + ". "
    text += ", ".join(f"{n}: {v}" for n, v in sorted(versions.items())) + ".\n"
    if left:
        text += "\nLeft out:\n\n" + "\n".join(left) + "\n"
    with open(README) as f:
        readme = f.read()
    begin, end = "<!-- table -->\n", "<!-- /table -->"
    before, rest = readme.split(begin)
    with open(README, "w") as f:
        f.write(before + begin + text + end + rest.split(end)[1])


ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--bin", default="weir")
ap.add_argument("-d", metavar="TIME", help="of each workload [default: what its file says]")
ap.add_argument("--commit", help="of the binary, where it is not what is checked out")
ap.add_argument("--table", action="store_true")
ap.add_argument("files", nargs="*")
a = ap.parse_args()
if not a.table:
    for file in a.files or sorted(glob.glob(os.path.join(HERE, "*.yaml"))):
        run(os.path.abspath(a.bin) if "/" in a.bin else a.bin, os.path.abspath(file), a.d, a.commit)
table()
charts.main([])
