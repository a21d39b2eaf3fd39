# SPDX-License-Identifier: Apache-2.0
"""Insurance while workers are killed at random: no key that had its insurance at a kill is
computed again after it."""

from __future__ import annotations

import os
import sys
import threading

import dask
import pandas as pd
import pytest
import tasks
from ammclusters import MIB, amm, replicas
from conftest import HERE, cluster, wait_until, workers
from distributed import wait

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench"))
import dask_kills
from dask_kills import Kills

INSURED = amm({"class": "Insurance", "size": "1 MiB"}, "HostReduceReplicas", "Retire", start=True,
              interval="500ms")
# LocalCluster ends for good whom it misses so long after a loss: on a busy machine most of them
INSURED["distributed.deploy.lost-worker-timeout"] = "1h"
N = 8


def pairs(client, place):
    chunks = [client.submit(tasks.make_counted, place.path, i, key=f"chunk-{i}") for i in range(N)]
    wait(chunks)
    own = [tasks.make(i) for i in range(N)]
    expected = [float(a[::64] @ b[::64]) for a in own for b in own]
    return lambda i: check_pairs(client, chunks, expected, i)


def check_pairs(client, chunks, expected, i):
    found = [client.submit(tasks.slow_dot, a, b, 0.02, key=f"dot-{i}-{j}-{k}")
             for j, a in enumerate(chunks) for k, b in enumerate(chunks)]
    assert client.gather(found) == expected


def shuffle(client, place):
    dd = pytest.importorskip("dask.dataframe")
    frames = [client.submit(tasks.make_frame, i, key=f"frame-{i}") for i in range(N)]
    wait(frames)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_delayed(frames, meta=tasks.make_frame(0, 1), verify_meta=False)
    expected = pd.concat([tasks.make_frame(i) for i in range(N)]).groupby("k").a.count()
    return lambda i: check_shuffle(client, frame, expected)


def check_shuffle(client, frame, expected):
    with dask.config.set({"shuffle": "tasks", "dataframe.shuffle.method": "tasks",
                          "dataframe.convert-string": False}):
        parts = client.compute(client.persist(frame.shuffle("k")).to_delayed(), sync=True)
    found = pd.concat([part.groupby("k").a.count() for part in parts])
    assert found.index.is_unique, "a key is in one part"
    pd.testing.assert_series_equal(found.sort_index(), expected, check_index_type=False)


@pytest.mark.parametrize("job", [pairs, shuffle])
def test_nothing_that_had_its_insurance_is_computed_again(place, job):
    with cluster(place, 3, settings=INSURED) as client:
        kills, over = Kills(client), threading.Event()

        def killer():
            while len(kills.insured_at) < 4 and not over.wait(0.2):
                # a worker that comes needs its time on a busy machine
                if client.sync(insured, kills) >= N:
                    kills.one()
                    over.wait(1)

        run = job(client, place)
        wait_until(lambda: client.sync(insured, kills) >= N, "the inputs are insured")
        thread = threading.Thread(target=killer, daemon=True)
        thread.start()
        try:
            i = 0
            while thread.is_alive():
                run(i)
                i += 1
        finally:
            over.set()
            thread.join()
        assert len(kills.insured_at) == 4 and min(kills.insured_at) > 0, kills.report()
        assert kills.again == [], kills.report()


async def insured(kills):
    policy = kills._policy()
    return sum(dask_kills.insured(policy, task) for task in kills._scheduler.tasks.values())


def test_what_had_none_is_counted(place):
    """One of which there is one replica, made anew after a kill, is told from one that has two."""
    # A worker that is late would have its small one stolen: then one kill
    # loses both of them, or none.
    with cluster(place, 2, settings=INSURED | {"distributed.scheduler.work-stealing":
                                                   False}) as client:
        kills = Kills(client)
        large = client.submit(tasks.make, 1, key="large")
        small = [client.submit(tasks.make, 1, MIB // 2, key=f"small-{i}", workers=[address],
                               allow_other_workers=True)
                 for i, address in enumerate(workers(client))]
        wait([large, *small])
        wait_until(lambda: replicas(client, [large]) == {"large": 2}, "insured")
        assert kills.one()
        wait_until(lambda: len(kills.again_uninsured) == 1,
                   "one of the small ones is computed again")
        wait(small)
        assert kills.insured_at == [1] and kills.again == [] and kills.again_uninsured[0][0] == 1
        assert "small" in kills.again_uninsured[0][1]
