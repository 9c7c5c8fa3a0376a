"""The committed table of counts: bench/counts.json, its readable form bench/counts.md, and the comparison with new
results.

    {"release": {"commit": …, "made_with": {…}, "rows": {"h1-64": {"weir": {"instructions": …, "misses": …, "syscalls": …}}}}}

A figure may grow by GROWTH, by the share in ROUGH for the rows named there, or by its floor if it is small. A figure
that shrinks is reported, so that a new table records the gain.
"""

import json
from dataclasses import dataclass

GROWTH = 0.02

# Rows whose figures vary by more than GROWTH between runs with one binary. A whole run of `weir load` took 11.9 to 17.6
# million instructions. A request of it took 1,016 on a quiet machine and 1,084 on a busy one: what a generator does
# every few milliseconds weighs more if the run takes longer.
ROUGH = {"load-start": 0.25, "load-h1": 0.1, "load-journey": 0.1}

# Growth below this is not reported: for tiny figures, two percent are chance. The misses of post-144 were 4.5 on a quiet
# machine and 8.9 on a busy one. In display order.
FLOOR = {"instructions": 20, "misses": 4, "syscalls": 0.25}


@dataclass
class Change:
    """A figure compared with the committed one."""

    row: str
    program: str
    figure: str
    was: float
    now: float

    @property
    def limit(self):
        return max(ROUGH.get(self.row, GROWTH) * self.was, FLOOR[self.figure])

    @property
    def grown(self):
        return self.now - self.was > self.limit

    @property
    def shrunk(self):
        return self.was - self.now > self.limit

    def __str__(self):
        share = f" ({(self.now / self.was - 1):+.1%})" if self.was else ""
        return f"{self.row}, {self.program}: {self.figure} {amount(self.figure, self.was)} → {amount(self.figure, self.now)}{share}"


def amount(figure, value):
    return f"{value:,.0f}" if figure == "instructions" else f"{value:,.2f}" if figure == "syscalls" else f"{value:,.1f}"


def changes(committed, measured):
    """Every figure in both tables. Rows and programs in only one of them are not compared."""
    return [
        Change(row, program, figure, committed[row][program][figure], now)
        for row, programs in measured.items()
        for program, figures in programs.items()
        for figure, now in figures.items()
        if figure in committed.get(row, {}).get(program, {})
    ]


def missing(committed, measured):
    """Measured rows that the table lacks."""
    return [row for row in measured if row not in committed]


def least(one, other):
    """The minimum of each figure, because disturbances only increase it."""
    return {figure: min(value, other.get(figure, value)) for figure, value in one.items()}


def differences(committed, here):
    """Differences in the setup of two measurements; if there are any, their figures are not comparable."""
    return [f"{what}: {committed.get(what, 'nothing')} in the table, {value} here" for what, value in here.items() if committed.get(what) != value]


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def keep(table, profile, commit, made_with, measured):
    """Adds results to the table. Other rows stay, unless they were made with a different setup."""
    old = table.get(profile, {})
    rows = dict(old.get("rows", {})) if old.get("made_with") == made_with else {}
    for row, programs in measured.items():
        rows[row] = {program: {f: round(v, 3) for f, v in figures.items()} for program, figures in programs.items()}
    table[profile] = {"commit": commit, "made_with": made_with, "rows": rows}


def write(table, path, about):
    """Writes the table and its readable form. `about` describes each row, in display order."""
    order = list(about)
    for profile in table.values():
        profile["rows"] = dict(sorted(profile["rows"].items(), key=lambda r: order.index(r[0]) if r[0] in order else len(order)))
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    path.with_suffix(".md").write_text(picture(table, about))


def picture(table, about):
    lines = ["# What a request costs, counted", ""]
    lines += ["Instructions in user space, lines fetched from memory (misses of a last level of 1 MiB) and system calls other than waits, for one request. Made by"]
    lines += ["`make bench-count BENCH_COUNT=--bless`; how, and how to read it: [docs/dev/benchmarks.md](../docs/dev/benchmarks.md).", ""]
    for profile, made in sorted(table.items()):
        lines += [f"## Profile `{profile}`", ""]
        lines += columns(made["rows"], about)
        lines += ["", f"Commit {made['commit']}. " + ", ".join(f"{k} {v}" for k, v in made["made_with"].items()) + ".", ""]
    return "\n".join(lines)


def columns(rows, about):
    """The lines of a table: Weir's figures, those of the compared program, and the ratio of instructions."""
    lines = ["| row | load | instructions | misses | system calls | beside it | instructions | misses | system calls | Weir × it |"]
    lines += ["|---|---|---:|---:|---:|---|---:|---:|---:|---:|"]
    for row, programs in rows.items():
        ours = programs.get("weir", {})
        other = next((name for name in programs if name != "weir"), None)
        theirs = programs.get(other, {})
        ratio = f"{ours['instructions'] / theirs['instructions']:.2f}" if ours and theirs else ""
        cells = [row, about.get(row, ""), *cells_of(ours), other or "", *cells_of(theirs), ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def cells_of(figures):
    return [amount(f, max(figures[f], 0)) if f in figures else "" for f in FLOOR]
