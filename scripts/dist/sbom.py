#!/usr/bin/env python3
"""Writes a software bill of materials (CycloneDX 1.5, JSON), byte for byte the same for the same input.

usage: sbom.py --name NAME --version V --epoch N --commit C [--packages FILE] OUT.json

Lists every crate that is compiled into `weir` and `weir-kube` on this platform, as Cargo resolves it, with its license,
its purl and the checksum in Cargo.lock. Crates that only run during the build, such as macros, have the scope
`excluded`. Crates that only tests use are left out.

--packages names a file with the Debian packages of the image, `NAME VERSION ARCHITECTURE` a line; the document then
describes the image.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import uuid

ROOTS = ("weirgate", "weir-kube")
NAMESPACE = uuid.UUID("8f2a3a52-6f6c-5f0e-9a53-5d0a6c1c7b1e")  # ours, for serial numbers


def fail(message):
    sys.exit(f"sbom.py: {message}")


def output(*command):
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        fail(f"{' '.join(command)}: {found.stderr.strip()}")
    return found.stdout


def checksums():
    """The checksums of Cargo.lock, by name and version."""
    found = {}
    for entry in open("Cargo.lock", encoding="utf-8").read().split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "([^"]*)"$', entry, re.M))
        found[fields["name"], fields["version"]] = fields.get("checksum")
    return found


def compiled(platform, edges):
    """Names and versions of the crates that Cargo compiles for the binaries, over these kinds of edges.

    From `cargo tree`: `cargo metadata` also lists optional crates that no feature turns on.
    """
    selected = [word for root in ROOTS for word in ("-p", root)]
    tree = output("cargo", "tree", "--locked", "--target", platform, "--edges", edges, "--prefix", "none",
                  "--format", "{p}", *selected)
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, filter(None, tree.splitlines()))}


def main():
    parser = argparse.ArgumentParser()
    for option in ("name", "version", "epoch", "commit"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--packages")
    parser.add_argument("out")
    args = parser.parse_args()
    rustc = output("rustc", "-vV")
    platform = re.search(r"^host: (.*)$", rustc, re.M)[1]
    metadata = output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", platform)
    metadata = json.loads(metadata)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    roots = [package["id"] for package in packages.values() if package["name"] in ROOTS]
    # What is linked, and what runs in the compiler only: build scripts and macros with all that they use.
    linked = compiled(platform, "normal,no-proc-macro")
    built = compiled(platform, "normal,build")

    def key(id):
        return packages[id]["name"], packages[id]["version"]

    every = {id for id in packages if key(id) in built}
    sums = checksums()

    def purl(id):
        package = packages[id]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    components, dependencies = [], []
    for id in sorted(every, key=purl):
        package = packages[id]
        if not package["license"]:
            fail(f"{package['name']} {package['version']} names no license in its manifest")
        component = {
            "type": "library",
            "bom-ref": purl(id),
            "name": package["name"],
            "version": package["version"],
            "scope": "required" if key(id) in linked else "excluded",
            "licenses": [{"expression": package["license"].replace("/", " OR ")}],
            "purl": purl(id),
        }
        if package["description"]:
            component["description"] = " ".join(package["description"].split())
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        elif package["source"]:
            fail(f"{package['name']} {package['version']} has no checksum in Cargo.lock")
        if package["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        components.append(component)
        used = (d["pkg"] for d in nodes[id]["deps"] if any(kind["kind"] in (None, "build") for kind in d["dep_kinds"]))
        dependencies.append({"ref": purl(id), "dependsOn": sorted({purl(other) for other in used if other in every})})
    whole = f"{args.name}@{args.version}"
    direct = sorted(purl(root) for root in roots)
    for line in open(args.packages, encoding="utf-8") if args.packages else ():
        name, version, architecture = line.split()
        reference = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}"
        components.append({"type": "library", "bom-ref": reference, "name": name, "version": version,
                           "scope": "required", "purl": reference})
        dependencies.append({"ref": reference, "dependsOn": []})
        direct.append(reference)
    dependencies.insert(0, {"ref": whole, "dependsOn": direct})
    created = datetime.datetime.fromtimestamp(int(args.epoch), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": {"components": [{"type": "application", "name": "scripts/dist/sbom.py", "version": args.version}]},
            "component": {"type": "container" if args.packages else "application", "bom-ref": whole, "name": args.name,
                          "version": args.version, "licenses": [{"license": {"id": "Apache-2.0"}}]},
            "properties": [
                {"name": "weir:commit", "value": args.commit},
                {"name": "weir:platform", "value": platform},
                {"name": "weir:rustc", "value": rustc.splitlines()[0]},
            ],
        },
        "components": components,
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, sort_keys=True)
        file.write("\n")


main()
