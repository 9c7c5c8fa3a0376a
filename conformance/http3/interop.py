#!/usr/bin/env python3
"""Independent clients of HTTP/3 against the gateway: aioquic, curl, ngtcp2's gtlsclient and quic-go; directly and through
a relay that drops, reorders and rebinds.

usage: interop.py [WORD]...   (only the cases with all these words)
"""

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

from gateway import AIOQUIC, HERE, Gateway, imported, judge

imported("http3", "curl_cffi", "0.17.0", "curl_cffi")

from peer import ECT0, Peer, frame, get, post, random_id, section, varint
from relay import Relay

CASES = []


def case(text):
    def add(act):
        CASES.append((text, act))
        return act

    return add


def served(peer):
    message = peer.ask()
    assert bytes(message.body) == b"hello\n", f"{bytes(message.body)!r}, reset {message.reset}, {peer.closed}"
    return peer


def downloads(gateway, peer, seconds=30, before=None):
    """Gets 10 MB; `before` is called once a megabyte has arrived."""
    stream = peer.request(frame(1, get("/files/big")))
    message = peer.message(stream)
    if before:
        assert peer.until(lambda: message.length > 1 << 20, seconds), f"{message.length} bytes, {peer.closed}"
        before()
    peer.answered(stream, seconds)
    assert hashlib.sha256(message.body).hexdigest() == gateway.big.hexdigest(), f"{message.length} bytes, {peer.closed}, reset {message.reset}"


def uploads(peer, length, seconds=30, before=None):
    body = os.urandom(1024) * (length // 1024)
    stream = peer.request(frame(1, post("/sum", len(body))) + varint(0) + varint(len(body)) + body)
    if before:
        peer.until(lambda: False, 0.05)
        before()
    got = bytes(peer.answered(stream, seconds).body)
    assert got == f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode(), f"{got!r}, {peer.closed}"


# === the handshake ===


@case("handshake, and a request")
def _(gateway):
    served(Peer(gateway.port).setup()).close()


@case("each cipher suite of TLS 1.3 alone")
def _(gateway):
    from aioquic.tls import CipherSuite

    for suite in (CipherSuite.AES_128_GCM_SHA256, CipherSuite.AES_256_GCM_SHA384, CipherSuite.CHACHA20_POLY1305_SHA256):
        served(Peer(gateway.port, cipher_suites=[suite]).setup()).close()


@case("an unknown version gets Version Negotiation, and versions of a short datagram nothing")
def _(gateway):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", gateway.port))
        s.settimeout(0.5)
        to, ours = random_id(), random_id()
        packet = b"\xc0" + struct.pack(">I", 0x1A2A3A4A) + b"\x08" + to + b"\x08" + ours
        s.send(packet.ljust(1200, b"\0"))
        got = s.recv(2000)
        assert got[0] & 0x80 and got[1:5] == b"\0\0\0\0" and got[5:14] == b"\x08" + ours and got[14:23] == b"\x08" + to, got.hex()
        versions = struct.unpack(f">{(len(got) - 23) // 4}I", got[23:])
        assert 1 in versions, versions
        s.send(packet.ljust(300, b"\0"))
        try:
            raise AssertionError(f"an answer to a short one: {s.recv(2000).hex()}")
        except TimeoutError:
            pass


@case("Retry for everybody: the token works, another client's or a changed one does not")
def _(gateway):
    peer = served(Peer(gateway.retry).setup())
    token = peer.quic._peer_token
    assert token, "no Retry"
    peer.close()
    for wrong in (token, token[:-1] + bytes([token[-1] ^ 1])):
        other = Peer(gateway.retry)
        other.quic._peer_token = wrong
        other.begin()
        other.until(lambda: other.is_done, 2)
        # Another address or a changed token: INVALID_TOKEN, or another Retry.
        assert not other.is_done or other.quic._peer_token != wrong, "the token of another client works"
        other.close()


@case("resumption")
def _(gateway):
    first = served(Peer(gateway.port).setup())
    assert first.until(lambda: first.ticket is not None), "no ticket"
    first.close()
    second = served(Peer(gateway.port, session_ticket=first.ticket).setup())
    assert second.quic.tls.session_resumed, "a full handshake"
    assert not second.quic.tls.early_data_accepted, "0-RTT is off"
    second.close()


@case("0-RTT where the listener has it: a ticket works once, and a replayed request waits for the handshake")
def _(gateway):
    first = served(Peer(gateway.early).setup())
    assert first.until(lambda: first.ticket is not None), "no ticket"
    first.close()
    if not first.ticket.max_early_data_size:
        raise AssertionError("the ticket allows no early data")
    for nth in range(2):
        peer = Peer(gateway.early, session_ticket=first.ticket)
        peer.quic.connect(peer.address, time.monotonic())
        peer.uni(varint(0) + frame(4))
        stream = peer.request(frame(1, get()))
        peer.flush()
        message = peer.answered(stream)
        assert bytes(message.body) == b"hello\n", f"{nth}: {peer.closed}"
        assert peer.quic.tls.early_data_accepted == (nth == 0), f"{nth}: accepted {peer.quic.tls.early_data_accepted}"
        peer.close()


# === amplification (RFC 9000 §8) ===


@case("amplification: a client that never answers gets at most 3 times its bytes")
def _(gateway):
    peer = Peer(gateway.port)
    sent = peer.begin().sent
    end = time.monotonic() + 4
    got, peer.relay = 0, lambda datagram: False
    while time.monotonic() < end:
        peer.receive(0.1)
    assert 0 < peer.received <= 3 * sent, f"{peer.received} for {sent}"


@case("amplification: Retry answers at most as many bytes as it gets")
def _(gateway):
    peer = Peer(gateway.retry)
    sent = peer.begin().sent
    peer.relay = lambda datagram: False
    end = time.monotonic() + 2
    while time.monotonic() < end:
        peer.receive(0.1)
    assert 0 < peer.received <= sent, f"{peer.received} for {sent}"


# RFC 9000 §8.2.1 would have the gateway send less than a whole PATH_CHALLENGE here. Since quinn-proto always sends one,
# the gateway limits how many addresses a client can have challenged.
DATAGRAM = 1452


@case("amplification: a new address gets at most 3 times its bytes and the rest of a datagram before it is proved")
def _(gateway):
    peer = Peer(gateway.port).setup()
    stream = peer.request(frame(1, get("/files/big")))
    assert peer.until(lambda: peer.message(stream).length > 1 << 20, 20)
    peer.socket.close()
    peer.socket = peer.new_socket()
    sent, got = peer.sent, peer.received
    peer.frames(b"\x01")
    peer.relay = lambda datagram: False
    end = time.monotonic() + 2
    while time.monotonic() < end:
        peer.receive(0.1)
    sent, got = peer.sent - sent, peer.received - got
    assert got < 3 * sent + DATAGRAM, f"{got} for {sent}"


@case("amplification: of 200 addresses that a client pretends to have, few get a datagram")
def _(gateway):
    peer, sockets = Peer(gateway.port).setup(), []
    served(peer)
    for _ in range(200):
        peer.socket = peer.new_socket()
        sockets.append(peer.socket)
        peer.frames(b"\x01")
        time.sleep(0.005)  # otherwise the gateway reads many at once and answers the last
    time.sleep(0.5)
    asked = 0
    for one in sockets:
        one.setblocking(False)
        try:
            asked += bool(one.recv(2000))
        except BlockingIOError:
            pass
        one.close()
    assert asked <= 20, f"{asked} got one"


@case("a request from an address that is not proved counts as the client's last proved one")
def _(gateway):
    peer = Peer(gateway.port).setup()
    assert peer.ask("/files/who").status() == 403, "the filter lets everybody in"
    forged = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    forged.bind(("127.0.0.2", 0))
    stream, request = peer.request(b"", False), frame(1, get("/files/who"))
    forged.sendto(peer.packet(b"\x0b" + varint(stream) + varint(len(request)) + request), peer.address)
    time.sleep(0.5)
    # The packet came through, and its answer is on its way to an address that says nothing.
    peer.frames(b"\x01")
    message = peer.answered(stream)
    assert message.status() == 403, f"served to somebody else: {message.status()}, {peer.closed}"
    forged.close()


@case("a stateless reset for an unknown connection is shorter than what asked for it, and unlike itself")
def _(gateway):
    answers = []
    for size in (60, 100, 1200):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", gateway.port))
            s.settimeout(0.3)
            s.send(b"\x40" + os.urandom(size - 1))
            try:
                answers.append((size, s.recv(2000)))
            except TimeoutError:
                pass  # §10.3 allows silence
    assert all(21 <= len(got) < size and got[0] & 0xC0 == 0x40 for size, got in answers), [(size, got.hex()) for size, got in answers]


# === a connection that lasts ===


@case("key updates during a download and an upload")
def _(gateway):
    peer = Peer(gateway.port).setup()
    for _ in range(3):
        peer.quic.request_key_update()
        served(peer)
        downloads(gateway, peer, before=peer.quic.request_key_update)
        uploads(peer, 1 << 20)
    peer.close()


@case("migration to another port, 10 times, during a download and an upload")
def _(gateway):
    peer = Peer(gateway.port).setup()
    downloads(gateway, peer, before=peer.migrate)
    uploads(peer, 4 << 20, before=peer.migrate)
    for _ in range(8):
        peer.migrate()
        served(peer)
    peer.close()


@case("NAT that rebinds, 5 times, during a download")
def _(gateway):
    relay = Relay(gateway.port)
    peer = Peer(relay.port).setup()
    for _ in range(5):
        downloads(gateway, peer, before=relay.rebind)
    peer.close()
    relay.close()


@case("ECN: what we mark is counted, and the gateway marks its own")
def _(gateway):
    peer = Peer(gateway.port)
    peer.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
    peer.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    counted, handlers = [], peer.quic._QuicConnection__frame_handlers

    def with_counts(context, kind, buf):
        handlers[0x02][0](context, 0x02, buf)
        counted.append([buf.pull_uint_var() for _ in range(3)])

    handlers[0x03] = (with_counts, handlers[0x03][1])
    peer.begin()
    peer.socket.settimeout(2)
    # The gateway stops marking once it sees that aioquic counts no marks, so only its first datagram tells.
    data, extra, _, _ = peer.socket.recvmsg(2000, 100)
    marks = [data[0] & 3 for level, kind, data in extra if kind == socket.IP_TOS]
    assert marks == [ECT0], f"marks {marks}"
    peer.quic.receive_datagram(data, peer.address, time.monotonic())
    assert peer.until(lambda: peer.is_done), f"{peer.closed}"
    peer.uni(varint(0) + frame(4))
    served(peer)
    assert counted and counted[-1][0] > 0 and counted[-1][2] == 0, f"counts {counted[-3:]}"
    peer.close()


@case("200 requests on one connection at the same time, and 1,000 in turn")
def _(gateway):
    peer = Peer(gateway.port).setup()
    # No more at the same time than the server allows: aioquic keeps the others back.
    streams = [peer.request(frame(1, get())) for _ in range(200)]
    assert peer.until(lambda: all(peer.message(stream).ended for stream in streams), 20), f"{peer.closed}"
    assert all(bytes(peer.message(stream).body) == b"hello\n" for stream in streams)
    for _ in range(1000):
        served(peer)
    peer.close()


@case("bodies of 0, 1, 16 KiB and 20 MB up, and 20 downloads at the same time")
def _(gateway):
    peer = Peer(gateway.port).setup()
    for length in (0, 1024, 16 << 10, 20 << 20):
        uploads(peer, length, 60)
    streams = [peer.request(frame(1, get("/bytes/300000"))) for _ in range(20)]
    assert peer.until(lambda: all(peer.message(stream).ended for stream in streams), 30)
    assert {peer.message(stream).length for stream in streams} == {300_000}
    peer.close()


@case("HEAD, trailers, and a body that is announced without a length")
def _(gateway):
    peer = Peer(gateway.port).setup()
    head = section((":method", "HEAD"), (":scheme", "https"), (":authority", "localhost"), (":path", "/files/big"))
    message = peer.answered(peer.request(frame(1, head)))
    assert message.status() == 200 and message.head()[b"content-length"] == b"%d" % gateway.big_length and message.length == 0, message.head()
    payload = frame(1, post("/sum")) + frame(0, b"abc") + frame(0, b"def") + frame(1, section(("a", "b")))
    got = bytes(peer.answered(peer.request(payload)).body)
    assert got == f"6 {hashlib.sha256(b'abcdef').hexdigest()}".encode(), got
    peer.close()


@case("a request that is cancelled does not disturb the next")
def _(gateway):
    peer = Peer(gateway.port).setup()
    for _ in range(50):
        stream = peer.request(frame(1, get("/files/big")))
        peer.until(lambda: peer.message(stream).length > 0, 5)
        peer.quic.stop_stream(stream, 0x10C)
        served(peer)
    peer.close()


# === bad networks ===


def through(gateway, loss, reorder, seed):
    relay = Relay(gateway.port, loss, reorder, seed)
    peer = Peer(relay.port).connect(10)
    peer.uni(varint(0) + frame(4))
    served(peer)
    downloads(gateway, peer, 60)
    uploads(peer, 2 << 20, 60)
    peer.close()
    relay.close()
    assert relay.dropped + relay.reordered > 20, f"the relay dropped {relay.dropped} and reordered {relay.reordered}"


for loss, reorder in ((0.01, 0), (0.05, 0), (0, 0.05), (0.01, 0.02)):
    case(f"10 MB down and 2 MB up with {loss:.0%} lost and {reorder:.0%} reordered")(
        lambda gateway, loss=loss, reorder=reorder: through(gateway, loss, reorder, 7)
    )


@case("20 handshakes with 5% lost")
def _(gateway):
    for seed in range(20):
        relay = Relay(gateway.port, 0.05, 0, seed)
        peer = Peer(relay.port).connect(10)
        peer.uni(varint(0) + frame(4))
        served(peer).close()
        relay.close()


# === other clients ===


@case("curl: requests, 10 MB down, 5 MB up, on one connection")
def _(gateway):
    from curl_cffi import requests
    from curl_cffi.const import CurlHttpVersion

    base = f"https://localhost:{gateway.port}"
    with requests.Session(verify=str(gateway.cert), http_version=CurlHttpVersion.V3ONLY) as curl:
        for _ in range(20):
            answer = curl.get(f"{base}/hello", timeout=10)
            assert answer.content == b"hello\n" and int(answer.http_version) == 30, (answer.http_version, answer.content)
        assert hashlib.sha256(curl.get(f"{base}/files/big", timeout=60).content).hexdigest() == gateway.big.hexdigest()
        body = os.urandom(5 << 20)
        assert curl.post(f"{base}/sum", data=body, timeout=60).text == f"{len(body)} {hashlib.sha256(body).hexdigest()}"
        answer = curl.get(f"{base}/none", timeout=10)
        assert answer.status_code == 200 and answer.content == b"/none", answer.content


def gtls(gateway, *options, port=None, uris=("/hello",), least=1):
    client = shutil.which("gtlsclient")
    assert client, "gtlsclient is not installed (Debian: ngtcp2-client)"
    folder = judge.WORK / "downloads"
    folder.mkdir(exist_ok=True)
    port = str(port or gateway.port)
    command = [client, "--exit-on-all-streams-close", "--no-quic-dump", "--no-http-dump", f"--download={folder}", *options, "127.0.0.1", port]
    command += [f"https://localhost:{port}{uri}" for uri in uris]
    done = subprocess.run(command, capture_output=True, timeout=60)
    text = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, f"exit code {done.returncode}: {text[-300:]}"
    assert text.count("[:status: 200]") >= least, f"{text.count('[:status: 200]')} answers of {least}: {text[-300:]}"
    for uri in uris:
        if uri == "/files/big":
            assert hashlib.sha256((folder / "big").read_bytes()).hexdigest() == gateway.big.hexdigest(), "other bytes"
    return text


@case("gtlsclient: a request, 100 requests, 10 MB")
def _(gateway):
    gtls(gateway)
    gtls(gateway, "-n", "100", least=100)
    gtls(gateway, uris=["/files/big"])


@case("gtlsclient: Retry")
def _(gateway):
    gtls(gateway, port=gateway.retry)


# Its --nat-rebinding is of no use: after it the client sends nothing but NEW_CONNECTION_ID, upon which a server may not
# follow it (RFC 9000 §9.1).
@case("gtlsclient: a change of address and a key update, each during 10 MB")
def _(gateway):
    gtls(gateway, "--change-local-addr=30ms", uris=["/files/big"])
    gtls(gateway, "--key-update=10ms", uris=["/files/big"])


@case("gtlsclient: 5% lost on both ways")
def _(gateway):
    gtls(gateway, "--tx-loss=0.05", "--rx-loss=0.05", uris=["/files/big"])


@case("gtlsclient: resumption")
def _(gateway):
    files = [f"--session-file={judge.WORK / 'session'}", f"--tp-file={judge.WORK / 'parameters'}"]
    gtls(gateway, *files)
    assert (judge.WORK / "session").exists(), "no ticket"
    gtls(gateway, *files)


@case("quic-go: requests, 300 at once, 10 MB down, 5 MB up, resumption")
def _(gateway):
    binary = os.environ.get("QUICGO")
    if not binary:
        assert shutil.which("go"), "Go is not installed"
        binary = judge.TOOLS / "quicgo-0.65.0"
        if not binary.exists():
            judge.TOOLS.mkdir(parents=True, exist_ok=True)
            subprocess.run(["go", "build", "-o", binary, "."], cwd=HERE / "quicgo", check=True, stdin=subprocess.DEVNULL)
    command = [binary, str(gateway.port), gateway.cert, gateway.big.hexdigest()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-600:]


def main():
    words, gateway = sys.argv[1:], Gateway()
    for text, act in CASES:
        if not all(word in text for word in words):
            continue
        began = time.monotonic()
        try:
            act(gateway)
            judge.verdict(True, f"http3 interop: {text} ({time.monotonic() - began:.1f} s)")
        except Exception as e:
            judge.verdict(False, f"http3 interop: {text}: {type(e).__name__}: {e}")
    judge.verdict(gateway.child.poll() is None, f"http3 interop: the gateway still runs (aioquic {AIOQUIC})")
    sys.exit(bool(judge.failed))


if __name__ == "__main__":
    main()
