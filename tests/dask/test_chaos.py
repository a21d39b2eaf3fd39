# SPDX-License-Identifier: Apache-2.0
"""Shuffles while workers are killed: the results are right, and nothing is left in the partition.

SHMSTORE_DASK_CHAOS_SECONDS says for how long; a worker is killed every five seconds, or
twice where the time is short.
"""

from __future__ import annotations

import os
import random
import signal
import time

import dask
import dask.dataframe
import pandas as pd
import tasks
from conftest import PREFIX, cluster, wait_until
from dask import delayed
from distributed import KilledWorker

SECONDS = float(os.environ.get("SHMSTORE_DASK_CHAOS_SECONDS", "10"))
EVERY = min(5.0, SECONDS / 2)
PARTS, ROWS = 12, 50_000


def shuffled():
    """Of a table that is shuffled by its keys: sums for each key."""
    meta = tasks.make_frame(0, 0)
    frame = dask.dataframe.from_delayed([delayed(tasks.make_frame)(i, ROWS) for i in range(PARTS)],
                                        meta=meta, verify_meta=False)
    with dask.config.set(shuffle="tasks"):
        return frame.set_index("k", divisions=[*range(0, 100, 10), 99]).a.groupby("k").sum()


def kill_one(place, rng) -> bool:
    """The worker of one store. Whether one was there."""
    victims = [store.pid for store in place.stores() if store.alive]
    if victims:
        os.kill(rng.choice(victims), signal.SIGKILL)
    return bool(victims)


def test_shuffles_among_kills(place):
    expected = pd.concat([tasks.make_frame(i, ROWS) for i in range(PARTS)]).groupby("k").a.sum()
    rng = random.Random(1)
    settings = {f"{PREFIX}.lease": "5s", "distributed.scheduler.allowed-failures": 1000}
    rounds = kills = 0
    with cluster(place, 4, settings=settings) as client:
        end = time.monotonic() + SECONDS
        next_kill = time.monotonic() + EVERY / 2
        while time.monotonic() < end or not rounds:
            result = client.compute(shuffled())
            while not result.done():
                if next_kill <= time.monotonic() < end:
                    kills += kill_one(place, rng)
                    next_kill = time.monotonic() + EVERY
                time.sleep(0.05)
            try:
                found = result.result()
            except KilledWorker:  # pragma: no cover: a thousand are allowed
                raise AssertionError("a task was given up") from None
            pd.testing.assert_series_equal(found.sort_index(), expected, check_exact=False)
            result.release()
            rounds += 1
        assert kills >= 1
        client.wait_for_workers(4, timeout=60)
    print(f"{rounds} rounds, {kills} kills, {SECONDS:.0f} s")
    wait_until(lambda: place.partition.gc() is not None and not list(place.partition.stores()),
               "gc has removed all stores")
    usage = place.partition.usage(full=True)
    assert (usage.residual == 0 and usage.n_objects == 0 and usage.n_leases == 0 and
            usage.linked == usage.metadata)
