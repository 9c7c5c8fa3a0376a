#!/usr/bin/env python3
"""Writes the container image as an OCI layout in a tar archive, byte for byte the same for the same input.

usage: image.py --layer FOLDER --dockerfile FILE --name NAME --version V --epoch N --commit C --compress xz|none
                --packages FILE OUT.tar

No container tool is needed, and none runs: podman, skopeo, containerd and docker load the archive. The image has two
layers. The first holds the Debian packages that the binaries need at run time, taken from the files that dpkg installed
on this machine; it has no shell and no package manager. The second is FOLDER. User, ports, entry point and health check
are those of the last stage of the Dockerfile, so that both ways of building give the same image.

--packages names a file to which the base's packages are written, a line each, for the SBOM.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile

# What the binaries need: the C library, the unwinder, and roots to verify upstreams against. base-files says which
# Debian this is.
BASE = ["base-files", "ca-certificates", "libc6", "libgcc-s1"]
# Files of those packages that belong into the image.
WANTED = re.compile(
    r"/(usr/)?lib(64)?/([a-z0-9_]+-linux-gnu/)?[^/]+\.so[.0-9]*$"
    r"|/(usr/)?lib/os-release$|/etc/(os-release|debian_version)$"
    r"|/usr/share/ca-certificates/mozilla/"
)
ROOTS = "usr/share/ca-certificates/mozilla/"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = 65532


def fail(message):
    sys.exit(f"image.py: {message}")


def output(*command):
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        fail(f"{' '.join(command)}: {found.stderr.strip() or found.returncode}")
    return found.stdout


class Layer:
    """Files of a layer, by path without the first slash."""

    def __init__(self):
        self.entries = {}

    def put(self, path, mode, content=b"", owner=0):
        self.entries[path] = (tarfile.REGTYPE, mode, content, owner)

    def link(self, path, target):
        self.entries[path] = (tarfile.SYMTYPE, 0o777, target, 0)

    def folder(self, path, mode=0o755, owner=0):
        self.entries[path] = (tarfile.DIRTYPE, mode, b"", owner)

    def parents(self):
        for path in list(self.entries):
            while "/" in path:
                path = path.rsplit("/", 1)[0]
                self.entries.setdefault(path, (tarfile.DIRTYPE, 0o755, b"", 0))

    def tar(self, epoch):
        self.parents()
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(self.entries):
                kind, mode, content, owner = self.entries[path]
                info = tarfile.TarInfo(path)
                info.type, info.mode, info.mtime, info.uid, info.gid = kind, mode, epoch, owner, owner
                if kind == tarfile.SYMTYPE:
                    info.linkname = content
                    tar.addfile(info)
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return out.getvalue()


def base(packages_file):
    """The layer of Debian packages, as dpkg installed them here and its checksums confirm."""
    layer = Layer()
    listed = []
    for name in ("bin", "lib", "lib64", "sbin"):
        layer.folder(f"usr/{name}")
        layer.link(name, f"usr/{name}")
    for package in BASE:
        asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version} ${Architecture} ${db:Status-Abbrev}", package],
                               capture_output=True, text=True)
        # A foreign architecture beside the native one is a second line; the first is the native one.
        if asked.returncode != 0 or not asked.stdout.split()[2].startswith("ii"):
            fail(f"the Debian package {package} is not installed here. Run: apt-get install {package}")
        version, architecture = asked.stdout.split()[:2]
        listed.append(f"{package} {version} {architecture}")
        sums = {}
        for suffix in (f":{architecture}", ""):
            path = f"/var/lib/dpkg/info/{package}{suffix}.md5sums"
            if os.path.exists(path):
                lines = open(path, encoding="utf-8").read().splitlines()
                sums = {"/" + line.split(None, 1)[1]: line.split()[0] for line in lines}
                break
        for path in output("dpkg-query", "-L", package).splitlines():
            if not WANTED.match(path) or (os.path.isdir(path) and not os.path.islink(path)):
                continue
            inside = re.sub(r"^/(lib|lib64)/", r"/usr/\1/", path)[1:]
            if os.path.islink(path):
                layer.link(inside, os.readlink(path))
                continue
            content = open(path, "rb").read()
            if path in sums and hashlib.md5(content).hexdigest() != sums[path]:
                fail(f"{path} is not the file of {package} {version}. Run: apt-get install --reinstall {package}")
            layer.put(inside, os.stat(path).st_mode & 0o755 | 0o444, content)
        # Its folder may be a link to that of another package.
        with open(f"/usr/share/doc/{package}/copyright", "rb") as file:
            layer.put(f"usr/share/doc/{package}/copyright", 0o644, file.read())
        # Where scanners look for the packages of an image that has no dpkg.
        layer.put(f"var/lib/dpkg/status.d/{package}", 0o644, output("dpkg-query", "-s", package).encode())
    # Not /etc/ssl/certs/ca-certificates.crt of this machine: its administrator may have added roots.
    roots = sorted(path for path in layer.entries if path.startswith(ROOTS))
    layer.put("etc/ssl/certs/ca-certificates.crt", 0o644, b"".join(layer.entries.pop(path)[2] for path in roots))
    layer.put("etc/passwd", 0o644, f"root:x:0:0:root:/:/\nweir:x:{USER}:{USER}::/var/lib/weir:/\n".encode())
    layer.put("etc/group", 0o644, f"root:x:0:\nweir:x:{USER}:\n".encode())
    layer.put("etc/nsswitch.conf", 0o644, b"hosts: files dns\n")
    layer.folder("tmp", 0o1777)
    with open(packages_file, "w", encoding="utf-8") as file:
        file.write("\n".join(listed) + "\n")
    return layer, listed


def program(folder):
    layer = Layer()
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            content = open(path, "rb").read()
            layer.put(os.path.relpath(path, folder), os.stat(path).st_mode & 0o755 | 0o444, content)
    # A volume mounted here takes the owner over.
    layer.folder("var/lib/weir", 0o700, USER)
    return layer


def nanoseconds(text):
    match = re.fullmatch(r"(\d+)(ms|s|m)", text)
    if not match:
        fail(f"the Dockerfile has the time '{text}'. Expected a number with ms, s or m")
    return int(match[1]) * {"ms": 10**6, "s": 10**9, "m": 60 * 10**9}[match[2]]


def settings(dockerfile):
    """The image's settings, from the last stage of the Dockerfile."""
    lines = open(dockerfile, encoding="utf-8").read().replace("\\\n", " ").splitlines()
    config = {}
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            config = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        elif word == "USER":
            config["User"] = rest
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp" if "/" not in port else port: {} for port in rest.split()}
        elif word == "STOPSIGNAL":
            config["StopSignal"] = rest
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(rest)
        elif word == "HEALTHCHECK":
            options, _, command = rest.partition("CMD ")
            check = {"Test": ["CMD"] + json.loads(command)}
            for option in shlex.split(options):
                name, _, value = option.removeprefix("--").partition("=")
                check[name.capitalize()] = nanoseconds(value)
            config["Healthcheck"] = check
    for needed in ("User", "Entrypoint", "Cmd", "Healthcheck"):
        if needed not in config:
            fail(f"{dockerfile}: the last stage has no {needed.upper()}")
    return config


def main():
    parser = argparse.ArgumentParser()
    for option in ("layer", "dockerfile", "name", "version", "epoch", "commit", "compress", "packages"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("out")
    args = parser.parse_args()
    epoch = int(args.epoch)
    architecture = ARCHITECTURES.get(platform.machine()) or fail(f"no image for {platform.machine()}")
    level = 0 if args.compress == "none" else 9
    blobs = {}

    def blob(media, content):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    files, listed = base(args.packages)
    layers, diffs, history = [], [], []
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for layer, by in ((files, "Debian packages: " + ", ".join(listed)), (program(args.layer), f"weir {args.version}")):
        tar = layer.tar(epoch)
        diffs.append("sha256:" + hashlib.sha256(tar).hexdigest())
        layers.append(blob("application/vnd.oci.image.layer.v1.tar+gzip", gzip.compress(tar, level, mtime=0)))
        history.append({"created": created, "created_by": by})
    config = settings(args.dockerfile)
    config["Labels"] = {
        "org.opencontainers.image.title": args.name,
        "org.opencontainers.image.description": "API gateway and load tester",
        "org.opencontainers.image.version": args.version,
        "org.opencontainers.image.revision": args.commit,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created,
    }

    def encoded(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    image = {"architecture": architecture, "os": "linux", "created": created, "config": config,
             "rootfs": {"type": "layers", "diff_ids": diffs}, "history": history}
    image = blob("application/vnd.oci.image.config.v1+json", encoded(image))
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": image,
                "layers": layers}
    manifest = blob(manifest["mediaType"], encoded(manifest))
    manifest["platform"] = {"architecture": architecture, "os": "linux"}
    tag = f"{args.name}:{args.version}"
    manifest["annotations"] = {"org.opencontainers.image.ref.name": args.version, "io.containerd.image.name":
                               f"docker.io/library/{tag}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}

    def place(descriptor):
        return "blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")

    archive = Layer()
    archive.put("oci-layout", 0o644, encoded({"imageLayoutVersion": "1.0.0"}))
    archive.put("index.json", 0o644, encoded(index))
    # For `docker load` before Docker 25, which does not know the layout.
    docker = [{"Config": place(image), "RepoTags": [tag], "Layers": [place(layer) for layer in layers]}]
    archive.put("manifest.json", 0o644, encoded(docker))
    for digest, content in blobs.items():
        archive.put(f"blobs/sha256/{digest}", 0o644, content)
    with open(args.out, "wb") as file:
        file.write(archive.tar(epoch))


main()
