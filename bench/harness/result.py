"""A suite's results: the rows of a table, and targets."""

from dataclasses import dataclass, field

# Columns of a requests table: key in a row, heading, format.
REQUEST_COLUMNS = [
    ("name", "gateway", "{}"),
    ("rate", "requests/s", "{:.0f}"),
    ("us", "µs/request", "{:.2f}"),
    ("p50_ms", "p50 ms", "{:.2f}"),
    ("p99_ms", "p99 ms", "{:.2f}"),
    ("rss_mib", "RSS MiB", "{:.1f}"),
    ("errors", "errors", "{:d}"),
    ("vs_floor", "× relay", "{:.3f}"),
    ("vs_peer", "× best peer", "{:.3f}"),
]


@dataclass
class Target:
    """A figure with an upper (or lower) limit."""

    what: str
    value: float | None
    bound: float
    at_least: bool = False
    unit: str = ""

    @property
    def met(self):
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self):
        sign = "≥" if self.at_least else "≤"
        if self.value is None:
            return f"- {self.what}: not measured (target {sign} {self.bound:g}{self.unit})"
        verdict = "met" if self.met else "MISSED"
        value = f"{self.value:.3g}" if self.value < 1000 else f"{self.value:.0f}"
        return f"- {self.what}: {value}{self.unit} (target {sign} {self.bound:g}{self.unit}): {verdict}"


@dataclass
class Result:
    """A suite's report. `rounds` keeps each sample, so that any figure can be recomputed."""

    suite: str
    about: str
    columns: list
    rows: list
    targets: list = field(default_factory=list)
    rounds: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    settings: dict = field(default_factory=dict)

    def table(self):
        def cell(row, key, form):
            value = row.get(key)
            return "-" if value is None else form.format(value)

        lines = ["| " + " | ".join(title for _, title, _ in self.columns) + " |"]
        lines.append("|---" + "|---:" * (len(self.columns) - 1) + "|")
        for row in self.rows:
            lines.append("| " + " | ".join(cell(row, key, form) for key, _, form in self.columns) + " |")
        return "\n".join(lines)
