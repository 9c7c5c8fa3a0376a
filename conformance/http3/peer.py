"""A QUIC client that does what it is told, on aioquic's machinery: it owns its socket, can change it, can alter its
transport parameters, and can send any frames in any packet."""

import os
import socket
import ssl
import struct
import time

import pylsqpack
from aioquic import tls
from aioquic.buffer import encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StopSendingReceived, StreamDataReceived, StreamReset

INITIAL, HANDSHAKE, ONE_RTT = tls.Epoch.INITIAL, tls.Epoch.HANDSHAKE, tls.Epoch.ONE_RTT
ECT0 = 2
# Long packet types (RFC 9000 §17.2).
LONG = {INITIAL: 0, tls.Epoch.ZERO_RTT: 1, HANDSHAKE: 2}

varint = encode_uint_var


def frame(kind, payload=b""):
    """A frame of HTTP/3."""
    return varint(kind) + varint(len(payload)) + payload


def prefixed(number, bits, flags):
    """An integer with a prefix (RFC 7541 §5.1)."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([flags | number])
    out, number = bytearray([flags | most]), number - most
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def section(*fields):
    """A field section without Huffman code and without references (RFC 9204 §4.5.6)."""
    out = b"\0\0"
    for name, value in fields:
        name, value = [text.encode() if isinstance(text, str) else text for text in (name, value)]
        out += prefixed(len(name), 3, 0x20) + name + prefixed(len(value), 7, 0) + value
    return out


def get(path="/hello", *more):
    return section((":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path), *more)


def post(path, length=None):
    length = [] if length is None else [("content-length", str(length))]
    return section((":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path), *length)


SETTINGS = frame(4, b"")
CONTROL, PUSH, ENCODER, DECODER = 0, 1, 2, 3


class Message:
    """What arrived on a stream: frames of HTTP/3 without the decoding of heads."""

    def __init__(self):
        self.raw, self.body, self.heads, self.ended, self.reset = bytearray(), bytearray(), [], False, None
        self.keeps, self.length, self._left, self._kind = True, 0, 0, None

    def take(self, data, end):
        self.raw += data
        self.ended |= end
        while True:
            if self._left == 0 and not self._header():
                return
            piece = self.raw[: self._left]
            if self._left and not piece:
                return
            del self.raw[: len(piece)]
            self._left -= len(piece)
            if self._kind == 0:
                self.length += len(piece)
                if self.keeps:
                    self.body += piece
            elif self._kind == 1:
                self.heads[-1] += piece

    def _header(self):
        at, numbers = 0, []
        for _ in range(2):
            if at >= len(self.raw):
                return False
            size = 1 << (self.raw[at] >> 6)
            if at + size > len(self.raw):
                return False
            number = int.from_bytes(self.raw[at : at + size], "big") & ((1 << (8 * size - 2)) - 1)
            numbers.append(number)
            at += size
        del self.raw[:at]
        self._kind, self._left = numbers
        if self._kind == 1:
            self.heads.append(b"")
        return True

    def head(self):
        """The fields of the last head. Works while we allow no dynamic table."""
        return dict(pylsqpack.Decoder(0, 0).feed_header(0, self.heads[-1])[1]) if self.heads else {}

    def status(self):
        return int(self.head().get(b":status", 0))


class Peer:
    """One connection. `alter` changes the list of (id, value) of our transport parameters."""

    def __init__(self, port, alter=None, alpn=("h3",), host="127.0.0.1", **more):
        self.address = (host, port)
        config = dict(is_client=True, alpn_protocols=list(alpn), server_name="localhost", verify_mode=ssl.CERT_NONE, idle_timeout=30)
        self.quic = QuicConnection(configuration=QuicConfiguration(**(config | more)), session_ticket_handler=self._ticket)
        if alter:
            self._alter(alter)
        self.socket = self.new_socket()
        self.ticket, self.events, self.messages, self.stops, self.closed, self.is_done = None, [], {}, {}, None, False
        self.sent = self.received = 0
        self.relay = lambda datagram: True  # False: the datagram is lost

    def new_socket(self):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        return made

    def _ticket(self, ticket):
        self.ticket = ticket

    def _alter(self, alter):
        original = self.quic._serialize_transport_parameters

        def altered():
            raw, found = original(), []
            while raw:
                size = 1 << (raw[0] >> 6)
                id = int.from_bytes(raw[:size], "big") & ((1 << (8 * size - 2)) - 1)
                raw = raw[size:]
                size = 1 << (raw[0] >> 6)
                length = int.from_bytes(raw[:size], "big") & ((1 << (8 * size - 2)) - 1)
                found.append((id, bytes(raw[size : size + length])))
                raw = raw[size + length :]
            return b"".join(varint(id) + varint(len(value)) + value for id, value in alter(found))

        self.quic._serialize_transport_parameters = altered

    # === moving datagrams ===

    def flush(self):
        for data, _ in self.quic.datagrams_to_send(time.monotonic()):
            self.send(data)

    def send(self, datagram):
        self.sent += len(datagram)
        try:
            self.socket.sendto(datagram, self.address)
        except ConnectionRefusedError:
            pass

    def receive(self, seconds):
        """Processes what has arrived, waiting this long for the first datagram. Sends nothing."""
        self.socket.settimeout(max(seconds, 0.0001))
        try:
            while True:
                data = self.socket.recv(65535)
                self.received += len(data)
                if self.relay(data):
                    self.quic.receive_datagram(data, self.address, time.monotonic())
                self.socket.settimeout(0.0001)
        except OSError:
            pass
        while (event := self.quic.next_event()) is not None:
            self._happened(event)
        # The event comes when the draining period is over (RFC 9000 §10.2).
        self.closed = self.closed or self.quic._close_event

    def _happened(self, event):
        if isinstance(event, ConnectionTerminated):
            self.closed = event
        elif isinstance(event, HandshakeCompleted):
            self.is_done = True
        elif isinstance(event, StreamDataReceived):
            self.message(event.stream_id).take(event.data, event.end_stream)
        elif isinstance(event, StreamReset):
            self.message(event.stream_id).reset = event.error_code
        elif isinstance(event, StopSendingReceived):
            self.stops[event.stream_id] = event.error_code

    def message(self, stream):
        return self.messages.setdefault(stream, Message())

    def until(self, condition, seconds=3):
        """Moves datagrams until the condition holds, the connection has ended or time is up; says whether it holds."""
        end = time.monotonic() + seconds
        while not condition():
            now = time.monotonic()
            if now >= end or self.closed:
                return condition()
            self.flush()
            due = self.quic.get_timer()
            self.receive(min(end - now, max((due or end) - now, 0), 0.05))
            now = time.monotonic()
            if due is not None and now >= due:
                self.quic.handle_timer(now)
        self.flush()
        return True

    def until_closed(self, seconds=3):
        self.until(lambda: self.closed is not None, seconds)
        return self.closed

    # === the connection ===

    def begin(self):
        """Sends the first flight."""
        self.quic.connect(self.address, time.monotonic())
        self.flush()
        return self

    def greet(self):
        """Receives the server's first flight and answers nothing."""
        self.begin()
        end = time.monotonic() + 3
        while not self.quic._handshake_complete and time.monotonic() < end and not self.closed:
            self.receive(0.05)
        return self

    def connect(self, seconds=3):
        self.begin()
        assert self.until(lambda: self.is_done and self.quic._handshake_confirmed, seconds), f"no handshake: {self.closed}"
        return self

    def setup(self, settings=b""):
        """Connects and opens our three streams. Stream 2 is the control stream, 6 the encoder's, 10 the decoder's."""
        self.connect()
        self.uni(varint(CONTROL) + frame(4, settings))
        self.uni(varint(ENCODER))
        self.uni(varint(DECODER))
        self.flush()
        return self

    def close(self):
        self.quic.close(0x100)
        self.flush()
        self.socket.close()

    # === streams ===

    def uni(self, data, fin=False):
        stream = self.quic.get_next_available_stream_id(is_unidirectional=True)
        self.quic.send_stream_data(stream, data, fin)
        return stream

    def request(self, data, fin=True):
        stream = self.quic.get_next_available_stream_id()
        self.quic.send_stream_data(stream, data, fin)
        return stream

    def more(self, stream, data, fin=False):
        self.quic.send_stream_data(stream, data, fin)

    def answered(self, stream, seconds=10):
        """Waits for the end of a response."""
        message = self.message(stream)
        self.until(lambda: message.ended or message.reset is not None, seconds)
        return message

    def ask(self, path="/hello", seconds=10):
        return self.answered(self.request(frame(1, get(path))), seconds)

    # === packets ===

    def packet(self, frames, epoch=ONE_RTT, reserved=0):
        """A protected packet with these frames and nothing else."""
        quic, crypto = self.quic, self.quic._cryptos[epoch]
        if epoch == INITIAL:
            crypto = self.quic._cryptos_initial[quic._version]
        number, quic._packet_number = quic._packet_number, quic._packet_number + 1
        short = bool(frames)  # an empty packet needs a long number, for enough bytes to protect the header with
        frames = frames.ljust(4, b"\0") if short else frames
        size = 2 if short else 4
        to = quic._peer_cid.cid
        if epoch == ONE_RTT:
            header = bytes([0x40 | size - 1 | reserved << 3 | crypto.key_phase << 2]) + to
        else:
            header = bytes([0xC0 | size - 1 | LONG[epoch] << 4 | reserved << 2]) + struct.pack(">I", quic._version)
            header += bytes([len(to)]) + to + bytes([len(quic.host_cid)]) + quic.host_cid
            if epoch == INITIAL:
                header += varint(len(quic._peer_token)) + quic._peer_token
            header += struct.pack(">H", 0x4000 | len(frames) + size + 16)
        return crypto.encrypt_packet(header + number.to_bytes(4, "big")[-size:], frames, number)

    def frames(self, frames, epoch=ONE_RTT, reserved=0):
        """Sends these frames in a packet of their own."""
        self.send(self.packet(frames, epoch, reserved))

    def migrate(self, changes_id=True):
        """Goes on from another port: with another connection id, as a phone does, or with the same, as NAT does."""
        self.socket.close()
        self.socket = self.new_socket()
        if changes_id:
            self.quic.change_connection_id()
        self.quic.send_ping(0)
        self.flush()


def random_id(length=8):
    return os.urandom(length)
