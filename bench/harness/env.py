"""One run: its builds, its origins, and the values for every gateway's config."""

import os
import pathlib
import subprocess
import sys

from .gateway import fill
from .process import Process, free_port

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent


class Env:
    """One run: its builds, its scratch folder, and the length and number of measurements."""

    def __init__(self, scratch, gateways, weir, descriptors, *, rounds=0, seconds=0):
        self.scratch, self.weir, self.rounds, self.seconds = scratch, weir, rounds, seconds
        # Most suites compare with the peers only; those of single requests with all.
        self.gateways = [g for g in gateways if g.role != "other"]
        self.all_gateways = gateways
        self.tools = build_tools(scratch)
        cert, key, pem = certificate(scratch)
        # Three quarters are for connections: idle ones hold one descriptor, busy ones two, and the suites stay below
        # both limits.
        self.values = {"bin": weir, "tools": self.tools, "cert": cert, "key": key, "pem": pem, "descriptors": descriptors, "connections": descriptors * 3 // 4}
        self._origins = {}

    def answer(self, size=1024):
        """The port of the origin for small answers: 1 KiB, or as many bytes, or `@FILE`."""
        return self._origin("answer", size)

    def blob(self, size):
        """The port of the origin for large bodies."""
        return self._origin("blob", size)

    def h2c(self):
        """The port of a cleartext HTTP/2 origin for small answers: nginx, from memory."""
        if "h2c" not in self._origins:
            port, folder = free_port(), self.scratch / "h2c"
            folder.mkdir()
            config = folder / "nginx.conf"
            config.write_text(fill((BENCH / "tools/h2c.conf").read_text(), {"port": port, "dir": folder, "body": "x" * 1024}))
            p = Process("h2c", ["nginx", "-p", str(folder), "-c", str(config)], folder / "log")
            p.wait_for_port(port)
            self._origins["h2c"] = port
        return self._origins["h2c"]

    def greeter(self):
        """The port of a gRPC server in Go, which accepts every method and echoes the message."""
        if "greeter" not in self._origins:
            port, binary = free_port(), self.tools / "greeter"
            subprocess.run(["go", "build", "-o", str(binary), "."], cwd=BENCH / "tools/greeter", check=True)
            p = Process("greeter", [str(binary), str(port)], self.scratch / "greeter.log")
            p.wait_for_port(port)
            self._origins["greeter"] = port
        return self._origins["greeter"]

    def builtin(self):
        """The port of Weir's own origin: HTTP/1.1, HTTP/2 and gRPC in cleartext, with code that no gateway uses."""
        if "builtin" not in self._origins:
            port = free_port()
            p = Process("origin", [str(self.weir), "origin", "--http", f"127.0.0.1:{port}", "--threads", "1"], self.scratch / "origin.log")
            p.wait_for_port(port)
            self._origins["builtin"] = port
        return self._origins["builtin"]

    def _origin(self, tool, size):
        if (tool, size) not in self._origins:
            port = free_port()
            p = Process(tool, [str(self.tools / tool), str(port), str(size)], self.scratch / f"{tool}-{len(self._origins)}.log")
            p.wait_for_port(port)
            self._origins[tool, size] = port
        return self._origins[tool, size]

    @staticmethod
    def say(text):
        print(text, file=sys.stderr, flush=True)


def build_weir(profile):
    """Builds the binary and returns its path."""
    Env.say(f"building weir with --profile {profile}")
    subprocess.run(["cargo", "build", "--locked", "--profile", profile, "--bin", "weir"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / profile / "weir"


def build_tools(scratch):
    folder = scratch / "tools"
    folder.mkdir()
    for source in sorted((BENCH / "tools").glob("*.c")):
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", str(folder / source.stem), str(source)], check=True)
    return folder


def certificate(scratch):
    """One ECDSA P-256 certificate for all: certificate, key, and both in one file, as HAProxy requires."""
    cert, key, pem = (scratch / n for n in ("cert.pem", "key.pem", "both.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True)  # fmt: skip
    pem.write_bytes(cert.read_bytes() + key.read_bytes())
    for f in (cert, key, pem):
        f.chmod(0o644)
    return cert, key, pem
