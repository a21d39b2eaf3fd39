# SPDX-License-Identifier: Apache-2.0
"""P2P rechunks and shuffles: the results are stock's, shards go by link and wait where they are, as
far as they may; the others wait on disk."""

from __future__ import annotations

import os
import signal

import dask
import dask.array
import numpy as np
import pytest
from conftest import PREFIX, cluster, needs_arrow, on_workers, wait_until
from distributed import wait
from tasks import MIB
from together import together

ShuffleClosedError = pytest.importorskip("distributed.shuffle._exceptions",
                                         reason="no P2P").ShuffleClosedError

from shmstore.dask.compat import p2p  # noqa: E402
from shmstore.dask.p2p import Kept, Packs  # noqa: E402

pytestmark = pytest.mark.skipif(bool(p2p.missing_hooks),
                                reason=f"P2P is stock's on this Dask: {p2p.missing_hooks[:1]}")

SIDE = 2048  # of a square of floats: 32 MiB
N = 8
P2P = {"array.rechunk.method": "p2p", "dataframe.shuffle.method": "p2p",
       "array.chunk-size": SIDE * SIDE * 8 // N}
LIMIT = 24 * 256 * MIB  # of a worker's memory, where all its shards may wait in memory
LARGE = 40_000  # rows of a part of a frame of which each worker's share is an object of its own


def expected():
    return np.arange(SIDE * SIDE, dtype=float).reshape(SIDE, SIDE)


def rows():
    return dask.array.arange(SIDE * SIDE, dtype=float, chunks=SIDE * SIDE // N).reshape(
        (SIDE, SIDE))


def rechunked(x=None):
    with dask.config.set(P2P):
        return (rows() if x is None else x).rechunk((SIDE // N, SIDE)).rechunk((SIDE, SIDE // N))


def part(i, rows=20_000):
    import pandas as pd

    rng = np.random.default_rng(i)
    text = [f"text {n}" for n in rng.integers(0, 1000, rows)]
    return pd.DataFrame({"key": rng.integers(0, 100, rows), "x": rng.random(rows),
                         "text": pd.array(text, dtype="string[pyarrow]")})


def shuffled(rows=20_000):
    dd = pytest.importorskip("dask.dataframe")
    if not hasattr(dd, "from_map"):
        pytest.skip("no from_map")
    with dask.config.set(P2P):
        return dd.from_map(part, range(N), rows=rows, meta=part(0, 1)).shuffle("key", npartitions=N)


def same_frames(got, rows=20_000):
    import pandas as pd

    order = ["key", "x"]
    want = pd.concat([part(i, rows) for i in range(N)]).sort_values(order, ignore_index=True)
    got = got.sort_values(order, ignore_index=True)
    assert ((got["key"] == want["key"]).all() and (got["x"] == want["x"]).all() and
            list(got["text"]) == list(want["text"]))


def count(worker):
    """From here on: messages that came as a handle, shards that wait, writes to a disk."""
    taken, pack, add = worker._exchange.adopt, Packs._put, Kept.add
    worker.counted = {"handles": 0, "packed": 0, "mapped": 0, "kept": 0, "on disk": 0}

    def adopt(key, handle):
        worker.counted["handles"] += str(key).startswith("p2p-")
        return taken(key, handle)

    def packed(self, data, partition_id):
        parts = pack(self, data, partition_id)
        worker.counted["packed"] += parts is not None
        return parts

    async def added(self, shards):
        worker.counted["mapped"] += len(shards)
        await add(self, shards)

    worker._exchange.adopt, Packs._put, Kept.add = adopt, packed, added
    take = worker._shards.take

    def watched(run):
        take(run)
        kept = run._disk_buffer._process
        # there is none where stock keeps shards in memory
        stock = getattr(type(run._disk_buffer), "_write_frames", None)

        async def keep(id, shards):
            worker.counted["kept"] += len(shards)
            await kept(id, shards)

        def write(frames, id):
            worker.counted["on disk"] += 1
            return stock(run._disk_buffer, frames, id)

        run._disk_buffer._process, run._disk_buffer._write_frames = keep, write

    worker._shards.take = watched


def counted(worker):
    return worker.counted


@needs_arrow
@pytest.mark.parametrize("map_mode", ["cow", "ro"])
@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_arrays_and_frames_are_as_on_stock_and_nothing_is_written_to_a_disk(place, map_mode, tier):
    settings = {f"{PREFIX}.map": map_mode, f"{PREFIX}.tier.enabled": tier}
    with cluster(place, 3, memory_limit=LIMIT, settings=settings) as client:
        on_workers(client, count)
        with dask.config.set({"optimization.fuse.active": False}):
            assert np.array_equal(rechunked().compute(), expected())
        arrays = on_workers(client, counted).values()
        assert (sum(c["packed"] for c in arrays) == N and
                all(c["mapped"] > 0 and c["on disk"] == 0 for c in arrays)), arrays
        assert sum(c["handles"] for c in arrays) == 2 * N, (
            "each input goes to the other two workers")
        same_frames(shuffled().compute())
        frames = on_workers(client, counted).values()
        assert sum(c["packed"] for c in frames) == N, "small ones go together instead"
        assert (sum(c["handles"] for c in frames) > sum(c["handles"] for c in arrays) and
                not any(c["on disk"] for c in frames)), frames
        same_frames(shuffled(LARGE).compute(), LARGE)
        large = on_workers(client, counted).values()
        assert (sum(c["packed"] for c in large) == 2 * N and
                not any(c["on disk"] for c in large)), large
        wait_until(lambda: place.partition.usage(full=True).ghosts == 0 and
                   place.partition.usage().n_objects == 0, "shards go")
    assert place.stores() == []


@needs_arrow
def test_shards_beyond_a_part_of_the_memory_limit_wait_on_disk(place):
    with cluster(place, 2, memory_limit=2 * 256 * MIB) as client:
        on_workers(client, count)
        assert set(client.run(lambda dask_worker: dask_worker._shards.waiting_max).values()) == {
            2 * MIB}
        assert np.array_equal(rechunked().compute(), expected())
        arrays = on_workers(client, counted)
        assert all(c["mapped"] > 0 and c["on disk"] > 0 for c in arrays.values()), arrays
        same_frames(shuffled(2 * LARGE).compute(), 2 * LARGE)
        frames = on_workers(client, counted)
        assert all(c["on disk"] > arrays[worker]["on disk"] for worker, c in frames.items()), frames


@needs_arrow
def test_what_has_no_room_waits_on_disk_and_goes_as_on_stock(place):
    place.resize(str(8 * MIB))
    settings = {f"{PREFIX}.tier.enabled": False}
    with cluster(place, 2, settings=settings) as client:
        on_workers(client, count)
        assert np.array_equal(rechunked().compute(), expected())
        assert sum(c["on disk"] for c in on_workers(client, counted).values()) > 0
        same_frames(shuffled(LARGE).compute(), LARGE)


@needs_arrow
@pytest.mark.parametrize("disk", [True, False], ids=["disk", "memory"])
def test_packed_shards_become_stocks_where_they_cannot_stay(place, disk):
    """They were made and sent, and then there is no room to keep them mapped; or
    stock keeps shards in memory."""
    with dask.config.set({"distributed.p2p.storage.disk": disk}), cluster(place, 2) as client:
        on_workers(client, count)
        if disk:
            client.run(_short_of_room_for_mapped)
        assert np.array_equal(rechunked().compute(), expected())
        counts = on_workers(client, counted).values()
        assert (sum(c["packed"] for c in counts) == N and any(c["mapped"] for c in counts) is
                disk), counts
        assert any(c["on disk"] for c in counts) is disk
        same_frames(shuffled(LARGE).compute(), LARGE)
        counts = on_workers(client, counted).values()
        assert sum(c["packed"] for c in counts) == 2 * N, counts


def _short_of_room_for_mapped(dask_worker):
    dask_worker._shards.has_room = lambda nbytes: nbytes > 0


@needs_arrow
def test_packed_shards_that_a_peer_does_not_take_are_sent_as_on_stock(place):
    with cluster(place, 2) as client:
        on_workers(client, _lose_the_first)
        same_frames(shuffled(LARGE).compute(), LARGE)
        assert any(client.run(lambda dask_worker: dask_worker.lost).values())


def test_a_worker_that_is_killed_amid_a_shuffle_loses_nothing(place):
    with cluster(place, 3, settings={f"{PREFIX}.lease": "2s"}) as client:
        on_workers(client, count)
        future = client.compute(rechunked())
        wait_until(lambda: any(c["mapped"] for c in on_workers(client, counted).values()),
                   "shards wait")
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        assert np.array_equal(future.result(timeout=120), expected())
    # A shard that the killed worker promised, and nobody came for, stays until its lease has ended.
    wait_until(lambda: place.partition.gc() is not None and place.stores() == [], "its store goes")
    assert place.partition.usage(full=True).ghosts == 0


def _lose_the_first(worker):
    """The first handle that comes is not to be had."""
    adopt = worker._exchange.adopt
    lost = []

    def losing(key, handle):
        if str(key).startswith("p2p-") and not lost:
            lost.append(key)
            handle.revoke()
        return adopt(key, handle)

    worker._exchange.adopt = losing
    worker.lost = lost


def test_shards_that_cannot_be_adopted_are_sent_again_as_on_stock(place):
    with cluster(place, 2) as client:
        on_workers(client, _lose_the_first)
        assert np.array_equal(rechunked().compute(), expected())
        assert any(client.run(lambda dask_worker: dask_worker.lost).values())


def test_switched_off(place):
    with cluster(place, 2, settings={f"{PREFIX}.p2p": False}) as client:
        assert not any(client.run(lambda dask_worker: dask_worker._shards is not None).values())
        assert np.array_equal(rechunked().compute(), expected())


def test_a_peer_that_does_not_know_of_it_gets_them_as_on_stock(place):
    async def job(client, first, second):
        second.plugins["shuffle"].shuffle_runs._refresh = type(
            second.plugins["shuffle"].shuffle_runs)._refresh.__get__(
                second.plugins["shuffle"].shuffle_runs
        )
        x = client.persist(rows(), workers=[first.address])  # so that this one has shards to send
        await wait(x)
        result = await client.compute(rechunked(x))
        assert np.array_equal(result, expected())
        assert first._shards.others == {second.address}

    together(place, job, n=2)


def fail_once(block, directory):
    name = os.path.join(directory, str(block.ravel()[0]))
    if not os.path.exists(name):
        with open(name, "w"):
            raise OSError("a file system that is away once for each block")
    return block


def test_a_task_that_fails_behind_its_output_is_run_again(place, tmp_path):
    """Dask makes one task of an output and what is done with it; the shards wait
    until it has its result."""
    with cluster(place, 2, memory_limit=LIMIT) as client:
        on_workers(client, count)
        once = rechunked().map_blocks(fail_once, directory=str(tmp_path), dtype=float,
                                      meta=np.empty((0, 0)))
        assert np.array_equal(client.compute(once, retries=2).result(60), expected())
        assert (len(os.listdir(tmp_path)) == N and
                not any(counts["on disk"] for counts in on_workers(client, counted).values()))


def test_an_output_that_is_needed_again_begins_its_shuffle_again(place):
    with cluster(place, 2) as client:
        x = rechunked()
        graph = dict(x.__dask_graph__())
        barrier, *others = (key for key in graph if str(key).startswith("shuffle-barrier-"))
        assert not others
        key = (x.name, 0, 3)
        # the shuffle lives as long as its barrier
        held, output = client.get(graph, [barrier, key], sync=False)
        wait(output)
        del output
        wait_until(lambda: not client.run_on_scheduler(
            lambda dask_scheduler: key in dask_scheduler.tasks), "released")
        assert np.array_equal(client.get(graph, [key], sync=False)[0].result(60),
                              expected()[:, 3 * SIDE // N : 4 * SIDE // N])
        assert held.key == barrier


class Waiting:
    """Stand-in for a run of stock's, as Kept uses it, on a disk that is a dictionary."""

    on_disk = True

    def __init__(self):
        self.disk, self.again = {}, 0

    def begin_again(self):
        self.again += 1
        raise ShuffleClosedError

    def through(self, keep, read, got, closed):
        self.keep, self.read, self.got, self.closed = keep, read, got, closed

    def check(self):
        pass

    @staticmethod
    def as_stock(shards):
        return {id: shard for id, (shard,) in shards.items()}

    async def write(self, shards):
        for id, shard in shards.items():
            await self.keep(id, [shard])

    async def stock_keep(self, id, shards):
        self.disk.setdefault(id, []).extend(shards)

    def stock_read(self, id):
        return [self.deserialize(shard) for shard in self.disk[id]]

    @staticmethod
    def deserialize(shard):
        return bytes(shard)


def test_where_shards_wait(place):
    """In memory as far as they may, then on disk; those of an output whose task has its result
    go."""

    async def job(client, worker):
        waiting, shards = Waiting(), worker._shards
        shards.waiting_max = 3 * MIB
        kept = Kept(shards, waiting)
        small, large = [os.urandom(1000) for _ in range(3)], [os.urandom(MIB // 2) for _ in range(
            8)]
        await waiting.keep("0", small)
        for shard in large[:4]:
            await waiting.keep("1", [shard])
        await kept.add({"1": [large[4]], "2": [small[0]]})
        assert not waiting.disk and waiting.read("0") == small and waiting.read("1") == large[:5]
        await kept.add({"1": [large[5]], "3": [large[6]]})
        assert (waiting.disk == {"1": [large[5]], "3": [large[6]]} and
                waiting.read("3") == [large[6]])
        assert waiting.read("1") == large[:6]
        room, shards.has_room = shards.has_room, lambda nbytes: False
        await waiting.keep("0", small[:1])
        shards.has_room = room
        await waiting.keep("0", small[1:])
        assert waiting.disk["0"] == small[:1] and sorted(waiting.read("0")) == sorted(2 * small)
        waiting.got("1", "task")
        kept.made("another task", None)
        assert waiting.read("1") == large[:6]  # its task may be run again
        kept.made("task", None)
        with pytest.raises(ShuffleClosedError):
            waiting.read("1")
        assert waiting.again == 1
        await waiting.keep("2", large[:5])
        assert "2" not in waiting.disk, "what went made room"
        with pytest.raises(KeyError):  # there never was one: stock says so
            waiting.read("4")
        waiting.closed()
        assert shards.waiting == 0

    together(place, job, n=1)
