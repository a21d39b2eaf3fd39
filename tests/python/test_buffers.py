# SPDX-License-Identifier: Apache-2.0
"""Objects as header and buffers: put_buffers, view, and what a view's memory may be used for."""

import array
import errno
import gc
import mmap
import pickle
import weakref

import numpy as np
import pytest

import shmstore
from conftest import maps_of, n_fds

SIZES = [0, 1, 63, 64, 65, 4095, 4096, 65535, 65536, 1 << 20, (1 << 20) + 1]


@pytest.mark.parametrize("size", SIZES)
def test_one_buffer_comes_back(store, size):
    data = np.random.default_rng(size).bytes(size)
    store.put_buffers("k", b"header", [data])
    view = store.view("k")
    assert view.header == b"header"
    assert view.key == "k"
    assert view.nbytes == size
    assert [bytes(b) for b in view.buffers] == [data]


def test_many_buffers_come_back_aligned(store):
    data = [bytes([i % 251]) * i for i in range(300)]
    store.put_buffers("k", b"", data)
    view = store.view("k")
    assert view.header == b""
    assert [bytes(b) for b in view.buffers] == data
    assert view.nbytes == sum(map(len, data))
    assert all(np.frombuffer(b, "u1").ctypes.data % 64 == 0 for b in view.buffers if b.nbytes)


def test_object_of_only_a_header_and_of_nothing(store):
    store.put_buffers("header", b"h" * 100000, [])
    store.put_buffers("nothing", b"", [])
    assert store.view("header").header == b"h" * 100000
    assert store.view("header").buffers == ()
    assert store.view("nothing").header == b""
    assert bytes(memoryview(store.view("nothing"))) == b""


def test_header_view_is_the_header_without_a_copy(store):
    store.put_buffers("k", b"header", [b"x"])
    view = store.view("k", cow=True)
    assert bytes(view.header_view) == b"header"
    assert view.header_view.readonly
    assert view.header is view.header


def test_anything_with_contiguous_memory_is_a_buffer(store):
    f = np.asfortranarray(np.arange(12).reshape(3, 4))
    dates = np.array(["2024-01-01", "2025-06-07"], dtype="M8[D]")
    record = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    sources = [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview")[2:6],
        array.array("d", [1.5, 2.5]),
        pickle.PickleBuffer(b"picklebuffer"),
        mmap.mmap(-1, 4096),
        np.arange(5),
        f,
        dates,
        record,
        np.float64(2.5),
        np.array(7),
    ]
    store.put_buffers("k", bytearray(b"h"), (s for s in sources))
    got = [bytes(b) for b in store.view("k").buffers]
    assert got[:5] == [b"bytes", b"bytearray", b"mory", array.array("d", [1.5, 2.5]).tobytes(),
                       b"picklebuffer"]
    assert got[7] == f.tobytes(order="A") == f.T.tobytes()
    assert got[8] == dates.tobytes() and got[9] == record.tobytes()


def test_what_is_no_buffer_is_refused_and_nothing_is_stored(store):
    with pytest.raises(BufferError, match="buffer 1 .*not contiguous"):
        store.put_buffers("k", b"", [b"x", np.arange(10)[::2]])
    with pytest.raises(TypeError, match="buffer 0 must be a bytes-like object, not int"):
        store.put_buffers("k", b"", b"abc")
    with pytest.raises(TypeError):
        store.put_buffers("k", b"", 5)
    with pytest.raises(TypeError):
        store.put_buffers("k", "text", [])
    with pytest.raises(TypeError, match="a key must be str or bytes, not int"):
        store.put_buffers(5, b"", [])
    assert len(store) == 0


def test_sources_are_free_again_after_the_put(store):
    source = bytearray(b"x" * 100)
    store.put_buffers("k", bytearray(b"h"), [source])
    source.append(1)  # BufferError if it were still exported
    with pytest.raises(shmstore.Error):
        store.put_buffers("k", b"", [source])
    source.append(1)


def test_replace(store):
    store.put_buffers("k", b"1", [b"one"])
    old = store.view("k")
    with pytest.raises(shmstore.Error) as caught:
        store.put_buffers("k", b"2", [b"two"])
    assert caught.value.errno == errno.EEXIST
    store.put_buffers("k", b"2", [b"two"], replace=True)
    assert bytes(store.view("k").buffers[0]) == b"two"
    assert bytes(old.buffers[0]) == b"one" and old.header == b"1"


def test_readonly_view_cannot_be_written(store):
    store.put_buffers("k", b"", [b"data"])
    view = store.view("k")
    assert not view.cow
    assert view.buffers[0].readonly and memoryview(view).readonly
    with pytest.raises(TypeError):
        view.buffers[0][0] = 1
    with pytest.raises(ValueError):
        np.frombuffer(view.buffers[0], "u1").setflags(write=True)
    with pytest.raises((TypeError, BufferError)):
        (pytest.importorskip("ctypes").c_char * 4).from_buffer(view.buffers[0])


def test_cow_view_is_writable_and_private(store):
    store.put_buffers("k", b"", [b"data", b"x" * 100000])
    one, two, ro = store.view("k", cow=True), store.view("k", cow=True), store.view("k")
    assert one.cow and not one.buffers[0].readonly
    one.buffers[0][:] = b"mine"
    one.buffers[1][5000] = 0
    assert bytes(one.buffers[0]) == b"mine"
    for view in (two, ro, store.view("k")):
        assert bytes(view.buffers[0]) == b"data"
        assert view.buffers[1][5000] == ord("x")


def test_view_has_the_buffer_protocol(store):
    store.put_buffers("one", b"", [b"data"])
    store.put_buffers("two", b"", [b"a", b"b"])
    view = store.view("one")
    assert bytes(view) == b"data" and memoryview(view).obj is view
    assert np.frombuffer(view, "u1").tolist() == list(b"data")
    with pytest.raises(BufferError, match="2 buffers"):
        memoryview(store.view("two"))
    writable = memoryview(store.view("one", cow=True))
    writable[0] = ord("D")
    assert bytes(writable) == b"Data"


def test_memory_outlives_view_key_store_and_partition(place):
    partition = shmstore.Partition(place.path, create=True)
    store = partition.open("main", recycle_max=0)
    store.put_buffers("k", b"", [b"x" * 100000, b"y" * 10])
    view = store.view("k")
    array_, memory = np.frombuffer(view.buffers[0], "u1"), view.buffers[1]
    alive = weakref.ref(view)
    del store["k"]
    store.close()
    del store, partition, view
    gc.collect()
    assert alive() is not None
    assert array_.sum() == 100000 * ord("x") and bytes(memory) == b"y" * 10
    assert maps_of(place.path)
    del array_
    assert alive() is not None
    memory.release()
    assert alive() is None
    assert not maps_of(place.path)


@pytest.mark.usefixtures("files")
def test_no_descriptor_stays_open_per_object(store):
    def put(n):
        for i in range(n):
            store.put_buffers(str(i), b"h", [b"x" * 100000], replace=True)
        return n_fds()

    few = put(50)  # what the store keeps for recycling is bounded
    assert put(1000) == few
    views = [store.view(str(i), cow=i % 2 == 0) for i in range(1000)]
    assert n_fds() == few
    assert all(v.nbytes == 100000 for v in views)


def test_checksum_and_verify(store, place):
    store.put_buffers("plain", b"h", [b"x" * 10000])
    store.put_buffers("sum", b"h", [b"x" * 10000], checksum=True)
    assert {o.key: o.checksum for o in store.objects()} == {"plain": False, "sum": True}
    assert store.view("sum", verify=True).nbytes == store.view("plain", verify=True).nbytes == 10000


def test_views_and_writers_are_made_by_the_store_only():
    for kind in (shmstore.View, shmstore.Writer):
        with pytest.raises(TypeError):
            kind()


def test_view_cannot_be_pickled_and_has_a_repr(store):
    store.put_buffers("k", b"h", [b"abc"])
    view = store.view("k")
    assert repr(view) == "<shmstore.View of 'k', 1 buffers, 3 bytes>"
    with pytest.raises(TypeError):
        pickle.dumps(view)


@pytest.mark.usefixtures("files")
def test_identical_put_from_a_view_is_a_second_link(store):
    store.put_buffers("a", b"header", [b"x" * 100000, b"y" * 5])
    view = store.view("a")
    store.put_buffers("b", view.header, view.buffers)
    # the same bytes elsewhere: another object
    store.put_buffers("c", view.header, [b"x" * 100000, b"y" * 5])
    store.put_buffers("d", b"other!", view.buffers)
    info = {o.key: o for o in store.objects()}
    assert info["a"].inode == info["b"].inode and info["a"].links == 2
    assert len({info[k].inode for k in "acd"}) == 3
    assert bytes(store.view("b").buffers[1]) == b"y" * 5


def test_written_cow_view_is_no_second_link(store):
    store.put_buffers("a", b"header", [b"x" * 100000])
    view = store.view("a", cow=True)
    view.buffers[0][0] = ord("z")
    store.put_buffers("b", view.header, view.buffers)
    assert bytes(store.view("b").buffers[0]) == b"z" + b"x" * 99999
    assert bytes(store.view("a").buffers[0]) == b"x" * 100000
