#!/usr/bin/env python3
"""`weir load --http3` against aioquic's server: what the report counts must be what the server counted.

usage: h3load.py
"""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from environment import ROOT, certificate, imported

VERSION = "1.7.2"

# name, options, requests that the server must count (none: as many as the report), bytes of each answer
RUNS = [
    ("closed loop", ["-n", "1000", "-c", "4", "-m", "10"], 1000, 1024),
    ("fixed rate", ["--rate", "200/s", "-d", "3s", "-c", "8", "-m", "4"], 600, 10),
    ("uploads", ["-n", "60", "-c", "2", "-m", "3", "--data", "x" * 50_000], 60, 0),
    ("large answers", ["-n", "20", "-c", "2", "-m", "2"], 20, 500_000),
    ("a connection for each request", ["-n", "40", "-c", "4", "--no-keepalive"], 40, 10),
    ("more streams than allowed", ["-n", "600", "-c", "1", "-m", "300"], 600, 10),
]


class Seen:
    def __init__(self):
        self.size = 0
        self.reset()

    def reset(self):
        self.connections = self.requests = self.received = 0


def protocol(seen):
    """aioquic's server: answers each request with `seen.size` bytes, and counts."""
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.events import ProtocolNegotiated

    class Server(QuicConnectionProtocol):
        h3 = None

        def quic_event_received(self, event):
            if isinstance(event, ProtocolNegotiated):
                self.h3 = H3Connection(self._quic)
                seen.connections += 1
            if self.h3 is None:
                return
            for got in self.h3.handle_event(event):
                if isinstance(got, DataReceived):
                    seen.received += len(got.data)
                if isinstance(got, (DataReceived, HeadersReceived)) and got.stream_ended:
                    seen.requests += 1
                    head = [(b":status", b"200"), (b"server", b"aioquic"), (b"content-length", str(seen.size).encode())]
                    self.h3.send_headers(got.stream_id, head, end_stream=seen.size == 0)
                    if seen.size:
                        self.h3.send_data(got.stream_id, b"y" * seen.size, end_stream=True)
            self.transmit()

    return Server


async def load(port, cert, options):
    weir = os.environ.get("WEIR_BIN", str(ROOT / "target/release/weir"))
    url = f"https://localhost:{port}/a?b"
    command = [weir, "load", "--http3", "--cacert", cert, "--resolve", f"localhost:{port}:127.0.0.1", *options]
    command += ["--format", "json", "--timeout", "20s", url]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, told = await asyncio.wait_for(process.communicate(), 120)
    try:
        return json.loads(out)
    except ValueError:
        raise AssertionError(f"no report, exit code {process.returncode}: {told.decode()[-500:]}") from None


async def judge():
    from aioquic.asyncio.server import serve
    from aioquic.h3.connection import H3_ALPN
    from aioquic.quic.configuration import QuicConfiguration

    failed = False
    with tempfile.TemporaryDirectory() as folder:
        cert, key = certificate(pathlib.Path(folder))
        config = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
        config.load_cert_chain(cert, key)
        seen = Seen()
        server = await serve("127.0.0.1", 0, configuration=config, create_protocol=protocol(seen))
        port = server._transport.get_extra_info("sockname")[1]
        for name, options, want, size in RUNS:
            seen.reset()
            seen.size = size
            try:
                report = await load(port, cert, options)
                counts, bytes_ = report["counts"], report["bytes"]
                told = {
                    "requests": (counts["requests"], seen.requests, want),
                    "responses": (counts["responses"], want, want),
                    "bodies received": (bytes_["received_body"], size * want, size * want),
                    "bodies sent": (bytes_["sent_body"], seen.received, seen.received),
                    "connections": (report["connections"]["opened"], seen.connections, seen.connections),
                    "HTTP/3": (report["ledger"]["protocols"].get("HTTP/3"), want, want),
                }
                wrong = {what: values for what, values in told.items() if len(set(values)) > 1}
                assert not wrong, f"report, server and expectation differ: {wrong}; errors {counts['error_texts']}"
                print(f"PASS h3load: {name}: {want} requests, {seen.connections} connections")
            except Exception as e:
                failed = True
                print(f"FAIL h3load: {name}: {type(e).__name__}: {e}")
        server.close()
    return failed


if __name__ == "__main__":
    imported("h3load", "aioquic", VERSION, "aioquic.h3.connection")
    sys.exit(asyncio.run(judge()))
