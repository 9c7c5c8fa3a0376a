"""A relay of datagrams between clients and the gateway that drops, reorders and rebinds, and counts bytes."""

import random
import select
import socket
import threading


class Relay:
    """Listens on `port`. One upstream socket per client, as NAT has."""

    def __init__(self, gateway, loss=0.0, reorder=0.0, seed=1):
        self.gateway, self.loss, self.reorder, self.chance = ("127.0.0.1", gateway), loss, reorder, random.Random(seed)
        self.outside = self._socket()
        self.port = self.outside.getsockname()[1]
        self.clients = {}  # the upstream socket of each client
        self.passed = self.dropped = self.reordered = 0
        self.asked = threading.Event()
        self.is_over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _socket(self):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind(("127.0.0.1", 0))
        made.setblocking(False)
        return made

    def rebind(self):
        """Gives each client another port towards the gateway."""
        self.asked.set()

    def close(self):
        self.is_over = True
        self.thread.join(2)

    def _run(self):
        held = []
        while not self.is_over:
            if self.asked.is_set():
                self.asked.clear()
                for address, old in list(self.clients.items()):
                    old.close()
                    self.clients[address] = self._socket()
            by_socket = {upstream: address for address, upstream in self.clients.items()}
            ready, _, _ = select.select([self.outside, *by_socket], [], [], 0.01)
            for one in ready:
                for _ in range(64):
                    try:
                        data, sender = one.recvfrom(65535)
                    except OSError:
                        break
                    if one is self.outside:
                        way = (self.clients.setdefault(sender, None) or self._join(sender), self.gateway)
                    else:
                        way = (self.outside, by_socket[one])
                    if self.chance.random() < self.loss:
                        self.dropped += 1
                    elif self.chance.random() < self.reorder:
                        self.reordered += 1
                        held.append((data, way))
                    else:
                        self._pass(data, way)
            # A datagram that is held goes behind those that came later.
            late, held = held, []
            for data, way in late:
                self._pass(data, way)

    def _join(self, sender):
        self.clients[sender] = self._socket()
        return self.clients[sender]

    def _pass(self, data, way):
        self.passed += 1
        try:
            way[0].sendto(data, way[1])
        except OSError:
            self.dropped += 1
