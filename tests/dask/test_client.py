# SPDX-License-Identifier: Apache-2.0
"""Client scatter and gather through the partition."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import traceback

import dask
import distributed
import numpy as np
import pytest
import tasks
from conftest import HERE, PREFIX, cluster, dask_worker, on_workers, wait_until, workers
from distributed import Client, Future

import shmstore.dask
from shmstore.dask import gather, scatter
from shmstore.dask.compat.worker import has_workers


@pytest.mark.parametrize(
    ("side", "actions"),
    [("ours", ["scatter", "scatter-direct", "broadcast", "gather", "replicate"]),
     ("plain", ["scatter", "broadcast", "gather", "result"])],
    ids=["ours", "plain"],
)
def test_no_large_value_goes_through_a_socket(place, side, actions):
    found = transfers(place, side, *actions)
    assert list(found) == actions
    for action, ours in found.items():
        assert ours["right"], action
        copies = 3 if action in ("broadcast", "replicate") else 1
        assert ours["copies"] == [copies] * 4, action
        assert ours["bytes"] < 1 << 20, (action, ours)


def test_what_stock_sends_is_seen_by_the_measurement(place):
    assert transfers(place, "stock", "scatter")["scatter"]["bytes"] > 64 << 20


def transfers(place, side, *actions):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, os.path.join(HERE, "transfers.py"), place.path, side, *actions]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200,
                          check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    if "skip" in answer:
        pytest.skip(answer["skip"])
    return answer


def test_shapes_of_arguments_and_results(place):
    with cluster(place, 2) as client:
        array, frame = tasks.make(1), tasks.make_frame(1)
        single = scatter(client, array)
        assert isinstance(single, Future) and single.type is np.ndarray
        listed = scatter(client, [array, 5, frame])
        assert isinstance(listed, list)
        named = scatter(client, {"a": array, "b": 5})
        assert set(named) == {"a", "b"} and named["a"].key == "a"
        assert scatter(client, 5).result() == 5
        assert len(scatter(client, (array, frame))) == 2
        assert [future.result() for future in scatter(client, range(3))] == [0, 1, 2]
        assert (gather(client, single) == array).all()
        got = gather(client, {"x": [single, listed[1]], "y": (named["a"],)})
        assert (got["x"][0] == array).all() and got["x"][1] == 5 and (got["y"][0] == array).all()
        assert [value if np.isscalar(value) else None
                for value in gather(client, iter(listed))] == [None, 5, None]
        assert gather(client, []) == []
        assert (client.gather(single) == array).all(), "the plain way works on shared values"
        assert (client.submit(tasks.identity, single).result() == array).all()
        again = scatter(client, array, hash=False)
        assert (again.key != single.key and scatter(client, array).key == single.key ==
                client.scatter(array).key)


def test_what_is_gathered_outlives_the_cluster(place):
    with cluster(place, 2) as client:
        x = client.submit(tasks.make, 1, key="x")
        value = gather(client, x)
        assert on_workers(client, tasks.n_objects)
    assert (value == tasks.make(1)).all()
    value[0] = 1.0  # cow
    assert place.partition.stores() == []


def test_read_only_gather(place):
    with cluster(place, 1, settings={f"{PREFIX}.map": "ro"}) as client:
        value = gather(client, client.submit(tasks.make, 1))
        with pytest.raises(ValueError, match="read-only"):
            value[0] = 1


def test_errors_are_those_of_the_plain_way(place):
    with cluster(place, 1) as client:
        good, bad = client.submit(tasks.make, 1), client.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            gather(client, [good, bad])
        assert len(gather(client, [good, bad], errors="skip")) == 1
        cancelled = client.submit(tasks.make, 3, key="cancelled")
        cancelled.cancel()
        with pytest.raises(distributed.client.CancelledError):
            gather(client, cancelled)
        with pytest.raises(KeyError):
            scatter(client, tasks.make(1), workers=["tcp://127.0.0.1:1"], timeout=1)


def test_an_error_has_no_frames_of_ours(place):
    with cluster(place, 1) as client:

        async def gathered():
            async with Client(client.scheduler.address, asynchronous=True) as other:
                await other.gather(other.submit(lambda: 1 / 0))

        for call in (lambda: client.gather(client.submit(lambda: 1 / 0)),
                     client.submit(lambda: 1 / 0).result, lambda: asyncio.run(gathered())):
            with pytest.raises(ZeroDivisionError) as found:
                call()
            files = [frame.filename for frame in traceback.extract_tb(found.value.__traceback__)]
            assert not any("shmstore/dask/" in file for file in files), files


def test_workers_without_it_get_values(place):
    with cluster(place, 1) as client, dask_worker(client.scheduler.address, "--no-nanny", "--name",
                                                  "stock"):
        client.wait_for_workers(2, timeout=60)
        info = client.scheduler_info()["workers"]
        stock = next(address for address, worker in info.items() if worker["name"] == "stock")
        ours = next(address for address in info if address != stock)
        for chosen in ([stock], ["stock"], [ours], [stock, ours], None):
            x = scatter(client, tasks.make(1), workers=chosen, hash=False)
            assert client.submit(tasks.total, x, workers=[stock],
                                 pure=False).result() == pytest.approx(tasks.make(1).sum())
            assert (gather(client, x) == tasks.make(1)).all()
        x = scatter(client, tasks.make(2), broadcast=True)
        assert set(client.who_has([x])[x.key]) == {stock, ours}
        y = scatter(client, tasks.make(3), workers=[stock])
        assert set(client.who_has([y])[y.key]) == {stock}


def test_a_ticket_that_a_worker_cannot_use_is_followed_by_the_value(place):
    with cluster(place, 1) as client:
        on_workers(client, _refuse)
        x = scatter(client, tasks.make(1))
        assert (x.result() == tasks.make(1)).all()


def _refuse(worker):
    worker._exchange.adopt = lambda key, handle: False


def test_cluster_that_shares_nothing(place):
    with cluster(place, 1, worker_class=distributed.Nanny) as client:
        x = scatter(client, tasks.make(1), broadcast=True)
        assert (gather(client, x) == tasks.make(1)).all()


def test_small_values_and_processes_with_workers_go_as_on_stock(place, monkeypatch):
    monkeypatch.setattr(shmstore.dask.client, "Exchange", None)  # no store is opened
    with cluster(place, 1) as client:
        assert (client.submit(tasks.identity, 5).result() == 5 and
                client.scatter([1, "x"])[1].result() == "x")
        names = client.scatter({("a", 1): 2})
        assert [*names] == [("a", 1)]
        small = client.submit(np.ones, 100)
        assert (client.gather([small])[0] == 1).all()
        with dask.config.set({f"{PREFIX}.enabled": False}):
            assert (client.scatter(tasks.make(1)).result() == tasks.make(1)).all()
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        assert (client.scatter(tasks.make(1)).result() == tasks.make(1)).all()


def test_an_error_is_raised_at_once_and_late_results_are_waited_for(place):
    with cluster(place, 2) as client:
        event, bad = distributed.Event("go"), client.submit(lambda: 1 / 0)
        late = client.submit(_wait_and_make, "go")
        with pytest.raises(ZeroDivisionError):
            client.gather([late, bad])
        event.set()
        assert ((late.result(30) == tasks.make(1)).all() and
                len(client.gather([late, bad], errors="skip")) == 1)


def _wait_and_make(name):
    distributed.Event(name).wait()
    return tasks.make(1)


def test_asynchronous_client(place):
    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0, host="127.0.0.1") as s:
            async with shmstore.dask.Worker(s.address, nthreads=1), Client(
                    s.address, asynchronous=True) as client:
                x = await scatter(client, tasks.make(1))
                assert ((await gather(client, x)) == tasks.make(1)).all()

    with dask.config.set({f"{PREFIX}.partition": place.path}):
        asyncio.run(asyncio.wait_for(go(), 60))


def test_nothing_is_left_behind(place):
    with cluster(place, 2) as client:
        x = scatter(client, [tasks.make(i) for i in range(4)])
        gather(client, x)
        assert len(place.stores("dask-client")) == 0
        del x
        wait_until(lambda: place.partition.usage().n_objects == 0, "released")
        assert workers(client)
    usage = place.partition.usage(full=True)
    assert (usage.n_stores, usage.n_objects, usage.n_leases) == (0, 0, 0)
    assert not place.mounted or (usage.residual, usage.ghosts) == (0, 0)


def test_a_worker_that_closed_is_none_of_its_process():
    """It may be referred to for long: clients of its process go by link again all the same."""

    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0, host="127.0.0.1") as s:
            async with distributed.Worker(s.address, nthreads=1) as worker:
                assert has_workers()
        return worker

    worker = asyncio.run(go())
    assert worker.status.name == "closed" and not has_workers()
