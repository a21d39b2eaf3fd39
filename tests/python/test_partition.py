# SPDX-License-Identifier: Apache-2.0
"""The partition: creating, what it refuses, the books and who holds what."""

import errno
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import n_fds

import shmstore


def test_create_and_open(place):
    path = os.path.join(place.path, "p")
    with pytest.raises(shmstore.Error) as caught:
        shmstore.Partition(path)
    assert caught.value.errno == errno.ENOENT and path in str(caught.value)
    made = shmstore.Partition(path, create=True)
    assert made.path == os.path.realpath(path) and made.path in repr(made)
    assert shmstore.Partition(pathlib.Path(path)).info().uuid == made.info().uuid
    assert shmstore.Partition(path, create=True).info().uuid == made.info().uuid
    assert shmstore.Partition(os.fsencode(path)).path == made.path


def test_default_path(place, monkeypatch):
    monkeypatch.setenv("SHMSTORE_PARTITION", place.path)
    assert shmstore.default_path() == place.path
    assert shmstore.Partition(create=True).path == place.path
    assert shmstore.Partition(None).path == place.path
    monkeypatch.delenv("SHMSTORE_PARTITION")
    assert shmstore.default_path() != place.path


def test_foreign_directory_is_refused(place):
    (pathlib.Path(place.path) / "mine").write_text("x")
    with pytest.raises(shmstore.Error) as caught:
        shmstore.Partition(place.path, create=True)
    assert caught.value.errno == errno.EEXIST
    assert os.listdir(place.path) == ["mine"]


def test_disk_is_refused_unless_allowed(tmp_path):
    found = subprocess.run(["stat", "-fc%T", tmp_path], capture_output=True, text=True,
                           check=True).stdout.strip()
    if found == "tmpfs":
        pytest.skip("the temporary directory is a tmpfs")
    with pytest.raises(shmstore.Error) as caught:
        shmstore.Partition(tmp_path / "p", create=True)
    assert caught.value.errno == errno.ENOTSUP and "tmpfs" in str(caught.value)
    partition = shmstore.Partition(tmp_path / "p", create=True, allow_disk=True)
    assert not partition.info().tmpfs
    with partition.open("s") as store:
        store["k"] = b"x" * 100000
        assert store["k"] == b"x" * 100000


def test_shared(place):
    partition = shmstore.Partition(os.path.join(place.path, "p"), create=True, shared=True)
    assert partition.info().mode & 0o7777 == 0o1777


def test_bad_arguments(place):
    with pytest.raises(TypeError):
        shmstore.Partition(5)
    with pytest.raises(TypeError):
        shmstore.Partition(place.path, nonsense=True)
    with pytest.raises(ValueError):
        shmstore.Partition("a\0b")


def test_info(place, partition):
    info = partition.info()
    stat = os.statvfs(place.path)
    assert info.path == place.path and info.tmpfs and info.same_boot and len(info.uuid) == 36
    assert info.bytes_size == stat.f_blocks * stat.f_frsize
    assert info.device == os.stat(place.path).st_dev and info.uid == os.getuid()


@pytest.mark.usefixtures("own_mount")
def test_the_equation_closes(place, partition, other):
    # a recycled file is in the pool, also while somebody looks at it
    store = partition.open("main", recycle_max=0)
    for i in range(20):
        store[str(i)] = b"x" * (i * 10000)
    other.adopt("a", store.handoff("19"))
    ticket = store.handoff("18")
    ghost = store.view("17")
    del store["17"]
    writer = store.create("w", 0, [300000])
    usage = partition.usage(full=True)
    stat = os.statvfs(place.path)
    assert usage.used == (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    assert usage.residual == 0
    assert usage.used == usage.linked + usage.ghosts + usage.pool + usage.inflight + usage.foreign
    assert usage.ghosts >= 170000 and usage.inflight >= 300000 and 0 <= usage.stranded <= usage.pool
    assert usage.n_stores == 2 and usage.n_objects == 20 and usage.n_leases == 1
    writer.abort()
    del ghost
    assert partition.usage(full=True).ghosts == 0
    other.adopt("b", ticket)
    assert partition.usage(full=True).n_leases == 0
    store.close()


@pytest.mark.usefixtures("own_mount")
def test_reconcile_names_the_holders(partition):
    store = partition.open("main", recycle_max=0)
    store["k"] = b"x" * 200000
    view = store.view("k")
    del store["k"]
    writer = store.create("w", 0, [300000])
    usage, holders = partition.reconcile()
    assert usage.residual == 0
    mine = {h.kind: h for h in holders if h.pid == os.getpid()}
    assert (mine["ghost"].key == "k" and mine["ghost"].bytes == usage.ghosts and
            mine["ghost"].mapped >= 200000)
    assert mine["inflight"].bytes == usage.inflight
    assert mine["ghost"].first and mine["ghost"].uid == os.getuid() and mine["ghost"].command
    writer.abort()
    del view
    store.close()


@pytest.mark.usefixtures("files")
def test_verify(partition, store):
    store.put("good", b"x" * 100000, checksum=True)
    store.put("bad", b"x" * 100000, checksum=True)
    assert all(f.error == 0 for f in partition.verify())
    path = os.path.join(store.path, "objects", "bad")
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"!")
    (finding,) = [f for f in partition.verify() if f.error]
    assert finding.path == path and finding.error == errno.EBADMSG and finding.reason
    with pytest.raises(shmstore.Error) as caught:
        store.view("bad", verify=True)
    assert caught.value.errno == errno.EBADMSG


@pytest.mark.usefixtures("files")
def test_gc_takes_expired_leases(partition, store):
    store["k"] = 1
    store.handoff("k", lease=0.001)
    live = store.handoff("k", lease=100)
    removed = 0
    for _ in range(10000):
        removed += partition.gc().n_leases
        if removed:
            break
    assert removed == 1 and partition.usage().n_leases == 1
    store.adopt("l", live)


def test_versions_and_messages():
    assert shmstore.__version__ == shmstore.version()
    assert len(shmstore.version().split(".")) == 3
    assert ("full" in shmstore.strerror(errno.ENOSPC) and shmstore.strerror(-errno.ENOSPC) ==
            shmstore.strerror(errno.ENOSPC))
    assert shmstore.strerror(1 << 80) == shmstore.strerror(99999)
    with pytest.raises(TypeError):
        shmstore.strerror("x")


def test_package_is_what_was_built():
    assert pathlib.Path(shmstore.__file__).with_name("py.typed").exists()
    assert sys.modules["shmstore._shmstore"].__file__.endswith(".so")
    assert all(hasattr(shmstore, name) for name in shmstore.__all__)


def test_close_gives_descriptors_back_at_once(tmp_path, partition):
    before = n_fds()
    with shmstore.Partition(partition.path) as again:
        assert n_fds() > before and not again.closed
        store = again.open("of-a-closed-one")
        open_store = n_fds()
    # the store has it open, too
    assert again.closed and "closed" in repr(again) and n_fds() == open_store
    store["x"] = 1
    assert store["x"] == 1
    store.close()
    assert n_fds() == before
    again.close()
    calls = (again.stores, again.gc, again.usage, again.info, again.verify, again.reconcile,
             again.tier, again.evict)
    for call in (*calls, lambda: again.open("x"), lambda: again.find_peer("x"),
                 lambda: again.set_tier(None)):
        with pytest.raises(shmstore.ClosedError) as caught:
            call()
        assert caught.value.errno == errno.EBADF and partition.path in str(caught.value)
