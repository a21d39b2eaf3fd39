# SPDX-License-Identifier: Apache-2.0
"""Where a task's inputs are mapped: on the event loop what waits for nothing
there, all else in threads."""

from __future__ import annotations

import asyncio
import errno
import threading
import weakref
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tasks
from distributed.collections import HeapSet
from tasks import MIB
from together import together

from shmstore.dask.config import Fallbacks, Guard, offload
from shmstore.dask.inputs import _AT_ONCE, _QUICK, Inputs, Needs
from shmstore.dask.memory import Bound
from shmstore.dask.tier import Tier


def in_thread():
    return threading.current_thread() is not threading.main_thread()


class Host:
    """An Inputs whose values are in memory (memory=) or on disk, and that
    notes who was mapped where."""

    def __init__(self, memory=(), disk=(), short=False, packed=False):
        self.entries = {key: SimpleNamespace(name=key, nbytes=1, pickled=100, value=None,
                                             coming=None) for key in (*memory, *disk)}
        self.on_loop, self.in_threads, self.on_disk = [], [], []
        self.aside, self.fails = set(), set()
        exchange = SimpleNamespace(guard=Guard(Fallbacks(60)), fallbacks=Fallbacks(60),
                                   map=self.map, map_aside=self.map_aside)
        tier = SimpleNamespace(pressed=lambda: short, at_ease=lambda: not short,
                               has=lambda entry: entry.name in disk, readers=None,
                               grew=lambda: None)
        tier.packed = packed
        tier.used_where_it_lies = partial(Tier.used_where_it_lies, tier)
        residence = SimpleNamespace(
            entry=self.entries.get, hold=lambda keys: None, let_go=lambda keys: None,
            keep=self.keep, maps_any=lambda: False
        )
        self.inputs = Inputs(exchange, residence, tier, SimpleNamespace(ready=HeapSet(key=id)))

    def map(self, entry):
        (self.in_threads if in_thread() else self.on_loop).append(entry.name)
        if entry.name in self.fails and not in_thread():
            raise OSError("no more maps")
        return f"value of {entry.name}"

    def map_aside(self, entry):
        assert in_thread()
        self.on_disk.append(entry.name)
        return f"value of {entry.name}"

    def keep(self, key, entry, value, aside=False):
        entry.value = value
        self.aside |= {key} if aside else set()

    def hold(self, keys):
        async def hold():
            async with self.inputs.held(keys):
                assert all(self.entries[key].value == f"value of {key}" for key in keys)

        asyncio.run(hold())
        return self


def test_what_is_in_memory_is_mapped_at_once():
    host = Host(memory="ab", disk="x").hold("abx")
    assert (host.on_loop, host.in_threads) == (["a", "b"], ["x"])


def test_while_memory_is_short_nothing_is():
    """A value may be moved out between two looks at it: its map would wait for the disk."""
    host = Host(memory="ab", short=True).hold("ab")
    assert (host.on_loop, sorted(host.in_threads)) == ([], ["a", "b"])


def test_while_memory_is_short_what_is_on_disk_is_used_where_it_lies():
    """To bring it back something else would have to go."""
    host = Host(memory="a", disk="xy", short=True).hold("axy")
    assert (host.on_loop, host.in_threads, sorted(host.on_disk), host.aside) == (
        [], ["a"], ["x", "y"], {"x", "y"})
    host = Host(disk="x").hold("x")
    assert (host.in_threads, host.on_disk, host.aside) == (["x"], [], set()), "there is room"
    host = Host(disk="x", short=True, packed=True).hold("x")
    assert (host.in_threads, host.on_disk, host.aside) == (["x"], [], set()), (
        "what is compressed cannot be mapped")


def test_what_is_mapped_on_disk_stays_mapped_while_memory_is_short(place):
    async def job(client, a, b):
        residence, exchange = a._residence, a._exchange
        future = client.submit(np.arange, 1 << 20, key="x", workers=[a.address])
        value = await future
        await a._export(["x"])
        entry = residence.entry("x")
        await offload(exchange.store.demote, entry.name)
        assert a._tier.has(entry)
        pressed, a._tier.pressed = a._tier.pressed, lambda: True
        async with a._tier.inputs.held(["x"]):
            first = residence["x"]
            assert (first == value).all() and a._tier.has(entry), "it was not brought back"
        assert residence.maps_any() and residence["x"] is first, "and another task gets it as it is"
        del first
        residence.unmap_idle()
        assert not residence.maps_any()
        a._tier.pressed = pressed

    together(place, job)


def test_what_is_used_on_disk_asks_for_no_room(place):
    async def job(client, a, b):
        future = client.submit(np.arange, 1 << 20, key="x", workers=[a.address])
        await future
        await a._export(["x"])
        entry = a._residence.entry("x")
        await offload(a._exchange.store.demote, entry.name)
        needs = Needs(a._exchange, a._residence, a._habits, a._tier)

        def of_x(short, packed=False):
            a._tier.pressed, a._tier.packed = lambda: short, packed
            need, aside = needs.of_keys(["x"], 0, None)
            return need.promote, need.unspill, aside

        assert of_x(short=False) == (entry.nbytes, 0, frozenset()), "it will come back"
        assert of_x(short=True) == (0, 0, {"x"})
        assert of_x(short=True, packed=True) == (entry.nbytes, 0, frozenset())

    together(place, job)


def test_memory_is_at_ease_when_it_was_not_short_for_a_while(place):
    """Just after an eviction the next one is not far."""

    async def job(client, a, b):
        tier, used = a._tier, [0]
        tier._bounds = lambda: [Bound(100 * MIB, used[0])]
        assert tier.at_ease() and tier.spare() == tier.low
        used[0] = tier.low + 1
        assert not tier.at_ease() and tier.pressed() and tier.spare() == -1
        used[0] = 0
        assert not tier.at_ease() and not tier.pressed()
        tier._pressed_at -= 10
        assert tier.at_ease()

    together(place, job)


def test_a_long_pickle_is_read_in_a_thread():
    host = Host(memory="ab")
    host.entries["b"].pickled = _QUICK + 1
    host.hold("ab")
    assert (host.on_loop, host.in_threads) == (["a"], ["b"])


def test_a_map_that_fails_is_tried_again_as_ever():
    host = Host(memory="a")
    host.fails = {"a"}
    assert host.hold("a").in_threads == ["a"]


def test_many_inputs_leave_the_event_loop_its_turns():
    keys = [f"k{i}" for i in range(4 * _AT_ONCE)]
    host = Host(memory=keys)
    seen = []

    async def watch():
        while True:
            seen.append(len(host.on_loop))
            await asyncio.sleep(0)

    async def both():
        watching = asyncio.ensure_future(watch())
        async with host.inputs.held(keys):
            watching.cancel()

    asyncio.run(both())
    assert (max(after - before for before, after in zip(seen, seen[1:])) <= _AT_ONCE and
            len(seen) >= 4)


@pytest.mark.parametrize("size", [256 << 10, 2 * MIB, 3 * MIB])
def test_where_a_value_is_stored_depends_on_its_size(place, size):
    """On the event loop up to 2 MiB, as memory is not short."""

    async def job(client, a, b):
        threads = []
        put = a._exchange.put

        def watched(*args, **kwargs):
            threads.append(threading.get_ident())
            return put(*args, **kwargs)

        a._exchange.put = watched
        x = client.submit(tasks.make, 1, size - 4096, workers=[a.address], key="x")
        assert await client.submit(tasks.total, x, workers=[b.address]) == tasks.make(
            1, size - 4096).sum()
        assert [thread == threading.get_ident() for thread in threads] == [size <= 2 * MIB]

    together(place, job)


def test_a_value_without_room_is_put_once_more_in_a_thread(place):
    """Where there may be room after all, as others can be moved out."""

    async def job(client, a, b):
        loop, tried, store = threading.get_ident(), [], a._exchange.store

        def refuse_once(*args, **kwargs):
            tried.append((threading.get_ident() == loop, kwargs["evict"]))
            if len(tried) == 1:
                raise OSError(errno.ENOSPC, "no room")
            return store.put_buffers(*args, **kwargs)

        a._exchange.store = Refusing(store, refuse_once)
        try:
            entry = await a._put("y", np.ones(MIB // 8), MIB)
        finally:
            a._exchange.store = store
        assert tried == [(True, False), (False, True)] and store.contains(entry.name)
        assert not a._exchange.fallbacks.counts
        a._exchange.drop(entry)

    together(place, job)


class Refusing:
    """A store whose put_buffers is another."""

    def __init__(self, store, put_buffers):
        self.store, self.put_buffers = store, put_buffers

    def __getattr__(self, name):
        return getattr(self.store, name)


@pytest.mark.parametrize("let_go", [lambda data, entry: data._unmap("x", entry), lambda data,
                                    entry: data.pop("x", None)], ids=["unmapped", "dropped"])
def test_the_last_reference_to_a_map_goes_in_the_thread(place, let_go):
    """Unmapping takes its time: nobody on the event loop may hold the value when
    the thread lets go of it."""

    async def job(client, a, b):
        x = client.submit(tasks.make, 1, 4 * MIB, workers=[a.address], key="x")
        await client.submit(tasks.total, x, workers=[b.address])
        entry = b.data.shared["x"]
        value = b.data["x"]
        gone = weakref.ref(value)
        del value
        found = []

        def later(function, *args):
            thread = threading.Thread(target=function, args=args)
            thread.start()
            thread.join()
            found.append(gone() is None)

        b._tier.later = b._exchange.later = later
        let_go(b.data, entry)
        assert found and all(found)

    together(place, job)


def test_threads_are_started_with_the_worker(place):
    """To start a thread waits until it runs: later the event loop would wait."""
    before = set(threading.enumerate())

    async def job(client, a):
        there = Counter(thread.name.rpartition("_")[0] for thread in set(threading.enumerate()) -
                        before)
        assert [there[f"shmstore-{what}"] for what in ("read", "write", "give")] == [2, 1, 1]

    together(place, job, n=1)
