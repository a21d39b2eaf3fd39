# SPDX-License-Identifier: Apache-2.0
"""Stores that pack small objects into segments."""
import os

import pytest

import shmstore

MAX = 64 << 10


@pytest.fixture
def store(partition):
    with partition.open("packing", recycle_max=0, pack_max=MAX) as store:
        yield store


def fill(i):
    return i.to_bytes(4, "little") * 256


def packed(store):
    return {o.key for o in store.objects() if o.packed}


def test_small_objects_are_packed(partition, store):
    numpy = pytest.importorskip("numpy")
    for i in range(300):
        store.put_buffers(f"k{i}", b"head", [fill(i)])
    store["array"] = numpy.arange(100)
    store["large"] = bytes(4 * MAX)
    assert packed(store) == {"array", *(f"k{i}" for i in range(300))}
    assert os.listdir(os.path.join(store.path, "objects")) == ["large"]
    for i in range(300):
        view = store.view(f"k{i}")
        assert bytes(view.header) == b"head" and bytes(view.buffers[0]) == fill(i)
    assert (store["array"] == numpy.arange(100)).all() and store["large"] == bytes(4 * MAX)
    (info,) = (o for o in store.objects() if o.key == "k7")
    assert info.buffer_size == 1024 and info.links == 1 and info.mtime_ns == 0 and info.error == 0
    usage = partition.usage(full=True)
    assert usage.n_objects == 302 and usage.foreign == 0
    for i in range(300):
        del store[f"k{i}"]
    assert packed(store) == {"array"} and "k7" not in store


def test_view_outlives_its_object(store):
    store.put_buffers("k", b"", [fill(1)])
    view = store.view("k")
    del store["k"]
    for i in range(2000):
        store.put_buffers("n", b"", [fill(i)], replace=True)
    assert bytes(view.buffers[0]) == fill(1)
    store.close()
    assert bytes(view.buffers[0]) == fill(1)


def test_handoff_and_adopt(partition, store):
    with partition.open("receiver") as receiver:
        for i in range(100):
            store.put_buffers(f"k{i}", b"", [fill(i)])
            receiver.adopt(f"k{i}", store.handoff(f"k{i}"))
            del store[f"k{i}"]
        assert packed(receiver) == {f"k{i}" for i in range(100)} and not list(store.objects())
        ticket = receiver.handoff("k7")
        receiver.adopt("other", ticket)
        with pytest.raises(shmstore.Error):
            receiver.adopt("again", ticket)
        store.close()
        assert bytes(receiver.view("k99").buffers[0]) == fill(99)
        assert bytes(receiver.view("other").buffers[0]) == fill(7)
    assert partition.gc().n_stores == 0
    assert partition.usage(full=True).n_objects == 0


def test_checksums_pins_and_what_is_created(store):
    store.put_buffers("sum", b"", [fill(1)], checksum=True)
    store.put_buffers("pin", b"", [fill(2)], pin=True)
    with store.create("made", 0, [1024]) as writer:
        writer.buffers[0][:] = fill(3)
    store.put_buffers("k", b"", [fill(4)])
    store.pin("k")
    listed = {o.key: o for o in store.objects()}
    assert all(o.packed for o in listed.values())
    assert {o.key for o in listed.values() if o.checksum} == {"sum"}
    assert {o.key for o in listed.values() if o.pinned} == {"pin", "k"}
    for key, i in (("sum", 1), ("pin", 2), ("made", 3), ("k", 4)):
        assert bytes(store.view(key, verify=True).buffers[0]) == fill(i)


def test_kept_store_finds_its_objects(partition):
    with partition.open("kept", keep=True, pack_max=MAX) as store:
        store["k"] = b"x" * 1024
    with partition.open("kept", readonly=True) as reader:
        assert packed(reader) == {"k"} and reader["k"] == b"x" * 1024
    with partition.open("kept") as store:
        assert packed(store) == {"k"} and store["k"] == b"x" * 1024


def test_what_is_packed_unasked(partition, monkeypatch):
    with partition.open("s", pack_max=0) as store:
        store["k"] = b"x" * 100
        assert packed(store) == set()
    with partition.open("s") as store:
        store["small"] = b"x" * 1_000_000
        store["large"] = b"x" * 1_100_000
        assert packed(store) == {"small"}
    for text, keys in (("1000", {"k"}), ("0", set()), ("nonsense", {"k", "l"})):
        monkeypatch.setenv("SHMSTORE_PACK_MAX", text)
        with partition.open("s") as store:
            store["k"] = b"x" * 100
            store["l"] = b"x" * 10_000
            assert packed(store) == keys
