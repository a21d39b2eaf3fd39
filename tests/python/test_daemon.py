# SPDX-License-Identifier: Apache-2.0
"""Stores with and without the host daemon. The daemon itself is tested in tests/integration;
here a socket stands for it."""

from __future__ import annotations

import contextlib
import pathlib
import select
import socket
import sys
from collections.abc import Iterator

import pytest
import shmstore

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from fakedaemon import ASKED_BYTES, ASKED_N, GRANTED, UNLIMITED, Daemon  # noqa: E402


@pytest.fixture
def daemon(partition: shmstore.Partition, tmp_path: object,
           monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
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
    # Where it was looked for, and why it was not had: nothing that deleting objects mends.
    assert "/nonexistent" in str(error.value) and "there is no such socket" in str(error.value)
    assert "delete objects" not in str(error.value)


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
        daemon.write(ASKED_BYTES, 123456)
        daemon.write(ASKED_N, 1)
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
        daemon.write(GRANTED, UNLIMITED)
        for connection in list(daemon.connections):
            connection.shutdown(socket.SHUT_RDWR)
        assert select.select([fd], [], [], 10)[0]
        store.daemon_dispatch()
        store["k"] = bytes(1 << 20)
        assert store["k"] == bytes(1 << 20)
