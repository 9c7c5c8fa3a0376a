#!/usr/bin/env python3
"""A client that breaks the rules of QUIC, HTTP/3 and QPACK, one per connection, and expects the error that the RFC names.

A stream error may also be a connection error of the same code (RFC 9114 §8), and a malformed request may be answered
with 400 (§4.1.2). After each case another client is served.

usage: rules.py [WORD]...   (only the cases with all these words)
"""

import sys

from gateway import AIOQUIC, Gateway, judge
from aioquic.quic.connection import QuicConnectionId
from peer import CONTROL, DECODER, ENCODER, HANDSHAKE, INITIAL, PUSH, Peer, frame, get, post, prefixed, section, varint

# RFC 9000 §20.1
FLOW, STREAM_LIMIT, STREAM_STATE, FINAL_SIZE, ENCODING, PARAMETER = 3, 4, 5, 6, 7, 8
ID_LIMIT, VIOLATION = 9, 10
ALERT = 0x100
# RFC 9114 §8.1, RFC 9204 §6
CREATION, CLOSED, UNEXPECTED, FRAME, LOAD, ID, SETTINGS_ERROR, MISSING = 0x103, 0x104, 0x105, 0x106, 0x107, 0x108, 0x109, 0x10A
INCOMPLETE, MESSAGE = 0x10D, 0x10E
DECOMPRESSION, ENCODER_ERROR, DECODER_ERROR = 0x200, 0x201, 0x202

CASES = []


def case(rule, text, *codes, how=None):
    """Adds a case. With `how`, the peer gets ready that way; otherwise HTTP/3 is set up."""

    def add(act):
        CASES.append((rule, text, codes, how or (lambda port: Peer(port).setup()), act))

    return add


def frames_case(rule, text, code, payload):
    case(rule, text, code, how=lambda port: Peer(port).connect())(lambda peer: peer.frames(payload))


# === QUIC: transport parameters (RFC 9000 §7.3, §18.2) ===


def parameters(rule, text, alter, *codes):
    case(rule, text, *(codes or (PARAMETER,)), how=lambda port: Peer(port, alter=alter))(lambda peer: peer.begin())


def without(id):
    return lambda found: [(known, value) for known, value in found if known != id]


def replaced(id, value):
    return lambda found: [(known, old) for known, old in found if known != id] + [(id, value)]


parameters("9000 §7.3", "no initial_source_connection_id", without(0x0F))
parameters("9000 §7.3", "an initial_source_connection_id that is not the one used", replaced(0x0F, b"12345678"))
parameters("9000 §18.2", "original_destination_connection_id of a client", replaced(0x00, b"12345678"))
parameters("9000 §18.2", "stateless_reset_token of a client", replaced(0x02, bytes(16)))
parameters("9000 §18.2", "preferred_address of a client", replaced(0x0D, bytes(24) + b"\x04abcd" + bytes(16)))
parameters("9000 §18.2", "retry_source_connection_id of a client", replaced(0x10, b"12345678"))
parameters("9000 §18.2", "max_udp_payload_size of 1199", replaced(0x03, varint(1199)))
parameters("9000 §18.2", "ack_delay_exponent of 21", replaced(0x0A, varint(21)))
parameters("9000 §18.2", "max_ack_delay of 2^14", replaced(0x0B, varint(1 << 14)))
parameters("9000 §18.2", "active_connection_id_limit of 1", replaced(0x0E, varint(1)))
parameters("9000 §18.2", "initial_max_streams_bidi above 2^60", replaced(0x08, varint((1 << 60) + 1)), PARAMETER, ENCODING)
parameters("9000 §18.2", "disable_active_migration with a value", replaced(0x0C, b"\1"))
parameters("9000 §7.4", "the same parameter twice", lambda found: found + [(0x01, varint(1000)), (0x01, varint(1000))])
parameters("9000 §18", "a parameter longer than the extension", lambda found: found[:-1] + [(0x0B, b"\x40")])


@case("9001 §8.2", "no quic_transport_parameters extension", ALERT + 109, how=Peer)
def _(peer):
    initialize = peer.quic._initialize

    def bare(*args):
        initialize(*args)
        peer.quic.tls.handshake_extensions = []

    peer.quic._initialize = bare
    peer.begin()


@case("9001 §8.1", "no protocol in common (ALPN)", ALERT + 120, how=lambda port: Peer(port, alpn=["h9"]))
def _(peer):
    peer.begin()


# === QUIC: packets and frames (RFC 9000 §12.4, §17, §19) ===


@case("9000 §17.2", "reserved bits in a Handshake packet", VIOLATION, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\1", HANDSHAKE, reserved=3)


@case("9000 §17.3.1", "reserved bits in a short header", VIOLATION, how=lambda port: Peer(port).connect())
def _(peer):
    peer.frames(b"\1", reserved=3)


@case("9000 §12.4", "a packet without frames", VIOLATION, how=lambda port: Peer(port).connect())
def _(peer):
    peer.frames(b"")


@case("9000 §17.2.4", "PATH_CHALLENGE in a Handshake packet", VIOLATION, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\x1a12345678", HANDSHAKE)


@case("9000 §17.2.4", "STREAM in a Handshake packet", VIOLATION, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\x08\0abcd", HANDSHAKE)


@case("9000 §12.4", "CONNECTION_CLOSE of the application in a Handshake packet", VIOLATION, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\x01\x1d\x40\x55\x00", HANDSHAKE)


@case("9000 §12.5", "ACK of a packet that was never sent", VIOLATION, how=lambda port: Peer(port).connect())
def _(peer):
    peer.frames(b"\x02" + varint(900_000) + b"\0\0\0")


frames_case("9000 §12.4", "a frame of an unknown type", ENCODING, b"\x21")
frames_case("9000 §19.3", "an ACK range below zero", ENCODING, b"\x02\0\0\0\1")
frames_case("9000 §19.4", "RESET_STREAM of a stream that only we send on", STREAM_STATE, b"\x04\x03\0\0")
frames_case("9000 §19.5", "STOP_SENDING of a stream that the server has not opened", STREAM_STATE, b"\x05\x13\0")
frames_case("9000 §19.5", "STOP_SENDING of a stream that only the client sends on", STREAM_STATE, b"\x05\x02\0")
frames_case("9000 §19.7", "NEW_TOKEN of a client", VIOLATION, b"\x07\x04abcd")
frames_case("9000 §19.8", "STREAM for a stream that the server has not opened", STREAM_STATE, b"\x0a\x01\x01a")
frames_case("9000 §19.8", "STREAM for a stream that only the server sends on", STREAM_STATE, b"\x0a\x03\x01a")
frames_case("9000 §19.8", "STREAM beyond 2^62 - 1", (FLOW, ENCODING), b"\x0e\0" + varint((1 << 62) - 1) + b"\x01a")
frames_case("9000 §19.10", "MAX_STREAM_DATA of a stream that the server has not opened", STREAM_STATE, b"\x11\x13\x10")
frames_case("9000 §19.10", "MAX_STREAM_DATA of a stream that only the client sends on", STREAM_STATE, b"\x11\x02\x10")
frames_case("9000 §19.11", "MAX_STREAMS above 2^60", ENCODING, b"\x12" + varint((1 << 60) + 1))
frames_case("9000 §19.11", "MAX_STREAMS of one way above 2^60", ENCODING, b"\x13" + varint((1 << 60) + 1))
frames_case("9000 §19.14", "STREAMS_BLOCKED above 2^60", (ENCODING, STREAM_LIMIT), b"\x16" + varint((1 << 60) + 1))
frames_case("9000 §19.15", "NEW_CONNECTION_ID that retires ids beyond itself", ENCODING, b"\x18\x09\x0a\x0812345678" + bytes(16))
frames_case("9000 §19.15", "NEW_CONNECTION_ID without an id", ENCODING, b"\x18\x09\0\0" + bytes(16))
frames_case("9000 §19.15", "NEW_CONNECTION_ID of 21 bytes", ENCODING, b"\x18\x09\0\x15" + bytes(21) + bytes(16))
frames_case("9000 §19.16", "RETIRE_CONNECTION_ID of an id that was never given", VIOLATION, b"\x19\x40\xff")
frames_case("9000 §19.20", "HANDSHAKE_DONE of a client", VIOLATION, b"\x1e")
frames_case("9221 §3", "DATAGRAM that was not negotiated", VIOLATION, b"\x31\x01a")
frames_case("9000 §4.1", "a stream beyond its flow control limit", FLOW, b"\x0e\0" + varint(1 << 40) + b"\x01a")
frames_case("9000 §4.6", "a stream beyond the limit of streams", STREAM_LIMIT, b"\x0a" + varint(4 * 100_000) + b"\x01a")
frames_case("9000 §4.5", "a stream that ends twice, at different places", FINAL_SIZE, b"\x0b\0\x01a\x0b\0\x02ab")
frames_case("9000 §4.5", "data behind the end of a stream", FINAL_SIZE, b"\x0b\0\x01a\x0e\0\x05\x01a")
frames_case("9000 §4.5", "RESET_STREAM with another final size", FINAL_SIZE, b"\x0b\0\x04abcd\x04\0\0\x02")
frames_case("9000 §19.19", "a frame that is cut", ENCODING, b"\1\1\1\x04")
frames_case("9000 §7.5", "CRYPTO far beyond what is buffered", (0x0D, VIOLATION), b"\x06" + varint(1 << 30) + b"\x01a")


@case("9000 §5.1.1", "more connection ids than the server allows", ID_LIMIT, how=lambda port: Peer(port).connect())
def _(peer):
    ids = [b"12345%03d" % n for n in range(1, 24)]
    # The server may use any of them at once.
    peer.quic._host_cids += [QuicConnectionId(cid=id, sequence_number=n) for n, id in enumerate(ids, 1)]
    peer.frames(b"".join(b"\x18" + varint(n) + b"\0\x08" + id + id * 2 for n, id in enumerate(ids, 1)))


# === QUIC's use of TLS (RFC 9001 §6, §8.3) ===


@case("9001 §6", "TLS KeyUpdate in 1-RTT", ALERT + 10, how=lambda port: Peer(port).connect())
def _(peer):
    peer.frames(b"\x06\0\x05\x18\0\0\x01\0")


@case("9001 §6", "TLS KeyUpdate in a Handshake packet", ALERT + 10, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\x06\0\x05\x18\0\0\x01\0", HANDSHAKE)


@case("9001 §8.3", "EndOfEarlyData", ALERT + 10, how=lambda port: Peer(port).greet())
def _(peer):
    peer.frames(b"\x06\0\x04\x05\0\0\0", HANDSHAKE)


@case("9001 §4.1.3", "a second ClientHello after the handshake", ALERT + 10, ALERT + 50, how=lambda port: Peer(port).connect())
def _(peer):
    peer.frames(b"\x06\0\x08\x01\0\0\x04abcd")


# === HTTP/3: streams (RFC 9114 §6.2) ===

SECOND = {CONTROL: "control", ENCODER: "encoder", DECODER: "decoder"}
for kind, name in SECOND.items():
    case("9114 §6.2, 9204 §4.2", f"a second {name} stream", CREATION)(lambda peer, kind=kind: peer.uni(varint(kind)))
for stream, name in ((2, "control"), (6, "encoder"), (10, "decoder")):
    case("9114 §6.2.1, 9204 §4.2", f"the end of the {name} stream", CLOSED)(lambda peer, stream=stream: peer.more(stream, b"", True))
    case("9114 §6.2.1, 9204 §4.2", f"the reset of the {name} stream", CLOSED)(lambda peer, stream=stream: peer.ask() and peer.quic.reset_stream(stream, 0x100))
case("9114 §6.2.2", "a push stream of a client", CREATION)(lambda peer: peer.uni(varint(PUSH) + b"\0"))


@case("9114 §6.2.1", "STOP_SENDING of the server's control stream", CLOSED)
def _(peer):
    assert peer.until(lambda: 3 in peer.messages), "no control stream of the server"
    peer.quic.stop_stream(3, 0x100)


# === HTTP/3: the control stream (RFC 9114 §6.2.1, §7.2) ===


def control(rule, text, payload, *codes):
    case(rule, text, *codes)(lambda peer: peer.more(2, payload))


def settings(rule, text, payload, *codes):
    case(rule, text, *(codes or (SETTINGS_ERROR,)), how=lambda port: Peer(port).connect())(lambda peer: peer.uni(varint(CONTROL) + frame(4, payload)))


case("9114 §6.2.1", "a control stream without SETTINGS", MISSING, how=lambda port: Peer(port).connect())(lambda peer: peer.uni(varint(CONTROL) + frame(7, b"\0")))
case("9114 §6.2.1", "DATA before SETTINGS", MISSING, UNEXPECTED, how=lambda port: Peer(port).connect())(lambda peer: peer.uni(varint(CONTROL) + frame(0, b"a")))
control("9114 §7.2.4", "SETTINGS twice", frame(4), UNEXPECTED)
control("9114 §7.2.1", "DATA on the control stream", frame(0, b"abc"), UNEXPECTED)
control("9114 §7.2.2", "HEADERS on the control stream", frame(1, get()), UNEXPECTED)
control("9114 §7.2.5", "PUSH_PROMISE on the control stream", frame(5, b"\0" + get()), UNEXPECTED)
for http2, name in ((2, "PRIORITY"), (6, "PING"), (8, "WINDOW_UPDATE"), (9, "CONTINUATION")):
    control("9114 §7.2.8", f"{name} of HTTP/2 on the control stream", frame(http2, b"\0"), UNEXPECTED)
control("9114 §7.2.7", "MAX_PUSH_ID that becomes smaller", frame(13, b"\x09") + frame(13, b"\x08"), ID)
control("9114 §7.2.3", "CANCEL_PUSH of a push that was never promised", frame(3, b"\x05"), ID)
control("9114 §5.2", "GOAWAY with a larger id than before", frame(7, b"\x04") + frame(7, b"\x08"), ID)
control("9114 §7.1", "GOAWAY with bytes behind its id", frame(7, b"\x04abc"), FRAME)
control("9114 §7.1", "GOAWAY with a cut id", frame(7, b"\x40"), FRAME)
control("9114 §7.1", "MAX_PUSH_ID without an id", frame(13), FRAME)
control("9114 §7.1", "CANCEL_PUSH with bytes behind its id", frame(3, b"\x01a"), FRAME)
control("9218 §7.2", "PRIORITY_UPDATE for a stream that is no request", varint(0xF0700) + b"\x04\x02u=1", ID)
control("9218 §7.2", "PRIORITY_UPDATE for a push", varint(0xF0701) + b"\x04\x02u=1", ID)
for http2 in (0, 2, 3, 4, 5):
    if http2:
        settings("9114 §7.2.4.1", f"setting {http2} of HTTP/2", varint(http2) + b"\x01")
settings("9114 §7.2.4", "a setting twice", b"\x06\x10\x06\x10")
settings("9114 §7.1", "SETTINGS that end within a setting", b"\x06", FRAME, SETTINGS_ERROR)
settings("9220 §5", "SETTINGS_ENABLE_CONNECT_PROTOCOL of 2", b"\x08\x02")

# === HTTP/3: request streams (RFC 9114 §4.1, §7) ===


def request(rule, text, payload, *codes, fin=True):
    case(rule, text, *codes)(lambda peer: peer.request(payload, fin))


request("9114 §4.1", "DATA before HEADERS", frame(0, b"abc"), UNEXPECTED)
request("9114 §4.1", "HEADERS after trailers", frame(1, post("/")) + frame(1, section(("a", "b"))) * 2, UNEXPECTED)
request("9114 §4.1", "DATA after trailers", frame(1, post("/")) + frame(1, section(("a", "b"))) + frame(0, b"abc"), UNEXPECTED)
for kind, name in ((3, "CANCEL_PUSH"), (4, "SETTINGS"), (7, "GOAWAY"), (13, "MAX_PUSH_ID"), (5, "PUSH_PROMISE"), (0xF0700, "PRIORITY_UPDATE")):
    request("9114 §7.2", f"{name} on a request stream", frame(1, post("/")) + frame(kind, b"\0"), UNEXPECTED, fin=False)
for kind, name in ((2, "PRIORITY"), (6, "PING"), (8, "WINDOW_UPDATE"), (9, "CONTINUATION")):
    request("9114 §7.2.8", f"{name} of HTTP/2 on a request stream", frame(1, post("/")) + frame(kind, b"\0"), UNEXPECTED, fin=False)
request("9114 §7.1", "a stream that ends within a frame's payload", frame(1, post("/")) + b"\0\x10abc", FRAME)
request("9114 §7.1", "a stream that ends within a frame's header", frame(1, post("/")) + b"\0", FRAME)
request("9114 §7.1", "a stream that ends within HEADERS", b"\x01\x10\0\0", FRAME)
request("9114 §4.1", "a stream that ends without a request", b"", INCOMPLETE, MESSAGE)

# === HTTP/3: malformed messages (RFC 9114 §4.2, §4.3, §4.4) ===

M, S, A, P = (":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/hello")
for text, head in {
    "no :method": [S, A, P],
    "no :scheme": [M, A, P],
    "no :path": [M, S, A],
    "an empty :path": [M, S, A, (":path", "")],
    ":method twice": [M, M, S, A, P],
    ":path twice": [M, S, A, P, P],
    ":status in a request": [M, S, A, P, (":status", "200")],
    "an unknown pseudo field": [M, S, A, P, (":foo", "bar")],
    "a pseudo field after a field": [M, S, A, ("a", "b"), P],
    "a field name in upper case": [M, S, A, P, ("Accept", "a")],
    "an empty field name": [M, S, A, P, ("", "a")],
    "a field name with a space": [M, S, A, P, ("a b", "a")],
    "a line break in a value": [M, S, A, P, ("a", "b\r\nc: d")],
    "a zero byte in a value": [M, S, A, P, ("a", "b\0c")],
    "a space before a value": [M, S, A, P, ("a", " b")],
    "connection": [M, S, A, P, ("connection", "close")],
    "transfer-encoding": [M, S, A, P, ("transfer-encoding", "chunked")],
    "upgrade": [M, S, A, P, ("upgrade", "h2c")],
    "keep-alive": [M, S, A, P, ("keep-alive", "1")],
    "proxy-connection": [M, S, A, P, ("proxy-connection", "keep-alive")],
    "te with something else than trailers": [M, S, A, P, ("te", "gzip")],
    "neither :authority nor host": [M, S, P],
    "host that differs from :authority": [M, S, A, P, ("host", "elsewhere")],
    "CONNECT with :path": [(":method", "CONNECT"), A, P],
    "CONNECT without :authority": [(":method", "CONNECT")],
    "two lengths": [M, S, A, P, ("content-length", "1"), ("content-length", "2")],
    "a length that is no number": [M, S, A, P, ("content-length", "+1")],
}.items():
    request("9114 §4.2, §4.3", f"a request with {text}", frame(1, section(*head)), MESSAGE, 400)
request("9114 §4.3", "trailers with a pseudo field", frame(1, post("/")) + frame(1, section((":path", "/"))), MESSAGE)
request("9114 §4.1.2", "less data than content-length", frame(1, post("/", 10)) + frame(0, b"abc"), MESSAGE)
request("9114 §4.1.2", "more data than content-length", frame(1, post("/", 2)) + frame(0, b"abc"), MESSAGE)

# === QPACK (RFC 9204) ===

BARE = section(M, S, A, P)
request("9204 §3.1", "a static index beyond the table, for a field", frame(1, b"\0\0" + prefixed(99, 6, 0xC0)), DECOMPRESSION)
request("9204 §3.1", "a static index beyond the table, for a name", frame(1, b"\0\0" + prefixed(99, 4, 0x50) + b"\x01a"), DECOMPRESSION)
request("9204 §2.2.3", "a reference without a Required Insert Count", frame(1, b"\0\0\x80"), DECOMPRESSION)
request("9204 §4.5.1.1", "a Required Insert Count that cannot be", frame(1, prefixed(9999, 8, 0) + b"\0\x80"), DECOMPRESSION)
request("9204 §4.5.1.2", "a Base below zero", frame(1, b"\x02\xff\x7f\x80"), DECOMPRESSION)
request("9204 §4.5", "a section without its prefix", frame(1, b""), DECOMPRESSION)
request("9204 §4.5", "a section that ends within a field", frame(1, BARE[:-3]), DECOMPRESSION)
request("9204 §4.1.1", "an integer without an end", frame(1, b"\0\0\xff" + b"\xff" * 20), DECOMPRESSION)
request("9204 §4.1.2", "a Huffman code with wrong padding", frame(1, BARE + b"\x21a\x82\0\0"), DECOMPRESSION)


def stream_of(stream, rule, text, payload, *codes):
    case(rule, text, *codes)(lambda peer: peer.more(stream, payload))


stream_of(6, "9204 §3.2.3", "a table larger than SETTINGS allow", prefixed(1 << 20, 5, 0x20), ENCODER_ERROR)
stream_of(6, "9204 §3.2.2", "an entry larger than the table", prefixed(32, 5, 0x20) + b"\x41a" + prefixed(64, 7, 0) + b"b" * 64, ENCODER_ERROR)
stream_of(6, "9204 §4.3.2", "an insertion with a static index beyond the table", b"\x3f\xe1\x1f" + prefixed(99, 6, 0xC0) + b"\x01a", ENCODER_ERROR)
stream_of(6, "9204 §4.3.2", "an insertion with a dynamic index beyond the table", b"\x3f\xe1\x1f" + prefixed(9, 6, 0x80) + b"\x01a", ENCODER_ERROR)
stream_of(6, "9204 §4.3.4", "a copy of an entry that does not exist", b"\x3f\xe1\x1f" + prefixed(9, 5, 0), ENCODER_ERROR)
stream_of(10, "9204 §4.4.3", "Insert Count Increment of 0", b"\0", DECODER_ERROR)
stream_of(10, "9204 §4.4.3", "Insert Count Increment beyond what was sent", prefixed(50, 6, 0), DECODER_ERROR)
stream_of(10, "9204 §4.4.1", "an acknowledgement of a section that was not sent", prefixed(0, 7, 0x80), DECODER_ERROR)


@case("9204 §2.1.2", "more blocked streams than SETTINGS allow", DECOMPRESSION)
def _(peer):
    peer.more(6, b"\x3f\xe1\x1f")
    for _ in range(20):
        peer.request(frame(1, b"\x02\x80\x80" + BARE[2:]))


# === what must be ignored or survived (RFC 9114 §9, RFC 9000 §9, §13, §14, §15) ===

SERVED = object()


def harmless(rule, text, how=None):
    return case(rule, text, SERVED, how=how)


@harmless("9114 §9", "unknown frames on the control stream and on a request stream")
def _(peer):
    peer.more(2, frame(0x21, b"abc") + frame(0x1F * 7 + 0x21))
    peer.request(frame(0x21, b"abc") + frame(1, get()) + frame(0x40, b""))


@harmless("9114 §9", "a unidirectional stream of an unknown type")
def _(peer):
    peer.uni(varint(0x21) + b"abc")


@harmless("9114 §9", "an unknown setting", how=lambda port: Peer(port).setup(varint(0x21) + b"\x07" + varint(0x1F * 9 + 0x21) + b"\0"))
def _(peer):
    pass


@harmless("9114 §6.2", "a unidirectional stream that ends before its type")
def _(peer):
    peer.uni(b"", True)


@harmless("9114 §8.1", "STOP_SENDING with an unknown code")
def _(peer):
    stream = peer.request(frame(1, post("/files/big")), False)
    peer.flush()
    peer.quic.stop_stream(stream, 0x1F * 3 + 0x21)


@harmless("9000 §18.1", "an unknown transport parameter", how=lambda port: Peer(port, alter=lambda found: found + [(31 * 5 + 27, b"abc")]).setup())
def _(peer):
    pass


@harmless("9000 §19.17", "PATH_CHALLENGE, which is answered")
def _(peer):
    answers = []
    handlers = peer.quic._QuicConnection__frame_handlers
    handlers[0x1B] = (lambda context, kind, buf: answers.append(buf.pull_bytes(8)), handlers[0x1B][1])
    peer.frames(b"\x1a12345678")
    assert peer.until(lambda: answers == [b"12345678"]), f"PATH_RESPONSE: {answers}"


@harmless("9000 §12.4", "a frame type in more bytes than it needs")
def _(peer):
    peer.frames(b"\x40\x01")


@harmless("9000 §19.18", "PATH_RESPONSE that nobody asked for")
def _(peer):
    peer.frames(b"\x1b12345678")


@harmless("9000 §12.3", "a packet that arrives twice")
def _(peer):
    packet = peer.packet(b"\x01")
    peer.send(packet)
    peer.send(packet)


@harmless("9000 §5.2", "garbage between packets")
def _(peer):
    for size in (0, 1, 20, 21, 1200, 65000):
        peer.send(bytes([0x40] * size))
        peer.send(bytes([0xC0] * size))


@harmless("9001 §5.5", "a packet with a wrong tag")
def _(peer):
    packet = bytearray(peer.packet(b"\x01"))
    packet[-1] ^= 1
    peer.send(bytes(packet))


@harmless("9000 §21.5", "an Initial packet after the handshake")
def _(peer):
    assert not peer.quic._cryptos[INITIAL].send.is_valid()
    other = Peer(peer.address[1])
    other.socket.close()
    other.socket = peer.socket
    other.quic.connect(other.address, 0)
    other.flush()


def run(port, one):
    rule, text, codes, how, act = one
    peer = how(port)
    try:
        act(peer)
        if codes == (SERVED,):
            assert not peer.closed and bytes(peer.ask().body) == b"hello\n", f"not served: {peer.closed}"
            return
        codes = [code for group in codes for code in (group if isinstance(group, tuple) else (group,))]
        is_app = codes[0] >= 0x100 and codes[0] < 0x300 and not rule.startswith("9001")
        streams = {}

        def refused():
            streams.update({id: message.reset for id, message in peer.messages.items() if message.reset is not None})
            streams.update(peer.stops)
            is_answered = 400 in codes and any(message.ended for message in peer.messages.values())
            return is_answered or peer.closed or (is_app and any(code in codes for code in streams.values()))

        peer.until(refused, 3)
        answers = [message.status() for message in peer.messages.values() if message.heads]
        if 400 in codes and answers:
            assert answers == [400] and not peer.closed, f"answered {answers}, {peer.closed}"
        elif peer.closed:
            assert (peer.closed.frame_type is None) == is_app and peer.closed.error_code in codes, f"{peer.closed}"
        else:
            assert streams and is_app, f"no error; answers: {answers}"
            assert any(code in codes for code in streams.values()), f"streams ended with {streams}"
    finally:
        peer.close()


def main():
    words = sys.argv[1:]
    gateway, bad, done = Gateway(), [], 0
    for one in CASES:
        name = f"RFC {one[0]}: {one[1]}"
        if not all(word in name for word in words):
            continue
        done += 1
        try:
            run(gateway.port, one)
            other = Peer(gateway.port).setup()
            assert bytes(other.ask().body) == b"hello\n", "the next client is not served"
            other.close()
        except Exception as e:
            bad.append(name)
            judge.verdict(False, f"http3 rules: {name}: {type(e).__name__}: {e}")
    judge.verdict(gateway.child.poll() is None, "http3 rules: the gateway still runs")
    judge.verdict(done > 0 and not bad, f"http3 rules: {done - len(bad)} of {done} with aioquic {AIOQUIC}")
    sys.exit(bool(judge.failed))


if __name__ == "__main__":
    main()
