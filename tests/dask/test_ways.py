# SPDX-License-Identifier: Apache-2.0
"""Every way to turn it on, and that without one of them nothing is."""

from __future__ import annotations

import asyncio
import json
import os

import dask
import distributed
import pytest
import tasks
from conftest import PREFIX, cluster, dask_worker, on_workers, workers
from distributed import Client

import shmstore.dask

WAYS = {
    "worker-class": (("--worker-class", "shmstore.dask.Worker"), {}),
    "worker-class-no-nanny": (("--worker-class", "shmstore.dask.Worker", "--no-nanny"), {}),
    "preload-option": (("--preload", "shmstore.dask"), {}),
    "preload-option-no-nanny": (("--preload", "shmstore.dask", "--no-nanny"), {}),
    "preload-configuration": ((), {"distributed.worker.preload": json.dumps(["shmstore.dask"])}),
    "preload-both": (
        (),
        {
            "distributed.worker.preload": json.dumps(["shmstore.dask"]),
            "distributed.nanny.preload": json.dumps(["shmstore.dask"]),
        },
    ),
}


@pytest.mark.parametrize(("way", "limit"), [*((way, "1 GiB") for way in WAYS),
                                            ("worker-class-no-nanny", "0"),
                                            ("preload-option", "0")])
def test_command_line(place, way, limit):
    arguments, config = WAYS[way]
    config = {**config, f"{PREFIX}.partition": place.path}
    with cluster(place, 0) as client:
        with dask_worker(client.scheduler.address, *arguments, "--memory-limit", limit,
                         config=config):
            with dask_worker(client.scheduler.address, *arguments, "--memory-limit", limit,
                             config=config):
                client.wait_for_workers(2, timeout=60)
                moves_by_link(client, place)
    assert place.partition.stores() == []


@pytest.mark.parametrize("option", ["--preload", "--worker-class"])
def test_dask_worker_as_a_subcommand(place, option):
    """`dask worker`, as Dask documents it now, with all its workers in one call."""
    value = {"--preload": "shmstore.dask", "--worker-class": "shmstore.dask.Worker"}[option]
    config = {f"{PREFIX}.partition": place.path}
    with cluster(place, 0) as client:
        arguments = ("--nworkers", "2", option, value, "--memory-limit", "1 GiB")
        with dask_worker(client.scheduler.address, *arguments, config=config,
                         program=("dask", "worker")):
            client.wait_for_workers(2, timeout=60)
            moves_by_link(client, place)
    assert place.partition.stores() == []


def moves_by_link(client, place):
    a, b = workers(client)
    x = client.submit(tasks.make, 1, workers=[a], key="x")
    assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
        tasks.make(1).sum())
    assert on_workers(client, tasks.n_objects) == {a: 1, b: 1}
    assert place.partition.usage(full=True).linked < 5 << 20
    assert {store.address for store in place.stores()} == {a, b}


# As they are started by default; most other tests' are forked.
SPAWNED = {"distributed.worker.multiprocessing-method": "spawn"}


def test_local_cluster_with_nannies(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit, settings=SPAWNED) as client:
        moves_by_link(client, place)


def test_local_cluster_by_configuration(place, memory_limit):
    settings = {**SPAWNED, "distributed.worker.preload": ["shmstore.dask"],
                "distributed.nanny.preload": ["shmstore.dask"]}
    with cluster(place, 2, worker_class=distributed.Nanny, settings=settings,
                 memory_limit=memory_limit) as client:
        moves_by_link(client, place)


def test_the_ways_work_together(place):
    config = {f"{PREFIX}.partition": place.path}
    with cluster(place, 1) as client:
        with dask_worker(client.scheduler.address, "--preload", "shmstore.dask", config=config):
            with dask_worker(client.scheduler.address, "--worker-class", "shmstore.dask.Worker",
                             "--no-nanny", config=config):
                client.wait_for_workers(3, timeout=60)
                x = [client.submit(tasks.make, i, workers=[w], key=f"x{i}")
                     for i, w in enumerate(workers(client))]
                client.gather([client.submit(tasks.total, *x, workers=[w], pure=False)
                               for w in workers(client)])
                assert set(on_workers(client, tasks.n_objects).values()) == {3}


def test_off_by_default(place):
    """Importing the package, even setting its partition, turns nothing on."""
    with cluster(place, 2, worker_class=distributed.Nanny) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        client.submit(tasks.total, x, workers=[b], pure=False).result()
        assert set(client.run(lambda dask_worker: type(dask_worker).__module__).values()) == {
            "distributed.worker"}
    assert os.listdir(os.path.join(place.path, "stores")) == []


@pytest.mark.parametrize("limit", ["1 GiB", 0])
def test_several_workers_in_one_process(place, limit):
    """As in Dask's own tests: each has its store, over TCP values go by link."""

    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0, host="127.0.0.1") as s:
            workers = [shmstore.dask.Worker(s.address, nthreads=1, memory_limit=limit, name=str(i))
                       for i in range(3)]
            async with workers[0], workers[1], workers[2], Client(
                    s.address, asynchronous=True) as client:
                x = client.submit(tasks.make, 1, workers=["0"], key="x")
                sums = [client.submit(tasks.total, x, workers=[name], pure=False) for name in "012"]
                assert await client.gather(sums) == pytest.approx([tasks.make(1).sum()] * 3)
                assert [w._exchange.store.usage().n_objects for w in workers] == [1, 1, 1]
                assert len({w._exchange.store.path for w in workers}) == 3
                assert len({id(w.data["x"]) for w in workers}) == 3
                y = await shmstore.dask.scatter(client, tasks.make(2), workers=["1"])
                assert ((await shmstore.dask.gather(client, y)) == tasks.make(2)).all()
                for future in (x, y, *sums):
                    future.release()
                # a thread deletes them
                while any(len(w.data) or w._exchange.store.usage().n_objects for w in workers):
                    await asyncio.sleep(0.01)

    # The memory manager would take the copies away that are counted here, on a machine
    # so busy that it comes to it.
    with dask.config.set({f"{PREFIX}.partition": place.path,
                          "distributed.scheduler.active-memory-manager.start": False}):
        asyncio.run(asyncio.wait_for(go(), 60))
    assert place.partition.stores() == []


def test_workers_of_one_process_without_sockets(place):
    """inproc://: values go by reference, as on stock."""
    with cluster(place, 0) as client:
        pass
    with dask.config.set({f"{PREFIX}.partition": place.path}), distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, worker_class=shmstore.dask.Worker,
        dashboard_address=None
    ) as local, Client(local) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
            tasks.make(1).sum())
        assert set(on_workers(client, tasks.n_objects).values()) == {0}
