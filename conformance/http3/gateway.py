"""What the judges of HTTP/3 share: packages, a certificate, an origin, and weir on gateway.yaml."""

import hashlib
import http.server
import os
import pathlib
import socketserver
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from environment import certificate, imported

AIOQUIC = "1.7.2"
imported("http3", "aioquic", AIOQUIC, "aioquic.quic.connection")

import judge


class Origin(judge.Answers):
    """POST: the length and the SHA-256 of the body. GET /bytes/N: N bytes."""

    def do_POST(self):
        digest, length = hashlib.sha256(), 0
        for piece in self._pieces():
            digest.update(piece)
            length += len(piece)
        self.answer(f"{length} {digest.hexdigest()}".encode())

    def do_GET(self):
        self.answer(b"x" * int(self.path.split("/")[2]) if self.path.startswith("/bytes/") else self.path.encode())

    def _pieces(self):
        if "content-length" in self.headers:
            left = int(self.headers["content-length"])
            while left and (piece := self.rfile.read(min(left, 65536))):
                left -= len(piece)
                yield piece
            return
        while length := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()

    def handle(self):
        try:
            super().handle()
        except (OSError, ValueError):
            pass  # a client that has gone


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 1024


class Gateway:
    """A running weir, with its ports."""

    def __init__(self):
        work = judge.WORK
        self.cert, self.key = certificate(work)
        self.log = work / "access.log"
        self.files = work / "files"
        self.files.mkdir()
        with open(self.files / "big", "wb") as big:
            self.big = hashlib.sha256()
            for n in range(160):
                piece = hashlib.sha512(str(n).encode()).digest() * 1024
                self.big.update(piece)
                big.write(piece)
        self.big_length = 160 * 65536
        (self.files / "page.html").write_text("<!doctype html><title>page</title><p>waiting</p>")
        origin = Server(("127.0.0.1", 0), Origin)
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        self.retry, self.early, self.plain = judge.free_port(), judge.free_port(), judge.free_port()
        os.environ.update(
            CERT=str(self.cert), KEY=str(self.key), FILES=str(self.files), LOG=str(self.log),
            RETRY_PORT=str(self.retry), EARLY_PORT=str(self.early), PLAIN_PORT=str(self.plain),
        )  # fmt: skip
        config = os.environ.get("WEIR_CONFIG", HERE / "gateway.yaml")
        self.port, self.admin, self.child = judge.start_weir(config, origin.server_port)

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.child.pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
