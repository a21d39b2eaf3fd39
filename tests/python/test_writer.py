# SPDX-License-Identifier: Apache-2.0
"""Writing objects in place: create, seal, abort."""

import errno
import gc
import sys

import numpy as np
import pytest

import shmstore
from conftest import maps_of


def test_seal_publishes(store):
    writer = store.create("k", 6, [8, 0, 100000])
    assert not writer.closed and writer.key == "k" and writer.nbytes == 100008
    assert "k" not in store
    writer.header[:] = b"header"
    first, empty, last = writer.buffers
    first.cast("d")[0] = 1.5
    np.frombuffer(last, "u1")[:] = 7
    assert empty.nbytes == 0 and not last.readonly
    del first, empty, last
    writer.seal()
    view = store.view("k")
    assert view.header == b"header"
    assert view.buffers[0].cast("d")[0] == 1.5
    assert (np.frombuffer(view.buffers[2], "u1") == 7).all()
    assert writer.closed
    with pytest.raises(ValueError, match="sealed"):
        writer.buffers
    with pytest.raises(ValueError, match="sealed"):
        writer.seal()
    writer.abort()  # nothing to do
    assert "k" in store


def test_new_memory_is_zero(store):
    for _ in range(3):  # also where it is recycled
        with store.create("k", 0, [300000], replace=True) as writer:
            memory = np.frombuffer(writer.buffers[0], "u1")
            assert not memory.any()
            memory[:] = 255
            del memory
        del store["k"]


def test_seal_refuses_while_memory_is_in_use(store):
    writer = store.create("k", 4, [100])
    array = np.frombuffer(writer.buffers[0], "u1")
    header = writer.header
    with pytest.raises(BufferError, match="2 memoryviews"):
        writer.seal()
    assert not writer.closed and "k" not in store
    array[:] = 5
    header.release()
    with pytest.raises(BufferError, match="1 memoryviews"):
        writer.seal()
    del array
    writer.seal()
    assert bytes(store.view("k").buffers[0]) == b"\5" * 100


def test_context_manager_seals(store):
    with store.create("k", 1, [3]) as writer:
        writer.header[:] = b"h"
        writer.buffers[0][:] = b"abc"
    assert bytes(store.view("k")) == b"abc"
    with store.create("l", 0, [3]) as writer:
        writer.abort()
    assert "l" not in store


def test_context_manager_aborts_when_its_block_raises(store, place):
    before = maps_of(place.path)
    with pytest.raises(RuntimeError, match="mine"):
        with store.create("k", 0, [100000]) as writer:
            memory = writer.buffers[0]
            raise RuntimeError("mine")
    assert writer.closed and "k" not in store
    memory[0] = 1  # what is left stays usable
    assert maps_of(place.path) != before
    memory.release()
    assert maps_of(place.path) == before


def test_abort_and_forgetting_leave_nothing(store, place, partition):
    before = maps_of(place.path)
    writer = store.create("k", 0, [1 << 20])
    writer.abort()
    writer.abort()
    with pytest.raises(ValueError, match="aborted"):
        writer.header
    store.create("k", 0, [1 << 20])
    assert len(store) == 0
    assert maps_of(place.path) == before
    if place.mounted:
        assert partition.usage(full=True).inflight == 0


def test_existing_key_is_found_at_seal(store):
    store["k"] = 1
    writer = store.create("k", 0, [3])
    with pytest.raises(shmstore.Error) as caught:
        writer.seal()
    assert caught.value.errno == errno.EEXIST
    assert writer.closed and store["k"] == 1
    with store.create("k", 0, [3], replace=True) as writer:
        writer.buffers[0][:] = b"new"
    assert bytes(store.view("k")) == b"new"


def test_bad_arguments(store):
    with pytest.raises(ValueError, match="negative"):
        store.create("k", -1, [])
    with pytest.raises(ValueError, match="buffer 1 is negative"):
        store.create("k", 0, [1, -1])
    with pytest.raises(TypeError):
        store.create("k", 0, ["x"])
    with pytest.raises(TypeError):
        store.create("k", 0, 5)
    with pytest.raises(OverflowError):
        store.create("k", 0, [1 << 70])
    with pytest.raises(shmstore.Error) as caught:
        store.create("k", 0, [1 << 60])
    assert caught.value.errno in (errno.ENOSPC, errno.EINVAL)
    assert len(store) == 0


def test_closed_store_refuses_seal_and_allows_abort(partition):
    store = partition.open("short")
    sealed, aborted = store.create("k", 0, [3]), store.create("l", 0, [3])
    store.close()
    with pytest.raises(shmstore.ClosedError):
        sealed.seal()
    assert not sealed.closed
    sealed.abort()
    aborted.abort()
    assert sealed.closed


def test_exporter_cannot_be_kept_beyond_the_seal(store):
    writer = store.create("k", 0, [3])
    memory = writer.buffers[0].obj
    writer.seal()
    with pytest.raises(ValueError, match="sealed"):
        memoryview(memory)


def test_checksum(store):
    with store.create("k", 0, [10000], checksum=True) as writer:
        writer.buffers[0][:] = b"x" * 10000
    assert store.view("k", verify=True).nbytes == 10000
    assert next(store.objects()).checksum


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(),
                    reason="without the GIL nothing is collected that soon")
@pytest.mark.parametrize("last_words", ["abort", "seal"])
def test_finalizer_in_the_midst_of_handing_out(store, last_words):
    """Making the memoryviews may collect garbage, and that may run anything."""

    class Mine:
        def __del__(self):
            try:
                getattr(writer, last_words)()
            except BufferError:
                refused.append(last_words)

    refused = []
    gc.collect()
    gc.freeze()  # a collection looks at what is made from here on, not at all of NumPy
    for n in range(1, 30):
        writer = store.create("k", 0, [10] * n, replace=True)
        threshold = gc.get_threshold()
        gc.collect()
        gc.disable()
        mine = Mine()  # young garbage: the next collection finds it
        mine.itself = mine
        gc.set_threshold(1)
        gc.enable()
        del mine
        try:
            for buffer in writer.buffers:
                buffer[:] = b"x" * 10
            del buffer
        except ValueError:
            assert writer.closed
        finally:
            gc.set_threshold(*threshold)
            gc.collect()
        writer.abort()
    gc.unfreeze()
    assert refused or last_words == "abort"
