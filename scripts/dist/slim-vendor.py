#!/usr/bin/env python3
"""Empties vendored crates that no build on Linux compiles: half of what `cargo vendor` writes is for Windows.

usage: slim-vendor.py SOURCE-FOLDER       with Cargo.toml, Cargo.lock and vendor/ below it

Cargo wants every crate of the lock file to be there, so an emptied one keeps its manifest, with its dependencies and
features, and gets an empty library. Crates for tests are kept.
"""

import json
import os
import re
import shutil
import subprocess
import sys

MACHINES = ("x86_64", "aarch64", "riscv64gc")
PLATFORMS = [f"{machine}-unknown-linux-{libc}" for machine in MACHINES for libc in ("gnu", "musl")]
# Parts of a manifest that name files.
FILES = re.compile(r"\[\[?(lib|bin|example|test|bench)\b")


def main():
    source = sys.argv[1]
    metadata = ["cargo", "metadata", "--locked", "--offline", "--format-version=1", "--all-features"]
    needed = set()
    for platform in PLATFORMS:
        found = subprocess.run(metadata + ["--filter-platform", platform], cwd=source, capture_output=True, text=True)
        if found.returncode != 0:
            sys.exit(f"slim-vendor.py: {found.stderr.strip()}")
        resolved = json.loads(found.stdout)
        used = {node["id"] for node in resolved["resolve"]["nodes"]}
        needed |= {f"{p['name']}-{p['version']}" for p in resolved["packages"] if p["id"] in used}
    vendor = os.path.join(source, "vendor")
    for crate in sorted(os.listdir(vendor)):
        if crate in needed:
            continue
        folder = os.path.join(vendor, crate)
        with open(f"{folder}/Cargo.toml", encoding="utf-8") as file:
            manifest = file.read()
        with open(f"{folder}/.cargo-checksum.json", encoding="utf-8") as file:
            package = json.load(file)["package"]
        sections = re.split(r"(?m)^(?=\[)", manifest)
        kept = "".join(section for section in sections if not FILES.match(section))
        kept = re.sub(r"(?m)^(build|links|readme|license-file|default-run|auto[a-z]+) = .*\n", "", kept)
        shutil.rmtree(folder)
        os.makedirs(f"{folder}/src")
        with open(f"{folder}/Cargo.toml", "w", encoding="utf-8") as file:
            file.write(kept)
        open(f"{folder}/src/lib.rs", "w", encoding="utf-8").close()
        with open(f"{folder}/.cargo-checksum.json", "w", encoding="utf-8") as file:
            json.dump({"files": {}, "package": package}, file)


main()
