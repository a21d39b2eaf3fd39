# SPDX-License-Identifier: Apache-2.0
"""An exception in this package, or in users' classes that it looks into, ends
neither a worker nor a job."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import pytest
import tasks
from distributed.core import Status
from tasks import MIB
from together import together

import shmstore.dask
from shmstore.dask.exchange import Exchange
from shmstore.dask.config import Fallbacks, Guard, Settings


class Spiky:
    """As large as an array; asks for its dtype raise."""

    def __init__(self, n: int = MIB) -> None:
        self.array = np.arange(n // 8)

    @property
    def dtype(self):
        raise RuntimeError("no dtype today")


def spiky(i: int) -> Spiky:
    return Spiky()


def total(value: Spiky) -> int:
    return int(value.array.sum())


@pytest.mark.parametrize("share", ["auto", "eager"])
@pytest.mark.parametrize("limit", ["2 GiB", 0])
def test_an_object_whose_dtype_raises(place, limit, share, caplog):
    async def job(client, a, b):
        x = client.submit(spiky, 1, workers=[a.address], key="x")
        y = client.submit(total, x, workers=[b.address])
        assert await y == total(Spiky())
        assert a.status.name == b.status.name == "running"

    with caplog.at_level(logging.WARNING, "distributed.worker.shared"):
        together(place, job, memory_limit=limit,
                 settings={"distributed.worker.memory.shared.share": share})
    assert 1 <= caplog.text.count("reason=failed-candidate") <= 2, "once for each worker at most"
    assert "no dtype today" in caplog.text


STEPS = {
    "candidate": (Exchange, "candidate"),
    "put": (Exchange, "put"),
    "handoff": (Exchange, "handoff"),
    "weigh": (Exchange, "weigh"),
    "books": (Exchange, "books"),
    "private": (shmstore.dask.residence.SharedBuffer, "private"),
    "commit": (shmstore.dask.residence.SharedBuffer, "commit"),
    "hold": (shmstore.dask.residence.SharedBuffer, "hold"),
    "let_go": (shmstore.dask.residence.SharedBuffer, "let_go"),
    "shed": (shmstore.dask.residence.SharedBuffer, "shed"),
    "held": (shmstore.dask.inputs.Inputs, "held"),
    "bring": (shmstore.dask.inputs.Inputs, "bring"),
    "relieve": (shmstore.dask.inputs.Inputs, "relieve"),
    "look_ahead": (shmstore.dask.inputs.Inputs, "look_ahead"),
    "room": (shmstore.dask.tier.Settling, "room"),
    "urge": (shmstore.dask.tier.Settling, "urge"),
    "grew": (shmstore.dask.tier.Tier, "grew"),
    "pressed": (shmstore.dask.tier.Tier, "pressed"),
    "leaves": (shmstore.dask.values.Habits, "of"),
    "left": (shmstore.dask.handle.Handing, "_left"),
    "is_peer": (Exchange, "is_peer"),
    "share_new": (shmstore.dask.residence.SharedBuffer, "_share_new"),
    "own": (shmstore.dask.worker, "own_small_arrays"),
    "use_tier": (shmstore.dask.tier.Tier, "of"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_raises_is_left_out(place, step, monkeypatch):
    """Every step that only optimises, made to fail in both workers: the job goes on as on stock."""
    owner, name = STEPS[step]

    def broken(*args, **kwargs):
        raise ZeroDivisionError(step)

    async def job(client, a, b):
        xs = [client.submit(tasks.make, i, workers=[(a, b)[i % 2].address], key=f"make-{i}")
              for i in range(4)]
        ys = [client.submit(tasks.total, *xs, workers=[w.address], pure=False) for w in (a, b)]
        assert await client.gather(ys) == pytest.approx(
            [sum(tasks.make(i).sum() for i in range(4))] * 2)
        part = client.submit(lambda v: v[:10], xs[0], workers=[b.address])
        assert (await part == tasks.make(0)[:10]).all()
        for worker in (a, b):
            await worker.heartbeat()
        assert a.status.name == b.status.name == "running"

    monkeypatch.setattr(owner, name, broken)
    together(place, job)


def test_the_guard_logs_once_and_lets_bodies_raise(caplog):
    from contextlib import asynccontextmanager

    guard = Guard(Fallbacks(3600))

    @asynccontextmanager
    async def leaky():
        yield 1
        raise KeyError("on the way out")

    @asynccontextmanager
    async def shut():
        raise KeyError("no way in")
        yield

    async def go():
        async with guard.within("leaky", leaky) as value:
            assert value == 1
        async with guard.within("shut", shut) as value:
            assert value is None
        with pytest.raises(ValueError):
            async with guard.within("leaky", leaky):
                raise ValueError
        assert await guard.wait("wait", _raising) is None

    with caplog.at_level(logging.WARNING, "distributed.worker.shared"):
        asyncio.run(go())
        for _ in range(5):
            assert guard.call("call", lambda: 1 / 0) is None
    assert (caplog.text.count("reason=failed-call") == 1 and
            caplog.text.count("reason=failed-leaky") == 1)
    assert guard.fallbacks.counts["failed-call"] == 5
    assert "Traceback" in caplog.text


async def _raising():
    raise KeyError


def test_a_worker_whose_set_up_fails_is_stocks_and_leaves_nothing_running(place, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("no set-up today")

    def threads():
        return {thread.name for thread in threading.enumerate()
                if thread.name.startswith("shmstore")}

    async def job(client, a):
        assert a._exchange is None and await client.submit(tasks.total, tasks.make(1)) == (
            pytest.approx(tasks.make(1).sum()))
        assert not [name for name in a.periodic_callbacks if name.startswith("shmstore")]
        while threads() - before:  # a thread ends a moment after it is told to
            await asyncio.sleep(0.01)

    before = threads()
    monkeypatch.setattr(shmstore.dask.worker, "sweeping", broken)
    together(place, job, n=1, patience=20)


def test_a_worker_whose_close_fails_leaves_no_store(place, monkeypatch):
    async def broken(self, *args, **kwargs):
        self.status = Status.closing
        raise OSError("a plugin's teardown, say")

    async def job(client, a):
        with monkeypatch.context() as patch, pytest.raises(OSError):
            patch.setattr(distributed.Worker, "close", broken)
            await a.close()
        assert a._exchange.store.closed and not place.stores()
        a.status = Status.running  # so that it can be closed

    together(place, job, n=1)


def test_the_thread_that_evicts_outlives_an_error(place, monkeypatch):
    async def job(client, a):
        counts = a._exchange.fallbacks.counts
        while counts["failed-evict"] < 2:  # looks of the same thread
            await asyncio.sleep(0.01)

    def broken(exchange):
        raise ZeroDivisionError("no look today")

    monkeypatch.setattr(Exchange, "look", broken)
    together(place, job, n=1, patience=20)


def test_an_object_that_cannot_be_deleted_is_said(place):
    with dask.config.set({"distributed.worker.memory.shared.partition": place.path}):
        exchange = Exchange(Settings(), "test")
    try:
        entry = exchange.put("x", tasks.make(1), held=False)
        store = exchange.store
        for code, counted in ((errno.EIO, 1), (errno.ENOENT, 1), (None, 1)):
            exchange.store = SimpleNamespace(delete=_raising_of(code))
            exchange.drop(entry)
            assert exchange.fallbacks.counts["delete-failed"] == counted, code
        exchange.store = store
    finally:
        exchange.close()


def _raising_of(code):
    def delete(key):
        raise KeyError(key) if code is None else OSError(code, os.strerror(code))

    return delete
