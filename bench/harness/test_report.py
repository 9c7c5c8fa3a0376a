"""Tests of which results are kept: the newest of each suite and kind of machine."""

import json
import pathlib
import tempfile
import unittest

from harness import report


def result(suite="h1-64", processor="AMD EPYC", cores=2):
    return {"suite": suite, "machine": {"processor": processor, "cores": cores}}


class Superseded(unittest.TestCase):
    def test_only_the_same_suite_on_such_a_machine_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            written = {
                "2026-01-01-aaa-h1-64": result(),
                "2026-01-01-aaa-h1-1000": result(suite="h1-1000"),
                "2026-01-02-bbb-h1-64": result(processor="Xeon"),
                "2026-01-03-ccc-h1-64": result(cores=8),
                "2026-01-04-ddd-h1-64": result(),
            }
            for name, data in written.items():
                (folder / f"{name}.json").write_text(json.dumps(data))
            gone = report.superseded(folder, result(), folder / "2026-01-04-ddd-h1-64.json")
            self.assertEqual([p.stem for p in gone], ["2026-01-01-aaa-h1-64"])


if __name__ == "__main__":
    unittest.main()
