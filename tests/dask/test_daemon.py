# SPDX-License-Identifier: Apache-2.0
"""Workers and the host daemon: they register, and give memory back when they are
asked, at once, to disk."""

from __future__ import annotations

import contextlib
import math
import pathlib
import socket
import sys
import time

import pytest
import tasks
from conftest import PREFIX, cluster, on_workers, wait_until
from tasks import MIB

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from fakedaemon import GIVEN_N, Daemon  # noqa: E402

from shmstore.dask.pressure import Listening  # noqa: E402


@pytest.fixture
def daemon(place, tmp_path, monkeypatch):
    path = f"{tmp_path}/socket"
    monkeypatch.setenv("SHMSTORE_SOCKET", path)
    with contextlib.closing(Daemon(path, place.path, limited=False)) as daemon:
        yield daemon


def registered(worker):
    return worker._exchange.store.daemon_fd() is not None


def listening(worker):
    return next(close.__self__ for close in worker._when_closed
                if isinstance(close.__self__, Listening))


def watched(worker):
    return listening(worker)._fd is not None


def residence(worker):
    data = worker.data
    return {"shared": len(data.shared), "disk": len(data.disk), "given": listening(worker).given}


def test_workers_register_and_say_goodbye(place, daemon):
    with cluster(place, 2) as client:
        wait_until(lambda: all(on_workers(client, registered).values()),
                   "each registers, later than it starts where the daemon is slow")
        assert len(daemon.pages) == 2
        assert all(store.label == "dask-worker" for store in place.stores())
    wait_until(lambda: not daemon.connections, "the workers' connections end")


def test_a_daemon_that_hangs_holds_nobody_up(place, tmp_path, monkeypatch):
    """It takes stores in, and says nothing more: whether it has an arbiter is
    asked off the event loop."""
    path = f"{tmp_path}/socket"
    monkeypatch.setenv("SHMSTORE_SOCKET", path)
    with contextlib.closing(Daemon(path, place.path, limited=False, hangs=True)):
        began = time.monotonic()
        with cluster(place, 1) as client:
            assert client.submit(tasks.total,
                                 client.submit(tasks.make, 1, MIB)).result() == tasks.make(
                                     1, MIB).sum()
            assert time.monotonic() - began < 15


def test_off_does_not_register(place, daemon):
    with cluster(place, 1, settings={f"{PREFIX}.daemon": "off"}) as client:
        assert not any(on_workers(client, registered).values())
        assert not daemon.pages
        assert client.submit(tasks.total, client.submit(tasks.make, 1, MIB)).result() == tasks.make(
            1, MIB).sum()


def test_required_without_daemon_shares_nothing(place, monkeypatch):
    monkeypatch.setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored")
    with cluster(place, 1, settings={f"{PREFIX}.daemon": "required"}) as client:
        assert not place.stores()
        assert client.submit(tasks.total, client.submit(tasks.make, 1, MIB)).result() == tasks.make(
            1, MIB).sum()


def test_asked_worker_demotes_what_it_alone_has(place, daemon):
    with cluster(place, 1, settings={f"{PREFIX}.share": "eager"}) as client:
        chunks = [client.submit(tasks.make, i, MIB, key=f"chunk-{i}") for i in range(8)]
        client.gather([client.submit(tasks.total, chunk) for chunk in chunks])
        wait_until(lambda: all(on_workers(client, watched).values()), "the worker listens")
        daemon.ask(3 * MIB)
        wait_until(lambda: place.partition.usage().n_demoted == 3, "three values in the tier")
        wait_until(lambda: next(iter(on_workers(client, residence).values()))["given"] >= 3 * MIB,
                   "the worker knows it, a moment after the partition does")
        after = next(iter(on_workers(client, residence).values()))
        assert after["shared"] == 8 and after["disk"] == 0
        wait_until(lambda: daemon.read(GIVEN_N) == 1, "the ask is dealt with")
        # Not NumPy's sum: in which order that adds depends on where an array lies.
        sums = client.gather([client.submit(math.fsum, chunk, pure=False) for chunk in chunks])
        assert sums == [math.fsum(tasks.make(i, MIB)) for i in range(8)]


def test_without_a_tier_asked_worker_moves_what_it_alone_has_to_disk(place, daemon):
    with cluster(place, 1, settings={f"{PREFIX}.share": "eager",
                                     f"{PREFIX}.tier.enabled": False}) as client:
        chunks = [client.submit(tasks.make, i, MIB, key=f"chunk-{i}") for i in range(8)]
        client.gather([client.submit(tasks.total, chunk) for chunk in chunks])
        wait_until(lambda: all(on_workers(client, watched).values()), "the worker listens")
        before = next(iter(on_workers(client, residence).values()))
        assert before == {"shared": 8, "disk": 0, "given": 0}
        daemon.ask(3 * MIB)
        wait_until(lambda: next(iter(on_workers(client, residence).values()))["disk"] == 3,
                   "three values on disk")
        after = next(iter(on_workers(client, residence).values()))
        assert after["shared"] == 5
        assert after["given"] >= 3 * MIB
        wait_until(lambda: daemon.read(GIVEN_N) == 1, "the ask is dealt with")
        # Not NumPy's sum: in which order that adds depends on where an array lies.
        sums = client.gather([client.submit(math.fsum, chunk, pure=False) for chunk in chunks])
        assert sums == [math.fsum(tasks.make(i, MIB)) for i in range(8)]


def test_worker_goes_on_when_the_daemon_dies(place, daemon):
    with cluster(place, 2) as client:
        chunks = [client.submit(tasks.make, i, MIB, key=f"chunk-{i}") for i in range(8)]
        client.gather([client.submit(tasks.total, chunk) for chunk in chunks])
        for connection in list(daemon.connections):
            connection.shutdown(socket.SHUT_RDWR)
        sums = client.gather([client.submit(tasks.dot, a, b, pure=False) for a in chunks
                              for b in chunks])
        assert len(sums) == 64
        wait_until(lambda: all(on_workers(client, registered).values()), "both found it again")
