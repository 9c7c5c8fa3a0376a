"""Tests of the charts: the committed ones are what the committed results give, and a figure moves its bar."""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import charts
from harness import svg


class Charts(unittest.TestCase):
    def test_the_committed_page_and_charts_are_made_from_the_committed_results(self):
        names = [str(path.relative_to(charts.ROOT)) for path in charts.outdated()]
        self.assertEqual(names, [], "run bench/charts.py")

    def test_another_figure_gives_another_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder) / "results"
            shutil.copytree(charts.RESULTS, folder)
            before, parts_before = charts.documents(folder)
            self.assertEqual(before, charts.documents(folder)[0], "the same results give the same bytes")
            for path in folder.glob("*-h1-64.json"):
                path.write_text(re.sub(r'("us": )\d+', r"\g<1>77", path.read_text()))
            after, parts_after = charts.documents(folder)
        changed = [name for name in before if before[name] != after[name]]
        self.assertEqual(changed, ["bench-cost", "bench-http1"])
        self.assertNotEqual(parts_before["http1"], parts_after["http1"])
        self.assertEqual(parts_before["http2"], parts_after["http2"])

    def test_the_losses_compare_each_figure_of_a_result(self):
        compared = {key for key, _, _ in charts.FIGURES}
        # Exempt: texts, counts, other percentiles, ratios, and the parts of a compared figure.
        others = {"name", "requests", "rounds", "errors", "open", "bytes", "p50_ms", "mean_ms", "max_ms"}
        others |= {"before_mib", "after_mib", "growth_mib"}
        found = charts.suites(charts.RESULTS)
        for suite in (s for s in charts.ONE + charts.TWO + charts.REST if s in found):
            keys = {key for row in found[suite]["rows"] for key in row if not key.startswith("vs_")}
            self.assertEqual(keys - compared - others, set(), f"{suite}: neither compared nor exempt")

    def test_bars_have_the_lengths_of_their_figures(self):
        text = svg.bars("t", "u", [("g", [("one", 10, "w"), ("two", 5, "b")])])
        first, second = map(float, re.findall(r'width="([\d.]+)" height="15"', text))
        self.assertEqual(first, second * 2)

    def test_text_is_escaped(self):
        self.assertIn("a &lt;b&gt;", svg.bars("t", "u", [("a <b>", [("x", 1, "b")])]))


if __name__ == "__main__":
    sys.exit(unittest.main())
