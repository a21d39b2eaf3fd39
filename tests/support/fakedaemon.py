# SPDX-License-Identifier: Apache-2.0
"""shmstored as a store sees it, for tests in Python that need no more of it: it greets, registers,
grants without a limit or refuses."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time

MAGIC = 0x52444853
HELLO, PING, REGISTER, GRANT, BYE, ARB = 1, 2, 3, 4, 7, 12
WELCOME, PONG, REGISTERED, REFUSED, ASK = 64, 65, 66, 68, 71
CREDIT = 2560  # of the page: the words below, 8 bytes each
EPOCH, GRANTED, FLAGS, STORE_HARD, ASKED_N, ASKED_BYTES = range(6)
GIVEN_N = 32 + 4
UNLIMITED = (1 << 64) - 1


class Daemon:
    """limited: every grant is refused, else none is needed. hangs: who has
    registered hears nothing more."""

    def __init__(self, path: str, partition: str, limited: bool = True,
                 hangs: bool = False) -> None:
        self.path, self.partition, self.limited, self.hangs = path, partition, limited, hangs
        self.pages: list[str] = []  # of the stores that registered
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen()
        self.connections: list[socket.socket] = []
        self.grants: list[tuple[int, ...]] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _reply(self, connection: socket.socket, kind: int, serial: int, body: bytes,
               tail: bytes = b"") -> None:
        size = 24 + len(body) + len(tail)
        connection.send(struct.pack("=IHHIIQ", MAGIC, kind, 0, size, len(tail), serial) + body +
                        tail)

    def write(self, index: int, value: int, store: int = -1) -> None:
        """Sets a word of the credit section of a store: the one that registered last."""
        with open(self.pages[store], "r+b", buffering=0) as page:
            page.seek(CREDIT + 8 * index)
            page.write(struct.pack("=Q", value))

    def read(self, index: int, store: int = -1) -> int:
        with open(self.pages[store], "rb", buffering=0) as page:
            page.seek(CREDIT + 8 * index)
            return int(struct.unpack("=Q", page.read(8))[0])

    def ask(self, nbytes: int, store: int = -1) -> None:
        """Asks a store for bytes, and tells all."""
        self.write(ASKED_BYTES, nbytes, store)
        self.write(ASKED_N, self.read(ASKED_N, store) + 1, store)
        for connection in self.connections:
            self._reply(connection, ASK, 0, struct.pack("=Q", nbytes))

    def _request(self, connection: socket.socket, packet: bytes) -> None:
        _, kind, _, _, tail, serial = struct.unpack_from("=IHHIIQ", packet)
        if kind == HELLO:
            self._reply(connection, WELCOME, serial,
                        struct.pack("=IIQQQ", 1, os.getpid(), 42, 0, 1 << 20))
        elif kind == REGISTER:
            self.pages.append(os.path.join(self.partition, packet[len(packet) - tail :].decode(),
                                           ".store"))
            if not self.limited:
                self.write(GRANTED, UNLIMITED)
            self.write(EPOCH, 42)
            self._reply(connection, REGISTERED, serial, struct.pack("=QQ", 1, 0))
        elif self.hangs:
            pass
        elif kind == PING:
            self._reply(connection, PONG, serial, packet[24:32])
        elif kind == ARB:
            self._reply(connection, REFUSED, serial, struct.pack("=iIQQ", -95, 0, 0, 0),
                        b"the arbiter is off here")
        elif kind == GRANT:
            self.grants.append(struct.unpack_from("=QQQII", packet, 24))
            error = -110 if self.grants[-1][3] else -122
            if self.grants[-1][3]:
                time.sleep(self.grants[-1][2] / 1000)  # a wait that ends with its time
            self._reply(connection, REFUSED, serial, struct.pack("=iIQQ", error, 2, 1, 1),
                        b"the user is at the limit")

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self.listener, *self.connections], [], [])
            for one in ready:
                if one is self.listener:
                    try:
                        self.connections.append(one.accept()[0])
                    except OSError:
                        return
                    continue
                packet = one.recv(1 << 15)
                if packet:
                    self._request(one, packet)
                else:
                    self.connections.remove(one)
                    one.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for connection in self.connections:
            connection.close()
        self.listener.close()
        os.unlink(self.path)
