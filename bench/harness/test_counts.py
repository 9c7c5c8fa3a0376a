"""Tests of CI's gate decisions, without a gateway: `python3 -m unittest discover -s bench/harness -t bench`."""

import pathlib
import tempfile
import unittest

import count
from harness import counting, counts

CACHEGRIND = """desc: I1 cache: 32768 B, 64 B, 8-way associative
cmd: weir run
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
fl=exchange.rs
fn=run
1 2 0 0 1 0 0 0 0 0
summary: 1000 7 1 400 9 20 300 8 300
"""

STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 66.67    0.020000           2     10000         7 recvfrom
 33.33    0.010000           1      5000           sendto
  0.00    0.000000           0       311           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.030000           1     15311         7 total
"""

MADE = {"compiler": "rustc 1.95.0", "valgrind": "valgrind-3.19.0"}


def table(**rows):
    return {name: {"weir": figures} for name, figures in rows.items()}


def verdicts(was, now):
    found = counts.changes(table(h1=was), table(h1=now))
    return [c.figure for c in found if c.grown], [c.figure for c in found if c.shrunk]


class Reading(unittest.TestCase):
    def test_cachegrind_sums_misses_of_the_last_level(self):
        self.assertEqual(counting.cachegrind_totals(CACHEGRIND), {"instructions": 1000, "misses": 321})

    def test_entropy_gathered_at_the_start_is_left_out(self):
        gathering = "fn=aws_lc_0_47_0_jent_random_data\n1 100 0 0 9 9 5 0 0 0\n2 50 0 1 0 0 0 0 0 7\nfn=rol64_like\n1 30 0 0 0 0 0 0 0 0\n"
        text = CACHEGRIND.replace("summary: 1000 7 1", f"{gathering}summary: 1180 7 2").replace("20 300 8 300", "25 300 8 307")
        self.assertEqual(counting.cachegrind_totals(text), {"instructions": 1030, "misses": 321})

    def test_output_without_a_summary_is_refused(self):
        with self.assertRaises(RuntimeError):
            counting.cachegrind_totals(CACHEGRIND.replace("summary", "sum"))

    def test_strace_counts_what_is_no_wait(self):
        self.assertEqual(counting.strace_total(STRACE), 15000)

    def test_an_empty_summary_of_strace_is_refused(self):
        with self.assertRaises(RuntimeError):
            counting.strace_total("")

    def test_what_both_runs_have_drops_out(self):
        short, long = (1000, {"instructions": 500_000 + 13_000_000}), (3000, {"instructions": 500_000 + 39_000_000})
        self.assertEqual(counting.per_request(short, long), {"instructions": 13_000})


class Comparing(unittest.TestCase):
    def test_a_rough_row_may_grow_by_more(self):
        was, now = table(h1={"instructions": 1000}), table(h1={"instructions": 1200})
        rough = [{"load-start": rows["h1"]} for rows in (was, now)]
        self.assertEqual([c.grown for c in counts.changes(was, now) + counts.changes(*rough)], [True, False])
        rough[1]["load-start"]["weir"]["instructions"] = 1251
        self.assertTrue(counts.changes(*rough)[0].grown)

    def test_two_percent_are_allowed_and_more_is_not(self):
        self.assertEqual(verdicts({"instructions": 10_000}, {"instructions": 10_200}), ([], []))
        self.assertEqual(verdicts({"instructions": 10_000}, {"instructions": 10_201}), (["instructions"], []))

    def test_what_shrinks_is_told_and_does_not_fail(self):
        self.assertEqual(verdicts({"instructions": 10_000}, {"instructions": 9_799}), ([], ["instructions"]))

    def test_figures_near_nothing_may_double(self):
        self.assertEqual(verdicts({"misses": 0.1}, {"misses": 3.9}), ([], []))
        self.assertEqual(verdicts({"misses": -0.1}, {"misses": 4.1}), (["misses"], []))

    def test_a_system_call_in_each_third_request_is_seen(self):
        self.assertEqual(verdicts({"syscalls": 4.0}, {"syscalls": 4.1}), ([], []))
        self.assertEqual(verdicts({"syscalls": 4.0}, {"syscalls": 4.34}), (["syscalls"], []))

    def test_a_figure_that_one_side_has_not_is_not_compared(self):
        self.assertEqual(verdicts({"instructions": 1, "misses": 1}, {"instructions": 1, "syscalls": 9}), ([], []))

    def test_a_row_that_is_new_is_named(self):
        self.assertEqual(counts.missing(table(a={}), table(a={}, b={})), ["b"])
        self.assertEqual(counts.changes(table(a={"instructions": 1}), table(b={"instructions": 9})), [])

    def test_the_least_of_two_measurements_counts(self):
        self.assertEqual(counts.least({"instructions": 5, "misses": 1}, {"instructions": 4}), {"instructions": 4, "misses": 1})

    def test_another_compiler_is_not_compared(self):
        self.assertEqual(counts.differences(MADE, MADE), [])
        self.assertEqual(len(counts.differences(MADE, {**MADE, "compiler": "rustc 1.96.0"})), 1)
        self.assertEqual(len(counts.differences({}, MADE)), 2)


class Table(unittest.TestCase):
    def test_ci_compares_every_row_that_it_measures(self):
        table = counts.read(count.TABLE)["release"]["rows"]
        self.assertEqual([row.name for row in count.ROWS if row.gate and row.name not in table], [])


class Keeping(unittest.TestCase):
    def test_rows_that_were_not_measured_stay(self):
        kept = {"release": {"commit": "a", "made_with": MADE, "rows": table(one={"misses": 1}, two={"misses": 2})}}
        counts.keep(kept, "release", "b", MADE, table(two={"misses": 3.00004}))
        self.assertEqual(kept["release"]["rows"], table(one={"misses": 1}, two={"misses": 3}))

    def test_rows_of_another_compiler_do_not(self):
        kept = {"release": {"commit": "a", "made_with": {**MADE, "compiler": "rustc 1.94.0"}, "rows": table(one={"misses": 1})}}
        counts.keep(kept, "release", "b", MADE, table(two={"misses": 3}))
        self.assertEqual(kept["release"]["rows"], table(two={"misses": 3}))

    def test_a_table_is_read_back_as_it_was_and_has_a_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "counts.json"
            self.assertEqual(counts.read(path), {})
            kept = {}
            measured = {"b": {"weir": {"instructions": 1000.5, "misses": 0.1, "syscalls": 4}, "nginx": {"instructions": 2001}}, "a": {"weir": {"misses": 9}}}
            counts.keep(kept, "dist", "c0ffee", MADE, measured)
            counts.write(kept, path, {"b": "about b", "a": "about a"})
            self.assertEqual(counts.read(path), kept)
            self.assertEqual(list(counts.read(path)["dist"]["rows"]), ["b", "a"])
            self.assertIn("| b | about b | 1,000 | 0.1 | 4.00 | nginx | 2,001 |  |  | 0.50 |", path.with_suffix(".md").read_text())


if __name__ == "__main__":
    unittest.main()
