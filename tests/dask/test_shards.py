# SPDX-License-Identifier: Apache-2.0
"""P2P rechunks and shuffles: the results are stock's, shards go by link and wait where they are; what has no room waits on disk."""

from __future__ import annotations

import os
import signal

import dask
import dask.array
import numpy as np
import pytest
from conftest import PREFIX, cluster, on_workers, wait_until
from distributed import wait
from tasks import MIB
from together import together

from shmstore.dask.compat import p2p
from shmstore.dask.shards import Kept

pytestmark = pytest.mark.skipif(bool(p2p.missing_hooks), reason=f"P2P is stock's on this Dask: {p2p.missing_hooks[:1]}")

SIDE = 2048  # of a square of floats: 32 MiB
N = 8
P2P = {"array.rechunk.method": "p2p", "dataframe.shuffle.method": "p2p"}


def expected():
    return np.arange(SIDE * SIDE, dtype=float).reshape(SIDE, SIDE)


def rows():
    return dask.array.arange(SIDE * SIDE, dtype=float, chunks=SIDE * SIDE // N).reshape((SIDE, SIDE))


def rechunked(x=None):
    with dask.config.set(P2P):
        return (rows() if x is None else x).rechunk((SIDE // N, SIDE)).rechunk((SIDE, SIDE // N))


def part(i, rows=20_000):
    import pandas as pd

    rng = np.random.default_rng(i)
    text = [f"text {n}" for n in rng.integers(0, 1000, rows)]
    return pd.DataFrame({"key": rng.integers(0, 100, rows), "x": rng.random(rows), "text": pd.array(text, dtype="string[pyarrow]")})


def shuffled():
    dd = pytest.importorskip("dask.dataframe")
    if not hasattr(dd, "from_map"):
        pytest.skip("no from_map")
    with dask.config.set(P2P):
        return dd.from_map(part, range(N), meta=part(0, 1)).shuffle("key", npartitions=N)


def same_frames(got):
    import pandas as pd

    order = ["key", "x"]
    want = pd.concat([part(i) for i in range(N)]).sort_values(order, ignore_index=True)
    got = got.sort_values(order, ignore_index=True)
    assert (got["key"] == want["key"]).all() and (got["x"] == want["x"]).all() and list(got["text"]) == list(want["text"])


def count(worker):
    """From here on: messages that came as a handle, shards that wait, writes to a disk."""
    taken = worker._exchange.adopt
    worker.counted = {"handles": 0, "kept": 0, "on disk": 0}

    def adopt(key, handle):
        worker.counted["handles"] += str(key).startswith("p2p-")
        return taken(key, handle)

    worker._exchange.adopt = adopt
    take = worker._shards.take

    def watched(run):
        take(run)
        kept = run._disk_buffer._process
        stock = type(run._disk_buffer)._write_frames

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


@pytest.mark.parametrize("map_mode", ["cow", "ro"])
@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_arrays_and_frames_are_as_on_stock_and_nothing_is_written_to_a_disk(place, map_mode, tier):
    settings = {f"{PREFIX}.map": map_mode, f"{PREFIX}.tier.enabled": tier}
    with cluster(place, 3, settings=settings) as client:
        on_workers(client, count)
        with dask.config.set({"optimization.fuse.active": False}):
            assert np.array_equal(rechunked().compute(), expected())
        arrays = on_workers(client, counted).values()
        assert sum(c["handles"] for c in arrays) > 0 and all(c["kept"] > 0 and c["on disk"] == 0 for c in arrays), arrays
        same_frames(shuffled().compute())
        frames = on_workers(client, counted).values()
        assert sum(c["handles"] for c in frames) > sum(c["handles"] for c in arrays) and not any(c["on disk"] for c in frames), frames
        wait_until(lambda: place.partition.usage(full=True).ghosts == 0 and place.partition.usage().n_objects == 0, "shards go")
    assert place.stores() == []


def test_what_has_no_room_waits_on_disk_and_goes_as_on_stock(place):
    place.resize(str(8 * MIB))
    settings = {f"{PREFIX}.tier.enabled": False}
    with cluster(place, 2, settings=settings) as client:
        on_workers(client, count)
        assert np.array_equal(rechunked().compute(), expected())
        assert sum(c["on disk"] for c in on_workers(client, counted).values()) > 0
        same_frames(shuffled().compute())


def test_a_worker_that_is_killed_amid_a_shuffle_loses_nothing(place):
    with cluster(place, 3) as client:
        on_workers(client, count)
        future = client.compute(rechunked())
        wait_until(lambda: any(c["kept"] for c in on_workers(client, counted).values()), "shards wait")
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        assert np.array_equal(future.result(timeout=120), expected())
    assert place.stores() == [] and place.partition.usage(full=True).ghosts == 0


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
        second.plugins["shuffle"].shuffle_runs._refresh = type(second.plugins["shuffle"].shuffle_runs)._refresh.__get__(
            second.plugins["shuffle"].shuffle_runs
        )
        x = client.persist(rows(), workers=[first.address])  # so that this one has shards to send
        await wait(x)
        result = await client.compute(rechunked(x))
        assert np.array_equal(result, expected())
        assert first._shards._others == {second.address}

    together(place, job, n=2)


class Waiting:
    """What a run of stock's is to Kept, on a disk that is a dictionary."""

    on_disk = True

    def __init__(self):
        self.disk = {}

    def through(self, keep, read, got, closed):
        self.keep, self.read, self.got, self.closed = keep, read, got, closed

    def check(self):
        pass

    async def stock_keep(self, id, shards):
        self.disk.setdefault(id, []).extend(shards)

    def stock_read(self, id):
        return [self.deserialize(shard) for shard in self.disk[id]]

    @staticmethod
    def deserialize(shard):
        return bytes(shard)


def test_where_shards_wait(place):
    """Small ones private, many as an object, on disk where there is no room; an output that is made again is an error and no wrong result."""

    async def job(client, worker):
        waiting, shards = Waiting(), worker._shards
        Kept(shards, "p2p-test", waiting)
        small, large = [os.urandom(1000) for _ in range(3)], [os.urandom(MIB // 2) for _ in range(5)]
        await waiting.keep("0", small)
        for shard in large:
            await waiting.keep("1", [shard])
        used = place.partition.usage(full=True)
        assert used.ghosts >= 2 * MIB and used.n_objects == 0 and not waiting.disk  # nobody but this process has them
        assert waiting.read("0") == small and sorted(waiting.read("1")) == sorted(large)
        room, shards.has_room = shards.has_room, lambda nbytes: False
        await waiting.keep("0", small[:1])
        shards.has_room = room
        await waiting.keep("0", small[1:])
        assert list(waiting.disk) == ["0"] and sorted(waiting.read("0")) == sorted(2 * small)
        waiting.got("1")
        with pytest.raises(RuntimeError, match="to be made again"):
            waiting.read("1")
        with pytest.raises(KeyError):  # there never was one: stock says so
            waiting.read("2")
        waiting.closed()
        wait_until(lambda: place.partition.usage(full=True).ghosts == 0, "nothing is left")

    together(place, job, n=1)
