# SPDX-License-Identifier: Apache-2.0
"""Opening and closing stores, who owns them, what stays."""

import errno
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import warnings

import pytest

import shmstore
from conftest import run_child, wait_for


def test_context_manager_closes_and_removes(partition):
    with partition.open("s") as store:
        assert store.name == "s" and store.partition is partition and not store.closed
        assert store.path == os.path.join(partition.path, "stores", "s")
        store["k"] = 1
        assert os.path.isdir(store.path)
    assert store.closed and not os.path.exists(store.path)
    store.close()


def test_closed_store_raises(partition):
    store = partition.open("s")
    store["k"] = 1
    store.close()
    for act in (
        lambda: store["k"],
        lambda: store.__setitem__("k", 1),
        lambda: store.__delitem__("k"),
        lambda: "k" in store,
        lambda: store.get("k"),
        lambda: len(store),
        lambda: list(store),
        lambda: store.objects(),
        lambda: store.usage(),
        lambda: store.handoff("k"),
        lambda: store.create("k", 0, []),
        lambda: store.set_address("x"),
        lambda: store.adopt("k", shmstore.Ticket("/x", 1, 1)),
    ):
        with pytest.raises(shmstore.ClosedError, match="store 's' is closed") as caught:
            act()
        assert caught.value.errno == errno.EBADF
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, shmstore.Error)
    assert "closed" in repr(store) and store.name == "s"


def test_name_held_by_a_live_owner(partition):
    with partition.open("s"):
        with pytest.raises(shmstore.Error, match="'s'.*live") as caught:
            partition.open("s")
        assert caught.value.errno == errno.EBUSY
    partition.open("s").close()


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "x" * 256])
def test_bad_names(partition, name):
    with pytest.raises(shmstore.Error) as caught:
        partition.open(name)
    assert caught.value.errno == errno.EINVAL


def test_bad_arguments(partition):
    with pytest.raises(TypeError):
        partition.open(5)
    with pytest.raises(TypeError):
        partition.open("s", nonsense=1)
    with pytest.raises(ValueError):
        partition.open("a\0b")
    with pytest.raises(OverflowError):
        partition.open("s", recycle_max=-1)
    with pytest.raises(OverflowError):
        partition.open("s", pack_max=-1)
    with pytest.raises(TypeError):
        partition.open("s", pack_max="64 KiB")
    with pytest.raises(TypeError):
        shmstore.Store("no partition", "s")
    with pytest.raises(shmstore.Error) as caught:
        partition.open("s", label="x" * 200)
    assert caught.value.errno == errno.EINVAL
    assert partition.stores() == []


def test_numpy_integers_are_integers(partition):
    numpy = pytest.importorskip("numpy")
    with partition.open("s", recycle_max=numpy.int64(0)) as store:
        with store.create("k", numpy.uint8(1), [numpy.int32(3)]) as writer:
            assert writer.nbytes == 3
        ticket = store.handoff("k", lease=numpy.float32(10))
        store.adopt("l", shmstore.Ticket(ticket.path, *map(numpy.uint64, ticket[1:])))


def test_label_address_and_counters_are_told(partition):
    with partition.open("s", label="worker", keep=True) as store:
        store.set_address("tcp://10.0.0.1:4711")
        store["k"] = 1
        (info,) = partition.stores()
        assert (info.name, info.label, info.address) == ("s", "worker", "tcp://10.0.0.1:4711")
        assert info.pid == os.getpid() and info.uid == os.getuid()
        assert info.alive is True and info.keep and info.readable and info.path == store.path
        assert info.counters.put_n == 1 and info["counters"]["put_n"] == 1
        assert partition.find_peer("tcp://10.0.0.1:4711") == "s"
        store.set_address(None)
        assert partition.find_peer("tcp://10.0.0.1:4711") is None
    (info,) = partition.stores()
    assert info.alive is False


def test_kept_store_stays(partition):
    with partition.open("s", keep=True) as store:
        store["k"] = 1
    with partition.open("s", keep=True) as store:
        assert store["k"] == 1
    with partition.open("s", readonly=True) as store:
        assert store["k"] == 1 and list(store) == ["k"]
        with pytest.raises(shmstore.Error) as caught:
            store["l"] = 2
        assert caught.value.errno == errno.EPERM
    with partition.open("s", fresh=True) as store:
        assert len(store) == 0


def test_readonly_of_a_live_store(partition, store):
    store["k"] = [1]
    with partition.open("main", readonly=True) as look:
        assert look["k"] == [1]
    assert store["k"] == [1]
    with pytest.raises(shmstore.Error) as caught:
        partition.open("missing", readonly=True)
    assert caught.value.errno == errno.ENOENT


def test_directory(partition, tmp_path):
    directory = pathlib.Path(partition.path) / "workers"
    directory.mkdir()
    with partition.open("s", directory=directory / "w") as store:
        assert store.path == str(directory / "w")
        store["k"] = 1
        assert [s.name for s in partition.stores()] == ["s"]
    with pytest.raises(shmstore.Error) as caught:
        partition.open("s", directory=tmp_path / "x")
    assert caught.value.errno == errno.EPERM


CHILD = """
import shmstore, sys, time
store = shmstore.Partition(sys.argv[1]).open("dead", keep=sys.argv[2] == "keep")
store["k"] = list(range(10))
print("ready", flush=True)
sys.stdin.read()
"""


def killed(partition, keep):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, partition.path, keep], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"ready\n"
        assert partition.stores()[0].alive is True
        with pytest.raises(shmstore.Error):
            partition.open("dead")
        child.send_signal(signal.SIGKILL)
        child.wait()
    wait_for("the dead owner's lock", lambda: partition.stores()[0].alive is False)


def test_a_dead_owners_store_is_garbage_unless_adopted(partition):
    killed(partition, "drop")
    plan = partition.gc(dry_run=True)
    assert plan.n_stores == 1 and plan.freed > 0
    (action,) = [a for a in plan.actions if a.what == "store"]
    assert action.path.endswith("/stores/dead") and action.evidence and action.error == 0
    assert len(partition.stores()) == 1
    with partition.open("dead", adopt=True) as store:
        assert store["k"] == list(range(10))
    killed(partition, "drop")
    report = partition.gc()
    assert report.n_stores == 1 and report["freed"] > 0 and partition.stores() == []


def test_a_dead_owners_kept_store_is_taken_over(partition):
    killed(partition, "keep")
    assert partition.gc().n_stores == 0
    with partition.open("dead") as store:
        assert store["k"] == list(range(10))


def test_forgotten_store_is_closed_with_a_warning(partition):
    store = partition.open("s")
    path = store.path
    with pytest.warns(ResourceWarning, match="store 's' was not closed"):
        del store
        gc.collect()
    assert not os.path.exists(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = partition.open("s")
        store.close()
        del store


def test_store_is_closed_when_the_interpreter_ends(partition):
    run_child(
        "import shmstore, sys; store = shmstore.Partition(sys.argv[1]).open('s'); store['k'] = 1",
        partition.path
    )
    assert partition.stores() == []


def test_store_cannot_be_pickled_but_the_partition_can(partition, store):
    with pytest.raises(TypeError, match="ticket"):
        pickle.dumps(store)
    again = pickle.loads(pickle.dumps(partition))
    assert again.path == partition.path and type(again) is shmstore.Partition


def test_store_can_be_subclassed(partition):
    class Mine(shmstore.Store):
        def __init__(self, *args, **kwargs):
            self.extra = 5

    with Mine(partition, "s", keep=False) as store:
        store["k"] = store.extra
        assert store["k"] == 5


def test_usage(store, other):
    store["k"] = b"x" * 100000
    usage = store.usage()
    assert (usage.n_objects == 1 and usage.linked >= 100000 and
            usage.uss == usage.pss == usage.linked)
    view = store.view("k")
    assert store.usage().n_views == 1 and store.usage().mapped >= 100000
    other.adopt("k", store.handoff("k"))
    usage = store.usage()
    assert usage.pss == usage.linked // 2 and usage.uss == 0 and usage["linked"] == usage.linked
    assert dict(usage)["n_objects"] == 1
    with pytest.raises(KeyError):
        usage["nonsense"]
    del view
    assert store.usage().n_views == 0


@pytest.mark.usefixtures("files")
def test_objects(store):
    store.put_buffers("k", b"h" * 10, [b"x" * 100, b"y" * 200])
    (info,) = store.objects()
    assert (info.key == "k" and info.name == "k" and info.n_buffers == 2 and info.links == 1 and
            info.error == 0)
    assert info.buffer_size >= 300 and info.header_size > 10 and info.blocks >= 4096
    found = os.stat(os.path.join(store.path, "objects", info.name))
    assert found.st_ino == info.inode and found.st_size == info.header_size + info.buffer_size
    assert found.st_blocks * 512 == info.blocks and found.st_mtime_ns == info.mtime_ns
