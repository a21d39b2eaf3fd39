# SPDX-License-Identifier: Apache-2.0
"""Arrays that are born shared: made by NumPy in the partition, published without a copy."""

import array
import asyncio
import ctypes
import errno
import gc
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from test_fork import in_child

import shmstore

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from arraymaps import file_of  # noqa: E402

MIB = 1 << 20
HEAD = 4096  # the page in front of a buffer


def closes(partition):
    """The books, which must close."""
    usage = partition.usage(full=True)
    assert usage.residual == 0, usage
    return usage


def born(store, n=4 * MIB, fill=7, dtype=np.uint8):
    """An array that must be in the partition."""
    with store.born_shared() as on:
        assert on
        made = np.full(n, fill, dtype)
    assert file_of(made)[1], "made in ordinary memory"
    return made


def inode_of(store, key):
    return os.stat(os.path.join(store.path, "objects", key)).st_ino


def test_a_put_publishes_the_very_file(partition, store, place):
    made = born(store)
    inode, _ = file_of(made)
    if place.mounted:
        assert closes(partition).inflight == made.nbytes + HEAD
    store["k"] = made
    assert inode_of(store, "k") == inode
    assert os.stat(os.path.join(store.path, "objects", "k")).st_size == made.nbytes + HEAD
    if place.mounted:
        usage = closes(partition)
        assert (usage.inflight == 0 and usage.linked - usage.metadata <= made.nbytes +
                2 * HEAD), "copied"
    assert (store["k"] == 7).all()
    del made
    assert (store["k"] == 7).all()
    if place.mounted:
        closes(partition)


def test_an_object_never_changes_and_the_array_stays_writable(partition, store, place):
    made = born(store)
    address = made.ctypes.data
    store["k"] = made
    view = store["k"]
    made[::4096] = 1
    made[-1] = 9
    assert made.ctypes.data == address and made[0] == 1 and made[-1] == 9 and made[1] == 7
    assert (view == 7).all() and (store["k"] == 7).all()
    store["later"] = made  # a copy: it is not what the object holds
    assert inode_of(store, "later") != inode_of(store, "k")
    assert store["later"][0] == 1 and store["later"][-1] == 9 and (store["k"] == 7).all()
    if place.mounted:
        closes(partition)


def test_a_view_in_another_process_never_changes(partition, store):
    made = born(store)
    store["k"] = made
    program = (
        "import sys, shmstore\n"
        "a = shmstore.Partition(sys.argv[1]).open(sys.argv[2], readonly=True)['k']\n"
        "print((a == 7).all(), flush=True)\n"
        "sys.stdin.readline()\n"
        "print((a == 7).all(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, partition.path, store.name], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout.readline() == "True\n"
        made[:] = 1
        del store["k"]
        for value in range(20):  # of the pool's files, or fresh ones: what is put, and made, now
            other = born(store, fill=value)
            store[f"k{value}"] = np.full(4 * MIB, value, np.uint8)
            store[f"b{value}"] = other
            del store[f"k{value}"], store[f"b{value}"], other
        print(file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "True\n"


def test_a_published_array_keeps_its_bytes_when_the_object_is_recycled(store):
    """The file of a deleted object is written again only if nobody maps it: the array does."""
    arrays = []
    for value in range(8):
        made = born(store, fill=value)
        store["k"] = made
        arrays.append(made)
        del store["k"]
    for value in range(8, 16):
        store["k"] = np.full(4 * MIB, value, np.uint8)
        del store["k"]
    for value, made in enumerate(arrays):
        assert (made == value).all()


@pytest.mark.parametrize(
    "shape",
    [
        lambda a: a,
        lambda a: a.reshape(1024, -1),
        lambda a: a.reshape(1024, -1).T,
        lambda a: a.view(np.uint32),
        lambda a: np.asfortranarray(a),
        lambda a: (a, {"n": 1}),
        memoryview,
    ],
    ids=["itself", "reshape", "transpose", "dtype", "fortran", "tuple", "memoryview"],
)
def test_all_of_it_is_published(store, shape):
    made = born(store)
    inode, _ = file_of(made)
    store["k"] = shape(made)
    assert inode_of(store, "k") == inode


@pytest.mark.parametrize(
    "part",
    [
        lambda a: a[:-1],
        lambda a: a[4096:],
        lambda a: a[::2],
        lambda a: [a, np.ones(1 << 17)],
        lambda a: np.array([a, a]),
    ],
    ids=["front", "end", "strided", "two", "copied"],
)
def test_parts_and_more_are_copied(store, part):
    made = born(store)
    inode, _ = file_of(made)
    value = part(made)
    store["k"] = value
    assert inode_of(store, "k") != inode
    assert file_of(made) == (inode, True), "still to be published"
    expected = value if isinstance(value, list) else [value]
    got = store["k"] if isinstance(value, list) else [store["k"]]
    assert all((one == other).all() for one, other in zip(got, expected))


def test_a_large_header_is_copied(store):
    made = born(store)
    inode, _ = file_of(made)
    store.put_buffers("k", b"h" * 8192, [made])
    view = store.view("k")
    assert (inode_of(store, "k") != inode and view.header == b"h" * 8192 and
            (np.asarray(view.buffers[0]) == 7).all())


@pytest.mark.usefixtures("files")
def test_a_key_that_is_held_leaves_it_to_be_published(store):
    store["k"] = 1
    made = born(store)
    with pytest.raises(shmstore.Error) as caught:
        store.put("k", made)
    assert caught.value.errno == errno.EEXIST and store["k"] == 1
    inode, shared = file_of(made)
    assert shared
    store.put("k", made, replace=True)
    assert inode_of(store, "k") == inode and (store["k"] == 7).all()


def test_checksum_and_pin(partition, store):
    made = born(store)
    store.put("k", made, checksum=True, pin=True)
    made[:] = 1
    view = store.view("k", verify=True)
    assert (np.asarray(view.buffers[0]) == 7).all()
    assert os.stat(os.path.join(store.path, "objects", "k")).st_mode & 0o1000
    assert not any(finding.error for finding in partition.verify())


def test_sizes_that_are_no_whole_pages(partition, store, place):
    for n in (2 * MIB, 2 * MIB + 1, 3 * MIB - 1, 5 * MIB + 4095):
        made = born(store, n, 3)
        store["k"] = made
        assert os.stat(os.path.join(store.path, "objects", "k")).st_size == HEAD + n
        assert (store["k"] == 3).all()
        del made
    if place.mounted:
        closes(partition)


def test_small_arrays_and_zeros_are_ordinary_memory(partition, store, place):
    with store.born_shared():
        small = np.full(2 * MIB - 1, 1, np.uint8)
        zeros = np.zeros(8 * MIB, np.uint8)
    assert not file_of(small)[1] and not file_of(zeros)[1] and not zeros.any()
    with store.born_shared(at_least=1):
        tiny = np.arange(100)
    assert file_of(tiny)[1] and tiny.sum() == 4950
    with pytest.raises(ValueError):
        with store.born_shared(at_least=0):
            pass


def test_it_is_in_force_for_this_context_only(store):
    seen = {}

    def other():
        seen["thread"] = file_of(np.ones(MIB))[1]

    async def coroutine(born):
        if born:
            with store.born_shared():
                await asyncio.sleep(0.01)
                return file_of(np.ones(MIB))[1]
        await asyncio.sleep(0.005)
        return file_of(np.ones(MIB))[1]

    async def both():
        return await asyncio.gather(coroutine(True), coroutine(False))

    with store.born_shared():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with store.born_shared(at_least=16 * MIB):
            assert not file_of(np.ones(MIB))[1]
        assert file_of(np.ones(MIB))[1]
    # Without the GIL a new thread begins in a copy of its maker's context.
    assert seen == {"thread": bool(getattr(sys.flags, "thread_inherit_context", 0))}
    assert asyncio.run(both()) == [True, False]
    with pytest.raises(RuntimeError):
        with store.born_shared():
            raise RuntimeError
    assert not file_of(np.ones(MIB))[1]


def test_what_goes_wrong_in_between_leaves_nothing(partition, store, place):
    for _ in range(3):
        with pytest.raises(ValueError):
            with store.born_shared():
                made = np.ones(MIB)
                np.concatenate([made, made]).reshape(3)
    del made
    gc.collect()
    store.close()
    if place.mounted:
        assert closes(partition).inflight == 0


def test_resize_and_realloc(store):
    with store.born_shared():
        grown = np.arange(MIB, dtype=np.uint32)
        grown.resize(2 * MIB, refcheck=False)
        assert file_of(grown)[1]
        assert (grown[:MIB] == np.arange(MIB)).all() and not grown[MIB:].any()
        shrunk = np.arange(MIB, dtype=np.uint32)
        shrunk.resize(1000, refcheck=False)
        assert not file_of(shrunk)[1] and (shrunk == np.arange(1000)).all()
        up = np.arange(1000, dtype=np.uint32)
        up.resize(MIB, refcheck=False)
        assert (up[:1000] == np.arange(1000)).all() and not up[1000:].any()
    grown.resize(3 * MIB, refcheck=False)  # no longer in force
    assert (grown[:MIB] == np.arange(MIB)).all() and not grown[MIB:].any()
    inode = file_of(grown)[0]
    store["k"] = grown
    assert inode_of(store, "k") != inode and (store["k"] == grown).all()
    made = born(store)
    store["p"] = made
    made.resize(8 * MIB, refcheck=False)  # of what is published
    assert (made[: 4 * MIB] == 7).all() and (store["p"] == 7).all() and store["p"].nbytes == 4 * MIB


def test_freed_memory_is_used_again_and_its_object_is_exact(partition, store, place):
    first = born(store)
    inode, _ = file_of(first)
    del first
    if place.mounted:
        assert closes(partition).inflight == 4 * MIB + HEAD, "kept"
    again = born(store, 4 * MIB - 100, 5)
    assert file_of(again)[0] == inode
    store["k"] = again
    assert inode_of(store, "k") == inode
    with open(os.path.join(store.path, "objects", "k"), "rb") as file:
        assert file.read()[HEAD:] == b"\5" * (4 * MIB - 100), "bytes of an earlier array"
    del again, store["k"]
    born(store, 4 * MIB, 1)
    store.close()
    if place.mounted:
        assert closes(partition).inflight == 0


def test_a_fork_splits_the_two(partition, store, place):
    before, published = born(store), born(store, fill=3)
    kept = born(store, fill=1)
    del kept
    store["p"] = published

    def child():
        assert (before == 7).all() and (published == 3).all()
        before[0], published[0] = 1, 1
        with pytest.raises(shmstore.Error):
            store["c"] = before
        with store_refuses(store):
            pass
        more = before + 1
        assert more[1] == 8

    in_child(child)
    assert (before == 7).all() and (store["p"] == 3).all() and (published == 3).all()
    before[1] = 2
    inode = file_of(before)[0]
    store["k"] = before  # a copy: the child may have it still
    assert inode_of(store, "k") != inode and store["k"][1] == 2 and store["k"][0] == 7
    after = born(store, fill=4)
    inode, _ = file_of(after)
    store["l"] = after
    assert inode_of(store, "l") == inode
    if place.mounted:
        closes(partition)


class store_refuses:
    """In a child nothing is made in the store."""

    def __init__(self, store):
        self.store = store

    def __enter__(self):
        with pytest.raises(shmstore.Error):
            with self.store.born_shared():
                pass

    def __exit__(self, *args):
        pass


def test_a_fork_within_makes_ordinary_memory(store):
    def child():
        made = np.ones(MIB)
        assert not file_of(made)[1]
        mine.resize(2 * MIB, refcheck=False)
        assert mine[0] == 1 and mine.size == 2 * MIB

    with store.born_shared():
        mine = np.ones(MIB)
        in_child(child)
        assert (mine == 1).all()


def test_what_a_child_has_never_changes(store):
    """Neither the parent's writes nor its next arrays reach a child's memory."""
    made = born(store)
    go, come = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go[1])  # its end is the parent's
        told = os.read(go[0], 1)
        os.write(come[1], b"y" if told and (made == 7).all() else b"n")
        os._exit(0)
    made[:] = 1
    del made
    others = [born(store, fill=2) for _ in range(4)]
    os.write(go[1], b"x")
    assert os.read(come[0], 1) == b"y"
    os.waitpid(pid, 0)
    assert all((other == 2).all() for other in others)
    for end in (*go, *come):
        os.close(end)


def test_threads(partition, store, place):
    errors = []

    def work(seed):
        try:
            with store.born_shared():
                for i in range(30):
                    made = np.full(MIB // 4 + seed, seed * 1000 + i)
                    other = made + 1
                    if i % 3 == 0:
                        store[f"{seed}-{i}"] = made
                        made[:] = 0
                        del made
                        assert (store[f"{seed}-{i}"] == seed * 1000 + i).all()
                        del store[f"{seed}-{i}"]
                    assert (other == seed * 1000 + i + 1).all()
        except BaseException as e:  # pylint: disable=broad-except
            errors.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    if place.mounted:
        closes(partition)


def test_two_threads_put_one_array(store):
    for i in range(10):
        made = born(store, fill=i)
        barrier = threading.Barrier(2)

        def put(key, made=made, barrier=barrier):
            barrier.wait()
            store.put(key, made, replace=True)

        threads = [threading.Thread(target=put, args=(key,)) for key in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made[:] = 99
        assert (store["a"] == i).all() and (store["b"] == i).all()
        assert inode_of(store, "a") != inode_of(store, "b")


def test_arrays_outlive_the_store(partition, place):
    store = partition.open("brief")
    made, published = born(store), born(store, fill=3)
    store["k"] = published
    born(store, fill=2)
    with store.born_shared():
        store.close()
        assert not file_of(np.ones(MIB))[1]
    assert (made == 7).all() and (published == 3).all()
    made[:] = 1
    published[:] = 1
    with pytest.raises(shmstore.ClosedError):
        with store.born_shared():
            pass
    if place.mounted:
        usage = closes(partition)
        assert usage.inflight + usage.ghosts == 2 * (4 * MIB + HEAD)
    del made, published
    if place.mounted:
        usage = closes(partition)
        assert usage.inflight + usage.ghosts == 0


def test_another_store_copies(partition, store):
    made = born(store)
    inode, _ = file_of(made)
    with partition.open("other") as other:
        other["k"] = made
        assert inode_of(other, "k") != inode and (other["k"] == 7).all()
    store["k"] = made
    assert inode_of(store, "k") == inode


def test_a_partition_that_is_short_makes_ordinary_memory(partition, store, place):
    if not place.mounted:
        pytest.skip("needs a partition of its own size")
    size = partition.usage().size
    with store.born_shared():
        arrays = [np.ones(8 * MIB) for _ in range(size // (64 * MIB) + 2)]
    shared = [file_of(made)[1] for made in arrays]
    assert shared[0] and not shared[-1]
    assert closes(partition).used <= size * 3 // 4 + HEAD * 4
    assert all((made == 1).all() for made in arrays)
    store["k"] = np.ones(MIB)


def test_what_is_kept_gives_way_to_a_put(place):
    if not place.mounted:
        pytest.skip("needs a partition of its own size")
    partition = shmstore.Partition(place.path, create=True)
    with partition.open("a") as store:
        size = partition.usage().size
        born(store, 40 * MIB)
        assert closes(partition).inflight > 40 * MIB
        room = size - partition.usage().used
        store.put_buffers("k", b"", [np.zeros(room + 20 * MIB, np.uint8)])
        assert closes(partition).inflight == 0


def test_descriptors_are_left_to_the_program(store):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        with store.born_shared(at_least=8192):
            arrays = [np.ones(2048) for _ in range(40)]
        assert sum(file_of(made)[1] for made in arrays) == 16
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


KILLED = """
import os, sys, time
import numpy as np, shmstore
store = shmstore.Partition(sys.argv[1]).open("victim")
with store.born_shared():
    live = [np.ones(1 << 19) for _ in range(5)]
    del live[0]
    store["k"] = live[0]
    live[0][:] = 3
print("ready", flush=True)
time.sleep(100)
"""


def test_kill_leaves_nothing(partition, place):
    with subprocess.Popen([sys.executable, "-c", KILLED, partition.path],
                          stdout=subprocess.PIPE) as victim:
        assert victim.stdout.readline() == b"ready\n"
        if place.mounted:
            assert closes(partition).inflight == 4 * (4 * MIB + HEAD)
        with partition.open("heir") as heir:
            assert (partition.open("victim", readonly=True)["k"] == 1).all()
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            if place.mounted:
                assert closes(partition).inflight == 0, (
                    "what was not published goes with the process")
            partition.gc()
            assert list(heir) == []
    if place.mounted:
        usage = closes(partition)
        assert usage.linked == usage.metadata and usage.inflight == usage.ghosts == 0


def test_somebody_elses_handler_stays(store):
    multiarray = getattr(np, "_core", None) or np.core
    capsule = getattr(multiarray, "_multiarray_umath")._ARRAY_API
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                     ctypes.c_void_p]
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    default = ctypes.cast(table[306], ctypes.POINTER(ctypes.py_object))[0]
    copy = ctypes.create_string_buffer(ctypes.string_at(pointer(default, b"mem_handler"),
                                                        128 + 5 * 8))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])
    theirs = make(ctypes.addressof(copy), b"mem_handler", None)
    before = set_handler(theirs)
    try:
        with store.born_shared() as on:
            assert not on and not file_of(np.ones(MIB))[1]
    finally:
        assert set_handler(before) is theirs


def test_values_of_other_libraries(store):
    pandas = pytest.importorskip("pandas")
    with store.born_shared():
        frame = pandas.DataFrame(np.ones((MIB, 2)))
        text = json.dumps(list(range(10)))
        numbers = array.array("d", [1.0]) * MIB
    store["f"], store["t"], store["n"] = frame, text, numbers
    assert store["f"].equals(frame) and store["t"] == text and store["n"] == numbers
