# SPDX-License-Identifier: Apache-2.0
"""Stores with and without the host daemon. What the daemon does is tested in tests/integration; here a socket stands for it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
import shmstore

MAGIC = 0x52444853
HELLO, REGISTER, GRANT, BYE = 1, 3, 4, 7
WELCOME, REGISTERED, REFUSED = 64, 65 + 1, 68
CREDIT = 2560  # of the page: epoch, granted, flags, store_hard, asked_n, asked_bytes, credit
BODIES = {HELLO: 16, REGISTER: 24, GRANT: 32, BYE: 8}


class Daemon:
    """Greets, registers, refuses every grant."""

    def __init__(self, path: str, partition: str) -> None:
        self.path, self.partition = path, partition
        self.page = ""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen()
        self.connections: list[socket.socket] = []
        self.grants: list[tuple[int, ...]] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _reply(self, connection: socket.socket, kind: int, serial: int, body: bytes, tail: bytes = b"") -> None:
        size = 24 + len(body) + len(tail)
        connection.send(struct.pack("=IHHIIQ", MAGIC, kind, 0, size, len(tail), serial) + body + tail)

    def write(self, index: int, value: int) -> None:
        """Sets a word of the credit section of the store that registered last."""
        with open(self.page, "r+b", buffering=0) as page:
            page.seek(CREDIT + 8 * index)
            page.write(struct.pack("=Q", value))

    def _request(self, connection: socket.socket, packet: bytes) -> None:
        _, kind, _, _, tail, serial = struct.unpack_from("=IHHIIQ", packet)
        if kind == HELLO:
            self._reply(connection, WELCOME, serial, struct.pack("=IIQQQ", 1, os.getpid(), 42, 0, 1 << 20))
        elif kind == REGISTER:
            self.page = os.path.join(self.partition, packet[len(packet) - tail :].decode(), ".store")
            self.write(0, 42)
            self._reply(connection, REGISTERED, serial, struct.pack("=QQ", 1, 0))
        elif kind == GRANT:
            self.grants.append(struct.unpack_from("=QQQII", packet, 24))
            error = -110 if self.grants[-1][3] else -122
            if self.grants[-1][3]:
                time.sleep(self.grants[-1][2] / 1000)  # a wait that ends with its time
            self._reply(connection, REFUSED, serial, struct.pack("=iIQQ", error, 2, 1, 1), b"the user is at the limit")

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


@pytest.fixture
def daemon(partition: shmstore.Partition, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    path = f"{tmp_path}/socket"
    monkeypatch.setenv("SHMSTORE_SOCKET", path)
    with contextlib.closing(Daemon(path, partition.path)) as d:
        yield d


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored")


def test_alone(partition: shmstore.Partition, nowhere: None) -> None:
    with partition.open("a") as store:
        assert store.asked() == 0
        assert store.daemon_fd() is None
        assert store.daemon_dispatch() is False
        store["k"] = "v"


def test_required(partition: shmstore.Partition, nowhere: None) -> None:
    with pytest.raises(shmstore.Error) as error:
        partition.open("a", daemon="required")
    assert error.value.errno == 110
    assert "shmstored" in str(error.value)


def test_words(partition: shmstore.Partition) -> None:
    with pytest.raises(ValueError, match="auto"):
        partition.open("a", daemon="perhaps")
    for wait in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="wait"):
            partition.open("a", wait=wait)
    with pytest.raises(TypeError):
        partition.open("a", wait="long")  # type: ignore[arg-type]


def test_registered(partition: shmstore.Partition, daemon: Daemon) -> None:
    with partition.open("a", daemon="required") as store:
        fd = store.daemon_fd()
        assert fd is not None
        assert store.daemon_dispatch() is True
        assert not select.select([fd], [], [], 0)[0]
        daemon.write(5, 123456)
        daemon.write(4, 1)
        assert store.asked() == 123456
    with partition.open("b", daemon="off") as store:
        assert store.daemon_fd() is None
    assert store.closed
    with pytest.raises(shmstore.ClosedError):
        store.asked()
    with pytest.raises(shmstore.ClosedError):
        store.daemon_dispatch()


def test_refused(partition: shmstore.Partition, daemon: Daemon) -> None:
    with partition.open("a", daemon="required") as store:
        with pytest.raises(shmstore.Error) as error:
            store["k"] = bytes(1 << 20)
        assert error.value.errno == 122
        assert all(grant[3] == 0 for grant in daemon.grants)


def test_wait(partition: shmstore.Partition, daemon: Daemon) -> None:
    with partition.open("a", daemon="required", wait=0.05) as store:
        with pytest.raises(shmstore.Error) as error:
            store["k"] = bytes(1 << 20)
        assert error.value.errno == 110
        assert daemon.grants[-1][3] == 1
        assert 0 < daemon.grants[-1][2] <= 51
        with pytest.raises(shmstore.Error) as error:
            store.create("k", 0, [1 << 20])
        assert error.value.errno == 110


def test_daemon_dies(partition: shmstore.Partition, daemon: Daemon) -> None:
    with partition.open("a", daemon="required") as store:
        fd = store.daemon_fd()
        assert fd is not None
        daemon.write(1, (1 << 64) - 1)
        for connection in list(daemon.connections):
            connection.shutdown(socket.SHUT_RDWR)
        assert select.select([fd], [], [], 10)[0]
        store.daemon_dispatch()
        store["k"] = bytes(1 << 20)
        assert store["k"] == bytes(1 << 20)
