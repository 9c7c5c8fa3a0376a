"""Checks that configs of compared gateways leave no placeholder open: such a gateway fails, an hour into a run."""

import re
import unittest

from harness import gateway

GIVEN = (
    "port", "admin_port", "origin_port", "workers", "dir", "cert", "key", "pem", "config", "bin", "tools", "program",
    "descriptors", "connections",
)  # fmt: skip
# What suites add for the variants that ask for it.
EXTRA = ("filters", "folder", "listeners", "root", "routes", "text", "upstreams")


class Fill(unittest.TestCase):
    def test_a_name_with_a_digit_is_replaced(self):
        self.assertEqual(gateway.fill("http2 @h2@;", {"h2": "on"}), "http2 on;")

    def test_an_undefined_name_is_an_error(self):
        self.assertRaises(KeyError, gateway.fill, "listen @prot@;", {"port": 1})

    def test_each_variant_fills_its_template(self):
        for each in gateway.all_gateways():
            for variant in each.ini.sections():
                template = each.ini[variant].get("config", each.ini["gateway"].get("config"))
                if variant == "gateway" or not template:
                    continue
                values = dict.fromkeys((*GIVEN, *EXTRA), "1") | dict(each.ini[variant])
                with self.subTest(gateway=each.name, variant=variant):
                    filled = gateway.fill((each.folder / template).read_text(), values)
                    self.assertEqual(re.findall(r"@\w+@", filled), [])


if __name__ == "__main__":
    unittest.main()
