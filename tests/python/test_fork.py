# SPDX-License-Identifier: Apache-2.0
"""A forked child: views work, the store is the parent's."""

import errno
import os
import threading
import traceback

import numpy as np
import pytest

import shmstore


def in_child(act):
    """Runs act in a forked child; fails with what it raised there."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            act()
            os.write(write, b"ok")
        except BaseException:  # pylint: disable=broad-except
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    assert said == "ok", said


def refused(act):
    with pytest.raises(shmstore.Error) as caught:
        act()
    assert caught.value.errno == errno.EPERM and "fork" in str(caught.value)


def test_views_work_and_the_store_refuses(store):
    store["k"] = np.arange(100000)
    value, private = store["k"], store.get("k", cow=True)
    private[0] = 5

    def child():
        assert (value == np.arange(100000)).all() and private[0] == 5
        private[1] = 6
        for act in (
            lambda: store["k"],
            lambda: store.__setitem__("l", 1),
            lambda: "k" in store,
            lambda: len(store),
            lambda: store.usage(),
            lambda: store.handoff("k"),
            lambda: store.delete("k"),
            lambda: store.set_address("x"),
        ):
            refused(act)

    in_child(child)
    assert private[1] == 1 and (store["k"] == np.arange(100000)).all()


def test_closing_in_the_child_touches_nothing(partition, store):
    store["k"] = 1

    def child():
        path = store.path
        store.close()
        assert store.closed and os.path.exists(path)
        with pytest.raises(shmstore.Error):
            store["k"]

    in_child(child)
    in_child(lambda: store.__exit__(None, None, None))
    assert store["k"] == 1 and partition.stores()[0].alive is True


def test_child_opens_a_store_of_its_own(partition, store):
    store["k"] = 1
    ticket = store.handoff("k")

    def child():
        with partition.open("child") as mine:
            mine.adopt("k", ticket)
            assert mine["k"] == 1

    in_child(child)
    assert [s.name for s in partition.stores()] == ["main"]


def test_writer_is_not_inherited(store):
    writer = store.create("k", 0, [100])

    def child():
        refused(lambda: writer.buffers)
        refused(lambda: writer.header)
        refused(writer.seal)
        writer.abort()

    in_child(child)
    writer.buffers[0][:] = b"x" * 100
    writer.seal()
    assert bytes(store.view("k")) == b"x" * 100


def test_fork_while_other_threads_are_inside(partition):
    store = partition.open("busy")
    data, stop = np.ones(300000, "u1"), threading.Event()

    def work(i):
        while not stop.is_set():
            store.put_buffers(str(i), b"", [data], replace=True)
            store.view(str(i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    view = None
    while view is None:
        view = store.view("0") if "0" in store else None

    def child():
        assert memoryview(view)[299999] == 1
        refused(lambda: store["0"])
        store.close()
        with partition.open(f"child-{os.getpid()}") as mine:
            mine["k"] = data
            assert (mine["k"] == data).all()

    for _ in range(20):
        in_child(child)
    stop.set()
    for thread in threads:
        thread.join()
    store.close()
