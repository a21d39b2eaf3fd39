# SPDX-License-Identifier: Apache-2.0
"""P2P rechunks and shuffles: the results are stock's, shards go by link and wait where stock has
them wait."""

from __future__ import annotations

import asyncio
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
from shmstore.dask.p2p import Packs  # noqa: E402

pytestmark = pytest.mark.skipif(bool(p2p.missing_hooks),
                                reason=f"P2P is stock's on this Dask: {p2p.missing_hooks[:1]}")

SIDE = 2048  # of a square of floats: 32 MiB
N = 8
P2P = {"array.rechunk.method": "p2p", "dataframe.shuffle.method": "p2p",
       "array.chunk-size": SIDE * SIDE * 8 // N}
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
    """From here on: messages that came as a handle, inputs that were packed, parts of them that
    came, shards that stock was given to store."""
    taken, pack, receive = worker._exchange.adopt, Packs._put, p2p.Splitting.receive
    worker.counted = {"handles": 0, "packed": 0, "parts": 0, "stored": 0}

    def adopt(key, handle):
        worker.counted["handles"] += str(key).startswith("p2p-")
        return taken(key, handle)

    def packed(self, data, partition_id):
        parts = pack(self, data, partition_id)
        worker.counted["packed"] += parts is not None
        return parts

    async def received(self, *part):
        worker.counted["parts"] += 1
        return await receive(self, *part)

    worker._exchange.adopt, Packs._put, p2p.Splitting.receive = adopt, packed, received
    take = worker._shards.take

    def watched(run):
        take(run)
        stock = run._write_to_disk

        async def store(shards):
            worker.counted["stored"] += len(shards)
            await stock(shards)

        run._write_to_disk = store

    worker._shards.take = watched


def counted(worker):
    return worker.counted


@needs_arrow
@pytest.mark.parametrize("map_mode", ["cow", "ro"])
@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_arrays_and_frames_are_as_on_stock(place, map_mode, tier):
    settings = {f"{PREFIX}.map": map_mode, f"{PREFIX}.tier.enabled": tier}
    with cluster(place, 3, settings=settings) as client:
        on_workers(client, count)
        with dask.config.set({"optimization.fuse.active": False}):
            assert np.array_equal(rechunked().compute(), expected())
        arrays = on_workers(client, counted).values()
        assert sum(c["packed"] for c in arrays) == N, arrays
        assert all(c["parts"] == N for c in arrays), "each worker has a part in each input"
        assert sum(c["handles"] for c in arrays) == 2 * N, (
            "each input goes to the other two workers")
        assert sum(c["stored"] for c in arrays) >= N * N, arrays
        same_frames(shuffled().compute())
        frames = on_workers(client, counted).values()
        assert sum(c["packed"] for c in frames) == N, "small ones go together instead"
        assert sum(c["handles"] for c in frames) > sum(c["handles"] for c in arrays)
        same_frames(shuffled(LARGE).compute(), LARGE)
        large = on_workers(client, counted).values()
        assert sum(c["packed"] for c in large) == 2 * N, large
        wait_until(lambda: place.partition.usage(full=True).ghosts == 0 and
                   place.partition.usage().n_objects == 0, "shards go")
    assert place.stores() == []


def test_shards_that_wait_in_memory_are_left_to_stock(place):
    """Views of one object would keep all of it until the last output is made."""
    with dask.config.set({"distributed.p2p.storage.disk": False}), cluster(place, 2) as client:
        on_workers(client, count)
        assert np.array_equal(rechunked().compute(), expected())
        counts = on_workers(client, counted).values()
        assert not any(c["packed"] or c["handles"] for c in counts), counts


@needs_arrow
def test_what_has_no_room_goes_as_on_stock(place):
    place.resize(str(8 * MIB))
    settings = {f"{PREFIX}.tier.enabled": False}
    with cluster(place, 2, settings=settings) as client:
        on_workers(client, count)
        assert np.array_equal(rechunked().compute(), expected())
        assert sum(c["packed"] for c in on_workers(client, counted).values()) < N
        same_frames(shuffled(LARGE).compute(), LARGE)


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
        wait_until(lambda: any(c["parts"] for c in on_workers(client, counted).values()),
                   "shards came")
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


def test_a_run_that_is_closed_takes_nothing():
    """It raises as stock's `_receive`, which `receive` makes an answer of."""
    class Run:
        worker_for, received, total_recvd, _shard_partition = {}, set(), 0, None

        def raise_if_closed(self):
            raise ShuffleClosedError("it is over")

    with pytest.raises(ShuffleClosedError, match="it is over"):
        asyncio.run(p2p.Splitting(Run()).receive(0, [], memoryview(b"")))
    assert not Run.received


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
    with cluster(place, 2) as client:
        once = rechunked().map_blocks(fail_once, directory=str(tmp_path), dtype=float,
                                      meta=np.empty((0, 0)))
        assert np.array_equal(client.compute(once, retries=2).result(60), expected())
        assert len(os.listdir(tmp_path)) == N


def test_an_output_that_is_needed_again_is_read_again(place):
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
