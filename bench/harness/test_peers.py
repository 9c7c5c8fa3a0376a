"""Tests of the programs that Weir is compared with: what is installed, and what a failure leaves behind."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import peers
from harness import gateway


class Fake:
    """A program that is written in place of one that is built."""

    version, note = "1.2", ""

    def __init__(self, name, fails=False):
        self.name, self.fails, self.builds = name, fails, 0

    def build(self, folder):
        self.builds += 1
        (folder / "half").write_text("built")
        if self.fails:
            raise peers.Missing("the registry said no")
        (folder / self.name).write_text("#!/bin/sh\n")


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cache = pathlib.Path(folder.name) / "cache"
        self.good, self.bad = Fake("good"), Fake("bad", fails=True)
        changed = {"CACHE": cache, "BIN": cache / "bin", "PEERS": [self.good, self.bad], "UNAVAILABLE": {}}
        for name, value in changed.items():
            patch = mock.patch.object(peers, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_with(self, *arguments):
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["peers.py", *arguments]), contextlib.redirect_stdout(said):
            return peers.main(), said.getvalue()

    def test_what_fails_is_told_and_leaves_nothing_behind(self):
        code, said = self.run_with()
        self.assertEqual(code, 1)
        self.assertRegex(said, r"(?m)^bad +1\.2 +not to be had: the registry said no$")
        self.assertIsNone(peers.find("bad"))
        self.assertEqual(sorted(p.name for p in peers.CACHE.iterdir()), ["bin", "good-1.2"])
        self.assertEqual(peers.find("good"), peers.CACHE / "good-1.2/good")
        self.assertEqual((peers.BIN / "good").resolve(), peers.find("good").resolve())

    def test_a_pinned_version_is_built_once(self):
        self.run_with("good")
        self.run_with("good")
        self.assertEqual(self.good.builds, 1)
        self.good.version = "1.3"
        self.assertIsNone(peers.find("good"), "another version is another program")
        self.assertEqual(self.run_with("good")[0], 0)
        self.assertEqual((peers.BIN / "good").resolve(), (peers.CACHE / "good-1.3/good").resolve())

    def test_a_list_installs_nothing(self):
        code, said = self.run_with("--list")
        self.assertEqual((code, said.count("missing"), self.good.builds), (0, 2, 0))

    def test_gateways_without_their_program_are_known(self):
        missing = {g.name for g in gateway.all_gateways() if g.is_missing}
        self.assertTrue({"envoy", "caddy", "traefik"} <= missing)
        self.assertFalse({"weir", "nginx", "haproxy", "relay"} & missing)


class Pinned(unittest.TestCase):
    def test_every_gateway_names_a_pinned_program(self):
        known = {p.name for p in peers.PEERS}
        self.assertEqual([g.name for g in gateway.all_gateways() if g.program and g.program not in known], [])

    def test_wheels_are_checked_by_a_digest(self):
        for wheel in (p for p in peers.PEERS if isinstance(p, peers.Wheel)):
            self.assertRegex(wheel.sha256, "^[0-9a-f]{64}$", wheel.name)


if __name__ == "__main__":
    sys.exit(unittest.main())
