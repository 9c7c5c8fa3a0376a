"""Writes a result with everything needed to trust it: machine, kernel, versions, commit, command, every round."""

import dataclasses
import datetime
import json
import os
import platform
import subprocess


def machine():
    """Processor, cores, memory and kernel of this machine, without its host name."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory_kib = int(open("/proc/meminfo").readline().split()[1])
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kib / 1024 / 1024, 1),
        "kernel": platform.release(),
        "system": _system(),
    }


def _system():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def commit(root):
    """Short commit, with `-dirty` if files that can affect a figure are not committed."""
    def git(*args):
        return subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True).stdout.strip()

    dirty = git("status", "--porcelain", "--", "crates", "bench", "Cargo.toml", "Cargo.lock", ":!bench/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if dirty else "")


def write(result, folder, context):
    """Writes <date>-<commit>-<suite>.json and .md, replacing the same suite's results on such a machine. Returns the
    .md text."""
    now = datetime.datetime.now(datetime.timezone.utc)
    day = now.date().isoformat()
    stem = folder / f"{day}-{context['commit']}-{result.suite}"
    folder.mkdir(parents=True, exist_ok=True)
    data = dict(context, date=day, written=now.isoformat(timespec="seconds"), **dataclasses.asdict(result))
    for target, plain in zip(result.targets, data["targets"]):
        plain["met"] = target.met
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    text = markdown(result, context, day)
    stem.with_suffix(".md").write_text(text)
    for old in superseded(folder, data, stem.with_suffix(".json")):
        old.unlink()
        old.with_suffix(".md").unlink(missing_ok=True)
    return text


def superseded(folder, data, kept):
    """This suite's other results on the same kind of machine: same processor and number of cores. Older ones are in
    git."""

    def kind(result):
        return result.get("suite"), result["machine"]["processor"], result["machine"]["cores"]

    return [p for p in sorted(folder.glob(f"*-{data['suite']}.json")) if p != kept and kind(json.loads(p.read_text())) == kind(data)]


def markdown(result, context, day):
    m = context["machine"]
    versions = "; ".join(f"{k}: {v}" for k, v in context["versions"].items() if v != "-")
    lines = [f"# {result.suite}: {result.about}", "", result.table(), ""]
    lines += [str(t) for t in result.targets] + ([""] if result.targets else [])
    lines += [f"Note: {n}" for n in result.notes] + ([""] if result.notes else [])
    lines += [
        f"{day}, commit {context['commit']}. {m['processor']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}, kernel {m['kernel']}.",
        f"{versions}.",
        f"Command: `{context['command']}`. Other programs used {context['others_share']:.1%} of the machine meanwhile.",
        "",
    ]
    return "\n".join(lines)
