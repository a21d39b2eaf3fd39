# SPDX-License-Identifier: Apache-2.0
"""The disk tier from Python: what goes to it comes back whole, and every
failure says what and where."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import tempfile
import threading
import time

import numpy as np
import pytest
from conftest import Place

import shmstore

MIB = 1 << 20
COARSE = 5  # CLOCK_REALTIME_COARSE, which stamps files


@pytest.fixture
def disk():
    """A directory on a disk."""
    path = tempfile.mkdtemp(prefix="shmstore-py-tier-", dir="/var/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tiered(partition, disk):
    """A store of a partition that has a tier."""
    partition.set_tier(disk)
    with partition.open("tiered") as store:
        yield store


@pytest.fixture
def small(disk):
    """A store of a partition of 32 MiB that has a tier."""
    place = Place(size=32 * MIB)
    if not place.mounted:
        place.remove()
        pytest.skip("needs a tmpfs of its own, hence root")
    partition = shmstore.Partition(place.path, create=True)
    partition.set_tier(disk, level=0)
    with partition.open("small") as store:
        yield store
    place.remove()


def noise(i: int, size: int = MIB) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, size, dtype="u1")


def tier_files(disk: str) -> list[pathlib.Path]:
    return [p for p in pathlib.Path(disk).rglob("*") if p.is_file() and len(p.name) == 16]


# -- configuration


def test_a_partition_without_a_tier(store):
    assert store.partition.tier() is None
    store["x"] = noise(1)
    with pytest.raises(shmstore.Error) as caught:
        store.demote("x")
    assert caught.value.errno == errno.ENOENT and "'x'" in str(caught.value)
    with pytest.raises(KeyError):
        store.demote("missing")
    with pytest.raises(shmstore.Error) as caught:
        store.partition.evict(bytes=1)
    assert caught.value.errno == errno.ENOENT
    assert store.locate("x") == "memory" and store.locate("missing") is None
    assert store.prefetch(["x"]) == {}


def test_set_tier_says_what_it_was_given(partition, disk):
    partition.set_tier(disk, max=5 * MIB, min_free=7 * MIB, level=3, fsync=True, high=90, low=50)
    tier = partition.tier()
    assert tier.directory == disk and tier.path.startswith(disk + "/")
    assert (tier.max, tier.min_free, tier.level, tier.fsync, tier.high, tier.low) == (
        5 * MIB, 7 * MIB, 3, True, 90, 50)
    assert (tier.disk_size >= tier.disk_free > 0 and tier.used == tier.demoted + tier.clean +
            tier.orphans == 0)
    partition.set_tier(disk, max=6 * MIB)
    assert partition.tier()["max"] == 6 * MIB
    partition.set_tier(None)
    assert partition.tier() is None


def test_set_tier_refuses_what_cannot_work(partition, disk):
    for code, path, options in (
        (errno.ENOENT, f"{disk}/missing", {}),
        (errno.ENOTSUP, "/dev/shm", {}),
        (errno.EINVAL, "relative", {}),
        (errno.EINVAL, disk, {"level": 20}),
        (errno.EINVAL, disk, {"low": 90, "high": 80}),
    ):
        with pytest.raises(shmstore.Error) as caught:
            partition.set_tier(path, **options)
        assert caught.value.errno == code, path
        assert partition.tier() is None


def test_a_tier_that_holds_objects_is_not_taken_away(tiered, disk):
    tiered["x"] = noise(1)
    tiered.demote("x")
    for path in (None, os.path.dirname(disk)):
        with pytest.raises(shmstore.Error) as caught:
            tiered.partition.set_tier(path)
        assert caught.value.errno == errno.EBUSY
    del tiered["x"]
    tiered.partition.set_tier(None)


# -- one object


def test_a_demoted_object_comes_back_when_it_is_read(tiered, disk):
    tiered["x"] = {"a": noise(1), "b": np.arange(100_000), "c": "text"}
    tiered.demote("x")
    assert tiered.locate("x") == "tier" and "x" in tiered and list(tiered) == ["x"]
    info = next(tiered.objects())
    assert info.demoted and info.blocks == 0 and info.key == "x" and info.links == 1
    assert len(tier_files(disk)) == 1
    usage = tiered.partition.usage()
    assert (usage.n_demoted == 1 and usage.tier == usage.tier_demoted > MIB and
            usage.tier_clean == usage.tier_orphans == 0)
    value = tiered["x"]
    assert tiered.locate("x") == "memory" and not next(tiered.objects()).demoted
    assert ((value["a"] == noise(1)).all() and (value["b"] == np.arange(100_000)).all() and
            value["c"] == "text")


def test_views_outlive_the_way_to_the_tier_and_back(tiered):
    tiered["x"] = noise(1)
    before = tiered["x"]
    tiered.demote("x")
    assert tiered.locate("x") == "tier" and (before == noise(1)).all()
    after = tiered["x"]
    del tiered["x"]
    assert (before == noise(1)).all() and (after == noise(1)).all()


def test_demoting_again_writes_nothing(tiered, disk):
    tiered["x"] = noise(1)
    tiered.demote("x")
    (file,) = tier_files(disk)
    written = file.stat()
    tiered.promote("x")
    assert tiered.partition.tier().n_clean == 1
    tiered.demote("x")
    assert (tier_files(disk) == [file] and file.stat().st_mtime_ns == written.st_mtime_ns and
            file.stat().st_ino == written.st_ino)
    del tiered["x"]
    assert tier_files(disk) == []


def test_compressible_values_take_less_disk(tiered):
    tiered["x"] = np.arange(1 << 20)
    tiered.demote("x")
    tier = tiered.partition.tier()
    assert tier.n_zstd == 1 and tier.n_raw == 0 and tier.original >= 8 * MIB > 2 * tier.demoted
    assert (tiered["x"] == np.arange(1 << 20)).all()


def test_prefetch_says_which_could_not_be_brought_back(tiered):
    for i in range(6):
        tiered[f"k{i}"] = noise(i)
        tiered.demote(f"k{i}")
    failed = tiered.prefetch([f"k{i}" for i in range(6)] + ["missing"], threads=2)
    assert list(failed) == ["missing"] and failed["missing"].errno == errno.ENOENT
    assert {tiered.locate(f"k{i}") for i in range(6)} == {"memory"}
    assert all((tiered[f"k{i}"] == noise(i)).all() for i in range(6))
    assert tiered.prefetch([]) == {}
    with pytest.raises(TypeError):
        tiered.prefetch([1])


def test_a_pinned_object_stays(tiered):
    tiered.put("x", noise(1), pin=True)
    assert next(tiered.objects()).pinned
    with pytest.raises(shmstore.Error) as caught:
        tiered.demote("x")
    assert caught.value.errno == errno.EPERM and tiered.locate("x") == "memory"
    tiered.unpin("x")
    assert not next(tiered.objects()).pinned
    tiered.demote("x")
    tiered.pin("x")
    assert tiered.locate("x") == "memory", "pinning brings it back"
    for call in (tiered.pin, tiered.unpin, tiered.promote):
        with pytest.raises(KeyError):
            call("missing")


def test_damage_names_the_file(tiered, disk):
    tiered["x"] = noise(1)
    tiered.demote("x")
    (file,) = tier_files(disk)
    file.chmod(0o600)
    with open(file, "r+b") as f:
        f.seek(MIB // 2)
        byte = f.read(1)
        f.seek(MIB // 2)
        f.write(bytes([byte[0] ^ 1]))
    for read in (lambda: tiered["x"], lambda: tiered.promote("x")):
        with pytest.raises(shmstore.Error) as caught:
            read()
        assert caught.value.errno == errno.EBADMSG
        assert caught.value.filename == str(file)
        assert (caught.value.detail and "'x'" in str(caught.value) and
                caught.value.detail in str(caught.value))
    assert tiered.prefetch(["x"])["x"].errno == errno.EBADMSG
    with pytest.raises(KeyError):
        tiered["missing"]
    with pytest.raises(shmstore.Error) as caught:
        tiered.put_buffers("", b"", [], replace=False)
        tiered.put_buffers("", b"", [], replace=False)
    assert (caught.value.errno == errno.EEXIST and "held" in caught.value.detail and
            caught.value.filename is None)


# -- between stores


def test_handed_over_as_it_is(tiered, partition):
    tiered["x"] = noise(1)
    tiered.demote("x")
    with partition.open("second") as second, partition.open("third") as third:
        second.adopt("x", tiered.handoff("x", as_is=True))
        assert tiered.locate("x") == second.locate("x") == "tier"
        third.adopt("x", tiered.handoff("x"))
        assert third.locate("x") == "memory", "without it, it comes back first"
        assert (second["x"] == noise(1)).all() and (tiered["x"] == noise(1)).all()
        assert len({next(s.objects()).inode for s in (tiered, second, third)}) == 1, (
            "brought back once for all")


# -- eviction


def tick() -> None:
    """Until the clock that the kernel stamps files with has moved on."""
    now = time.clock_gettime_ns(COARSE)
    while time.clock_gettime_ns(COARSE) == now:
        pass


def test_evict_frees_what_was_asked_for(tiered):
    for i in range(8):
        tiered[f"k{i}"] = noise(i)
        tick()
    report = tiered.partition.evict(bytes=3 * MIB, wait=True)
    assert (report.done and report.n_objects >= 3 and report.freed >= 3 * MIB and
            report.written >= report.original > 0)
    places = [tiered.locate(f"k{i}") for i in range(8)]
    assert places.count("tier") == report.n_objects < 8
    assert places[:2] == ["tier", "tier"] and places[-1] == "memory", "the oldest first"
    assert not tiered.partition.evict(to=1 << 40, wait=True).done
    assert all((tiered[f"k{i}"] == noise(i)).all() for i in range(8))


def test_evict_to_nothing_moves_all(tiered):
    for i in range(4):
        tiered[f"k{i}"] = noise(i)
    with pytest.raises(shmstore.Error) as caught:
        tiered.partition.evict(to=0, wait=True)
    assert caught.value.errno == errno.ENOSPC, "the partition's own pages stay"
    assert caught.value.report.n_objects == 4
    assert {tiered.locate(f"k{i}") for i in range(4)} == {"tier"}


def test_evict_that_cannot_says_what_it_did(tiered):
    tiered["x"] = noise(1)
    tiered.put("pinned", noise(2), pin=True)
    with pytest.raises(shmstore.Error) as caught:
        tiered.partition.evict(bytes=1 << 40, wait=True)
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.report, shmstore.EvictReport)
    assert caught.value.report.n_objects == 1 and not caught.value.report.disk_full
    assert tiered.locate("x") == "tier" and tiered.locate("pinned") == "memory"


def test_progress_is_told_and_may_end_it(tiered):
    for i in range(8):
        tiered[f"k{i}"] = noise(i)
    reports = []

    def stop(report):
        reports.append(report)
        return True

    assert not tiered.partition.evict(bytes=8 * MIB, wait=True, progress=stop).done
    assert len(reports) == 1 and isinstance(reports[0], shmstore.EvictReport)

    class Own(Exception):
        pass

    def fail(report):
        raise Own

    with pytest.raises(Own):
        tiered.partition.evict(bytes=8 * MIB, wait=True, progress=fail)
    assert all((tiered[f"k{i}"] == noise(i)).all() for i in range(8))


def test_a_disk_that_is_full_is_its_own_error(tiered, disk):
    tiered.partition.set_tier(disk, max=2 * MIB, level=0)
    for i in range(4):
        tiered[f"k{i}"] = noise(i)
    with pytest.raises(shmstore.Error) as caught:
        tiered.partition.evict(bytes=4 * MIB, wait=True)
    assert caught.value.errno == errno.ENOSPC and caught.value.report.disk_full
    assert "disk full" in caught.value.detail and caught.value.detail in str(caught.value)
    assert all((tiered[f"k{i}"] == noise(i)).all() for i in range(4))


def test_a_put_into_a_full_partition_moves_others_out(small):
    n = 64
    for i in range(n):
        small.put(f"k{i}", noise(i))
    assert small.partition.usage().n_demoted > n // 2
    for i in range(n):
        assert (small[f"k{i}"] == noise(i)).all(), i


def test_without_evict_a_full_partition_is_an_error_at_once(small):
    with pytest.raises(shmstore.Error) as caught:
        for i in range(64):
            small.put(f"k{i}", noise(i), evict=False)
    assert caught.value.errno == errno.ENOSPC
    assert {small.locate(key) for key in small} == {"memory"}
    with pytest.raises(shmstore.Error) as caught:
        small.create("big", 0, [16 * MIB], evict=False)
    assert caught.value.errno == errno.ENOSPC
    with small.create("big", 0, [16 * MIB]) as writer:
        np.frombuffer(writer.buffers[0], "u1")[:] = 7
    assert small.partition.usage().n_demoted > 0


def test_many_threads_at_once(tiered):
    keys = [f"k{i}" for i in range(6)]
    for i, key in enumerate(keys):
        tiered[key] = noise(i, 256 << 10)
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            i = int(rng.integers(len(keys)))
            try:
                if rng.integers(2):
                    tiered.demote(keys[i])
                elif not (tiered[keys[i]] == noise(i, 256 << 10)).all():
                    failures.append(keys[i])
            except shmstore.Error as error:
                if error.errno != errno.EPERM:  # open in another thread just now
                    failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all((tiered[key] == noise(i, 256 << 10)).all() for i, key in enumerate(keys))
