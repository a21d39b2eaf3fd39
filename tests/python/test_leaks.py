# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind: memory, references, descriptors, mappings, over 10,000 rounds of
each call, failing ones too."""

import gc
import os
import pathlib
import sys
import tracemalloc

import numpy as np
import pytest

import shmstore
from conftest import n_fds

ROUNDS = 10_000
PAGE = 4096


def n_maps():
    return len(pathlib.Path("/proc/self/maps").read_text().splitlines())


def private_bytes():
    """Anonymous resident memory: what a leak of C memory makes grow."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


SMALL, ARRAY = [1, "two"], np.arange(20000)
ALREADY = ARRAY.copy()
ALREADY.setflags(write=False)


def raises(act, *kinds):
    try:
        act()
    except kinds:
        return
    raise AssertionError(f"did not raise {kinds}")


def scenario_mapping(store, i):
    store["k"] = SMALL
    assert store["k"] == SMALL and "k" in store and store.get("none") is None
    del store["k"]


def scenario_arrays(store, i):
    store["a"] = [ARRAY, ARRAY[::100], ALREADY]
    store["b"] = store.get("a", cow=i % 2)
    assert store["b"][0][5] == 5


def scenario_views(store, i):
    if i == 0:
        store.put_buffers("k", b"header", [b"x" * 5000, b"y"])
    view = store.view("k", cow=i % 2)
    assert view.key == "k" and view.header == b"header" and bytes(view.header_view) == b"header"
    np.frombuffer(view.buffers[0], "u1")
    repr(view)
    raises(lambda: memoryview(view), BufferError)


def scenario_writers(store, i):
    with store.create("k", 4, [100, 200], replace=True) as writer:
        writer.header[:] = b"abcd"
        memory = writer.buffers[1]
        raises(writer.seal, BufferError)
        memory.release()
    store.create("k", 4, [100]).abort()
    store.create("k", 4, [100])
    raises(store.create("k", 0, []).seal, shmstore.Error)


def scenario_handoff(store, i):
    if i == 0:
        store["k"] = SMALL
    ticket = store.handoff("k")
    store.adopt("l", shmstore.Ticket.parse(str(ticket)), replace=True)
    raises(lambda: store.adopt("m", ticket), shmstore.Error)


def scenario_errors(store, i):
    store["k"] = 1
    raises(lambda: store["missing"], KeyError)
    raises(lambda: store.put("k", 1), shmstore.Error)
    raises(lambda: store.put_buffers("z", b"", [b"x", ARRAY[::2]]), BufferError)
    raises(lambda: store.put_buffers("z", b"", [b"x", 5]), TypeError)
    raises(lambda: store.put_buffers(5, b"", []), TypeError)
    raises(lambda: store.create("z", 0, [1, "x"]), TypeError)
    raises(lambda: store.__setitem__("z", [ARRAY, sys._getframe()]), TypeError)
    raises(lambda: store.partition.open("main"), shmstore.Error)
    raises(lambda: shmstore.Partition("/nonexistent"), shmstore.Error)
    raises(lambda: shmstore.Ticket.parse("nonsense"), shmstore.Error)


def scenario_lists(store, i):
    if i == 0:
        for j in range(5):
            store[f"{j}" * 100] = j
    list(store), list(store.objects()), store.usage(), len(store)
    store.partition.find_peer("nobody"), store.partition.info(), store.partition.stores()


def scenario_stores(store, i):
    with store.partition.open("short", label="x", directory="stores/short") as short:
        short["k"] = ARRAY
        value = short["k"]
    raises(lambda: short["k"], shmstore.ClosedError)
    assert value[7] == 7


SCENARIOS = {name[9:]: act for name, act in list(globals().items()) if name.startswith("scenario_")}
FEWER = {"errors": 2000, "stores": 1000}


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_leak(store, name):
    act, rounds = SCENARIOS[name], FEWER.get(name, ROUNDS)
    for i in range(rounds // 10):
        act(store, i)
    gc.collect()
    before = n_fds(), n_maps(), len(gc.get_objects())
    private = private_bytes()
    for i in range(1, rounds + 1):
        act(store, i)
    gc.collect()
    fds, maps, objects = n_fds(), n_maps(), len(gc.get_objects())
    assert fds <= before[0]
    assert maps <= before[1] + 4  # the allocators' own
    assert objects <= before[2] + 50
    # 100 bytes a round would be seen; slack for the allocators
    assert private_bytes() - private < max(rounds * 100, 2 << 20)


@pytest.mark.skipif(os.environ.get("PYTHONMALLOC") == "malloc",
                    reason="tracemalloc misses frees there, plain pickle's too")
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_python_memory_is_left(store, name):
    act = SCENARIOS[name]
    # without the GIL memory is given back late
    warm = 50 if getattr(sys, "_is_gil_enabled", lambda: True)() else 500
    for i in range(50):
        act(store, i)
    gc.collect()
    tracemalloc.start()
    for i in range(warm):
        act(store, i + 1)
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    for i in range(500):
        act(store, i + 1)
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert left < 500 * 16


def test_types_and_arguments_keep_their_references(store):
    key, header, data = ("key" + str(store.path), b"header" + store.path.encode(),
                         bytearray(b"x" * 1000))
    kinds = [shmstore.View, shmstore.Writer,
             type(memoryview(store.create("w", 0, [1]).buffers[0]).obj)]
    gc.collect()
    before = [sys.getrefcount(o) for o in (key, header, data, store, store.partition, *kinds)]
    for i in range(200):
        store.put_buffers(key, header, [data], replace=True)
        view = store.view(key)
        view.buffers, view.header_view
        store.create(key, 0, [10]).buffers
        str(key in store), store.handoff(key)
    del view
    gc.collect()
    assert [sys.getrefcount(o) for o in (key, header, data, store, store.partition,
                                         *kinds)] == before
