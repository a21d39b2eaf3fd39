# SPDX-License-Identifier: Apache-2.0
"""The disk tier under workers: data larger than the partition, every byte right, written once,
nothing done on an event loop."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
import threading
import time

import pytest
import tasks
from conftest import PREFIX, Place, cluster, fallbacks, on_workers, wait_until, workers
from distributed import wait
from tasks import MIB

import shmstore
from shmstore.dask import exchange
from shmstore.dask.handle import Handle

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a small tmpfs")

N, SIZE = 16, 4 * MIB  # of the values of a job
ROOM = 28 * MIB  # of the partition: what three tasks work on at once, and little more
NOISE = 4 * MIB  # log files, a library loaded late


@pytest.fixture
def disk():
    path = tempfile.mkdtemp(prefix="shmstore-dask-tier-", dir="/var/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def small(disk):
    """A partition that holds less than half of a job's values."""
    place = Place(size=ROOM)
    if not place.mounted:
        place.remove()
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    place.remove()


def tiered(place, disk, n=3, settings=None, **options):
    """A cluster whose workers keep little in private memory."""
    defaults = {"temporary-directory": disk, "distributed.worker.memory.target": 0.02,
                f"{PREFIX}.lease": "300s"}
    return cluster(place, n, settings={**defaults, **(settings or {})}, **options)


def make_all(client, n=N):
    return [client.submit(tasks.make, i, SIZE, key=f"chunk-{i}") for i in range(n)]


def all_dots(client, chunks):
    dots = [client.submit(tasks.dot, a, b, pure=False) for a in chunks for b in chunks]
    data = [tasks.make(i, SIZE) for i in range(len(chunks))]
    assert client.gather(dots) == pytest.approx([tasks.dot(a, b) for a in data for b in data])


def residence(worker):
    return {"shared": len(worker.data.shared), "spill files": len(worker.data.disk),
            "fast": worker.data.fast.total_weight}


def wait_for_room(worker):
    """A disk that others load makes no room in the seconds for which a put waits."""
    exchange._ROOM_PATIENCE = 120.0


def written(worker):
    io = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    return int(io["write_bytes"])


# -- the job


def test_more_data_than_the_partition_holds(small, disk):
    with tiered(small, disk) as client:
        on_workers(client, wait_for_room)
        before = on_workers(client, written)
        chunks = make_all(client)
        all_dots(client, chunks)
        bytes_written = sum(on_workers(client, written).values()) - sum(before.values())
        assert bytes_written <= 1.2 * N * SIZE + NOISE, "every value is written once at most"
        tier = small.partition.tier()
        assert tier.n_demoted + tier.n_clean >= N // 2 and tier.used <= 1.1 * N * SIZE
        for found in on_workers(client, residence).values():
            assert found["spill files"] == 0 and found["shared"] > 0, found
        assert not any(fallbacks(client).values())
        del chunks
        wait_until(lambda: small.partition.usage().n_objects == 0, "objects go with their keys")
        wait_until(lambda: small.partition.tier().used == 0, "and so do their tier files")


def test_what_a_task_needs_may_be_more_than_the_partition(small, disk):
    """All values at once, compressed on disk, so that they cannot be mapped there."""
    small.partition.set_tier(disk, level=1)
    with tiered(small, disk, n=1) as client:
        chunks = [client.submit(_halves, i, key=f"chunk-{i}") for i in range(N)]
        assert client.submit(tasks.total, *chunks, pure=False).result() == pytest.approx(
            sum(_halves(i).sum() for i in range(N)))


def _halves(i):
    import numpy as np

    return np.random.default_rng(i).integers(0, 1 << 16, SIZE // 8)


def test_values_of_stock_kinds_spill_as_on_stock(small, disk):
    with tiered(small, disk, n=1) as client:
        texts = [client.submit(_text, i, key=f"text-{i}") for i in range(8)]
        assert client.gather([client.submit(len, text, pure=False) for text in texts]) == [1] * 8
        (found,) = on_workers(client, residence).values()
        assert found["spill files"] > 0 and found["shared"] == 0
        assert client.gather(texts) == [_text(i) for i in range(8)]


def _text(i):
    return (str(i) * SIZE,)


def growth_while_room_is_made(worker):
    """(objects moved out, bytes by which private memory grew meanwhile at most): a look
    twice a millisecond."""
    before, most, ended = tasks.private_bytes(worker), 0, threading.Event()

    def watch():
        nonlocal most
        while not ended.is_set():
            most = max(most, tasks.private_bytes(worker) - before)
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    worker._tier._watermarks = 1, 1
    worker._tier._evict_once()
    ended.set()
    watcher.join()
    return worker._exchange.partition.tier().n_demoted, most


def test_room_is_made_without_taking_much_of_a_workers_limit(small, disk):
    with cluster(small, 1, settings={f"{PREFIX}.tier.path": disk, f"{PREFIX}.share": "eager",
                                     f"{PREFIX}.tier.high": 1.0}) as client:
        chunks = make_all(client, 5)
        wait(chunks)
        on_workers(client, lambda worker: worker.data.unmap_idle())
        ((moved, grown),) = on_workers(client, growth_while_room_is_made).values()
        assert moved == 5 and grown < 16 * MIB


# -- the event loop


def test_nothing_large_is_mapped_stored_or_deleted_on_the_event_loop(small, disk):
    """Nor linked; but that a value in memory may be mapped and linked there while memory is not
    short, which waits for nothing."""
    with tiered(small, disk) as client:
        on_workers(client, _watch_calls)
        chunks = make_all(client)
        all_dots(client, chunks)
        assert client.gather(chunks[0])[0] == tasks.make(0, SIZE)[0]
        del chunks
        wait_until(lambda: small.partition.usage().n_objects == 0, "objects go with their keys")
        for calls in on_workers(client, _calls).values():
            assert {name: on_loop for name, (on_loop, _) in calls.items()} == {
                name: 0 for name in calls}
            assert calls["map"][1] > 0 and calls["delete"][1] > 0
        # a busy machine may have one worker do little
        for name, least in (("map", 2 * N), ("put", N), ("handoff", 1), ("adopt", 1)):
            assert sum(calls[name][1]
                       for calls in on_workers(client, _calls).values()) >= least, name


@pytest.mark.parametrize("unwanted", ["handle", "key", "result"])
def test_an_object_that_nobody_wants_is_deleted_beside_the_event_loop(small, disk, unwanted):
    """A handle that nobody takes; a value whose key went while it was stored; one whose waiting
    task was cancelled."""
    with tiered(small, disk, n=1) as client:
        for where in client.run(_delete_unwanted, unwanted).values():
            assert where == [False]
        assert small.partition.usage().n_objects == 0


async def _delete_unwanted(unwanted, dask_worker):
    import asyncio
    import threading

    exchange, data = dask_worker._exchange, dask_worker.data
    delete, loop_thread, where = exchange.delete, threading.get_ident(), []

    def watched(entry):
        delete(entry)
        where.append(threading.get_ident() == loop_thread)

    exchange.delete = watched
    dask_worker._tier.at_ease = lambda: False  # else it is stored at once
    try:
        value = tasks.make(1, SIZE)
        putting = asyncio.ensure_future(dask_worker._put("x", value, SIZE))
        if unwanted == "result":
            await asyncio.sleep(0)
            putting.cancel()
        elif unwanted == "key":
            data.commit("x", value, await putting)
        else:
            Handle.of(exchange, await putting)
        while not where:
            await asyncio.sleep(0.01)
    finally:
        del exchange.delete
    return where


def _watch_calls(worker):
    import contextvars
    import threading

    loop_thread = threading.get_ident()
    worker.calls = {name: [0, 0] for name in ("map", "put", "delete", "handoff", "adopt")}
    # what was last answered to whoever calls
    eased = contextvars.ContextVar("eased", default=False)
    at_ease = worker._tier.at_ease

    def asked():
        eased.set(at_ease())
        return eased.get()

    worker._tier.at_ease = asked

    def watched(name):
        function = getattr(worker._exchange, name)

        def call(*args, **kwargs):
            on_loop = threading.get_ident() == loop_thread
            quick = ((name == "map" and not worker._tier.has(args[0])) or
                     name in ("handoff", "adopt"))
            nothing = name == "adopt" and args[1].adopted
            if not nothing and not (on_loop and quick and eased.get()):
                worker.calls[name][not on_loop] += 1
            return function(*args, **kwargs)

        setattr(worker._exchange, name, call)

    for name in worker.calls:
        watched(name)


def _calls(worker):
    return worker.calls


# -- books


def test_what_workers_report_is_split_by_where_it_lies(small, disk):
    with tiered(small, disk, n=2) as client:
        chunks = make_all(client)
        all_dots(client, chunks)

        def adds_up():
            found = [worker["metrics"] for worker in client.sync(
                client.scheduler.identity)["workers"].values()]
            memory = sum(metrics["shmstore"]["memory"] for metrics in found)
            tier = sum(metrics["shmstore"]["tier"] for metrics in found)
            spilled = sum(metrics["spilled_bytes"]["disk"] for metrics in found)
            # While some still have it in the tier only, what came back has a link there
            # more, and counts less by that.
            return 0 < memory <= ROOM and tier > 0 and spilled >= memory + tier >= N * SIZE * 2 // 3

        wait_until(adds_up, "memory and tier together are the data", timeout=30)
        assert all(n_shared > 0 and books.tier > 0
                   for n_shared, books in on_workers(client, _shared).values())


def _shared(worker):
    return len(worker.data.shared), worker._exchange.books()


# -- whose tier, and how much


def test_the_tier_is_below_the_temporary_directory_and_as_configured(small, disk):
    settings = {"distributed.worker.memory.max-spill": "50 MiB", f"{PREFIX}.tier.level": 3,
                f"{PREFIX}.tier.high": 0.9}
    with tiered(small, disk, n=2, settings=settings):
        tier = small.partition.tier()
        assert tier.directory.startswith(os.path.realpath(disk) + os.sep)
        assert (tier.level, tier.high, tier.low, tier.min_free) == (3, 90, 65, 1 << 30)
        wait_until(lambda: small.partition.tier().max == 100 * MIB, "max-spill for each worker")
    with tiered(small, disk, n=1, settings={f"{PREFIX}.tier.max": "7 MiB"}):
        assert small.partition.tier().max == 7 * MIB


def test_a_tier_that_is_there_is_used_as_it_is(small, disk):
    own = os.path.join(disk, "operator")
    os.mkdir(own)
    small.partition.set_tier(own, max=1 << 30, level=2)
    with tiered(small, disk) as client:
        all_dots(client, make_all(client))
        tier = small.partition.tier()
        assert (tier.directory, tier.max, tier.level) == (own, 1 << 30, 2)


def test_a_tier_whose_directory_is_gone_is_replaced(small, disk):
    gone = os.path.join(disk, "gone")
    os.mkdir(gone)
    small.partition.set_tier(gone)
    shutil.rmtree(gone)
    with tiered(small, disk) as client:
        on_workers(client, wait_for_room)
        all_dots(client, make_all(client))
        assert small.partition.tier().directory.startswith(os.path.realpath(disk) + os.sep)
        assert not any(fallbacks(client).values())


def test_turned_off_there_is_none(small, disk):
    with tiered(small, disk, settings={f"{PREFIX}.tier.enabled": False}) as client:
        all_dots(client, make_all(client, 6))
        assert small.partition.tier() is None


def test_without_a_disk_workers_go_on_without_a_tier(place):
    with cluster(place, 2, settings={f"{PREFIX}.tier.path": "/dev/shm"}) as client:
        all_dots(client, make_all(client, 4))
        assert all(reasons == {"no-tier": 1} for reasons in fallbacks(client).values())
        assert place.partition.tier() is None


def test_where_temporary_files_are_in_memory_it_is_below_var_tmp(small):
    """As /tmp is from Debian 13 on. Nobody asked for a tier: one that cannot be is no warning."""
    own = f"/var/tmp/shmstore-tier-{os.geteuid()}"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary, tiered(
            small, temporary, n=2) as client:
        assert small.partition.tier().directory == own
        on_workers(client, wait_for_room)
        all_dots(client, make_all(client))
        assert not any(fallbacks(client).values())
        assert not any("shmstore-tier" in directories for _, directories, _ in os.walk(temporary))
    assert (small.partition.tier() is None and small.partition.info().uuid not in (
        os.listdir(own) if os.path.isdir(own) else []))


def test_a_tier_that_nobody_asked_for_and_cannot_be_is_no_warning(small, caplog):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary, caplog.at_level(
            "INFO", "distributed.worker.shared"):
        assert not _tier_without_worker(small, temporary,
                                        os.path.join(temporary, "var-tmp")).find()
        assert small.partition.tier() is None
        (said,) = caplog.records
        assert said.levelname == "INFO" and "is in memory itself" in said.getMessage()


def test_a_directory_of_another_user_below_var_tmp_is_not_taken(small, caplog):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary, tempfile.TemporaryDirectory(
            dir="/var/tmp") as other:
        os.chown(other, 12345, -1)
        with caplog.at_level("INFO", "distributed.worker.shared"):
            assert not _tier_without_worker(small, temporary, other).find()
        assert small.partition.tier() is None and "made by another user" in caplog.text


def _tier_without_worker(place, temporary, var_tmp):
    from types import SimpleNamespace

    from shmstore.dask.config import Settings
    from shmstore.dask.config import Fallbacks
    from shmstore.dask.tier import Tier

    exchange = SimpleNamespace(partition=place.partition, fallbacks=Fallbacks(0),
                               siblings=lambda: [1])
    tier = Tier(exchange, Settings().tier, os.path.join(temporary, "worker"), None, 1)
    tier._own[-1] = var_tmp
    return tier


def test_configuration_that_makes_no_sense_is_refused():
    import dask

    from shmstore.dask.config import Settings

    for key, value in (("level", 20), ("high", 75), ("high", 0.5), ("low", 0), ("enabled", "yes"),
                       ("max", "much"), ("fsync", 1)):
        with dask.config.set({f"{PREFIX}.tier.{key}": value}), pytest.raises(ValueError):
            Settings()
    assert Settings().tier.enabled


# -- when something is wrong


def test_a_disk_that_is_full_loses_nothing(small, disk):
    with tiered(small, disk, settings={f"{PREFIX}.tier.max": "16 MiB"}) as client:
        chunks = make_all(client)
        all_dots(client, chunks)
        assert small.partition.tier().used <= 16 * MIB
        assert any(reasons.get("evict-failed") or reasons.get("partition-full")
                   for reasons in fallbacks(client).values())
        for i, value in enumerate(client.gather(chunks)):
            assert (value == tasks.make(i, SIZE)).all()


def test_damage_fails_the_task_and_names_the_file(small, disk):
    with tiered(small, disk, n=1, settings={f"{PREFIX}.share": "eager"}) as client:
        chunks = make_all(client)
        client.gather([client.submit(tasks.total, chunk, pure=False) for chunk in chunks])
        on_workers(client, _demote, "chunk-0")
        files = [p for p in pathlib.Path(disk).rglob("*") if p.is_file() and len(p.name) == 16]
        for file in files:
            file.chmod(0o600)
            with open(file, "r+b") as f:
                f.seek(SIZE // 2)
                f.write(b"damage")
        bad = client.submit(tasks.total, chunks[0], pure=False)
        with pytest.raises(shmstore.Error) as caught:
            bad.result()
        assert any(str(file) in str(caught.value) for file in files)


def _demote(worker, key):
    worker.data.unmap_idle()
    worker._exchange.store.demote(worker.data.shared[key].name)


def test_a_worker_that_dies_leaves_nothing_behind(small, disk):
    with tiered(small, disk) as client:
        chunks = make_all(client)
        all_dots(client, chunks)
        victim = workers(client)[0]
        client.run(os._exit, 1, workers=[victim], on_error="ignore")
        wait_until(lambda: victim not in workers(client) and len(workers(client)) == 3,
                   "another one is in its place")
        all_dots(client, chunks)
        del chunks
        wait_until(lambda: small.partition.usage().n_objects == 0, "objects go with their keys")
    small.partition.gc()
    usage = small.partition.usage()
    assert usage.tier == usage.n_stores == 0
