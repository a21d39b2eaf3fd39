# SPDX-License-Identifier: Apache-2.0
"""A worker dies: its store goes, and the job ends right."""

from __future__ import annotations

import os
import signal

import pytest
import tasks
from conftest import PREFIX, cluster, dask_worker, on_workers, wait_until, workers
from distributed import wait
from tasks import MIB


def test_the_nanny_removes_the_store_of_a_killed_worker(place, memory_limit):
    # what it promised when it died keeps it that long
    settings = {f"{PREFIX}.sweep-interval": "1h", f"{PREFIX}.lease": "10s"}
    with cluster(place, 3, memory_limit=memory_limit, settings=settings) as client:
        chunks = [client.submit(tasks.make, i, key=f"chunk-{i}") for i in range(6)]
        dots = [client.submit(tasks.dot, a, b, pure=False) for a in chunks for b in chunks]
        victim = place.stores()[0]
        os.kill(victim.pid, signal.SIGKILL)
        expected = [tasks.dot(tasks.make(i), tasks.make(j)) for i in range(6) for j in range(6)]
        assert client.gather(dots) == pytest.approx(expected)
        wait_until(lambda: victim.name not in {store.name for store in place.partition.stores()},
                   "the store is gone")
        client.wait_for_workers(3, timeout=60)


def test_the_nanny_comes_back_for_what_a_killed_worker_had_promised(place):
    """A ticket that nobody took keeps the store of the dead until its lease
    ends; nobody else looks."""
    settings = {f"{PREFIX}.sweep-interval": "1h", f"{PREFIX}.lease": "5s"}
    with cluster(place, 1, settings=settings) as client:
        chunk = client.submit(tasks.make, 1, key="chunk")
        wait([chunk])
        on_workers(client, promise, "chunk")
        victim = place.stores()[0]
        os.kill(victim.pid, signal.SIGKILL)
        client.wait_for_workers(1, timeout=60)
        wait_until(lambda: victim.name not in {store.name for store in place.partition.stores()},
                   "the store is gone")
        wait_until(lambda: place.partition.usage(full=True).n_leases == 0, "the lease is gone")


def promise(worker, key):
    """A ticket as it is when its donor dies before it sent it."""
    worker._exchange.put(key, worker.data[key])
    worker._exchange.store.handoff(key, lease=worker._exchange.settings.lease)


def test_a_sibling_removes_the_store_of_a_killed_worker(place):
    config = {f"{PREFIX}.partition": place.path, f"{PREFIX}.sweep-interval": "200ms"}
    arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit", "1 GiB")
    with cluster(place, 0) as client:
        with dask_worker(client.scheduler.address, *arguments, config=config) as first:
            with dask_worker(client.scheduler.address, *arguments, config=config):
                client.wait_for_workers(2, timeout=60)
                x = client.submit(tasks.make, 1, key="x")
                client.gather([client.submit(tasks.total, x, workers=[w], pure=False)
                               for w in workers(client)])
                assert len(place.stores()) == 2
                os.kill(first.pid, signal.SIGKILL)
                wait_until(lambda: len(place.stores()) == 1, "the sibling swept")
                assert client.submit(tasks.total, x, pure=False).result() == pytest.approx(
                    tasks.make(1).sum())
                usage = place.partition.usage(full=True)
                assert usage.linked - usage.metadata < 5 * MIB


def test_all_are_killed_and_gc_leaves_nothing(place):
    # the second one leaves it to gc
    config = {f"{PREFIX}.partition": place.path, f"{PREFIX}.sweep-interval": "1h"}
    arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit", "0")
    with cluster(place, 0) as client:
        with dask_worker(client.scheduler.address, *arguments, config=config) as first:
            with dask_worker(client.scheduler.address, *arguments, config=config) as second:
                client.wait_for_workers(2, timeout=60)
                x = client.submit(tasks.make, 1, key="x")
                client.gather([client.submit(tasks.total, x, workers=[w], pure=False)
                               for w in workers(client)])
                for process in (first, second):
                    process.kill()
                    process.wait()
    report = place.partition.gc()
    assert report.n_stores == 2 and report.freed >= 4 * MIB
    usage = place.partition.usage(full=True)
    assert (usage.n_stores, usage.n_objects, usage.n_leases, usage.ghosts) == (0, 0, 0, 0)
    assert not place.mounted or usage.residual == 0


def test_a_store_in_the_workers_own_directory_goes_with_it(place):
    """Where the local directory lies in the partition even a stock nanny removes the store."""
    import distributed

    local = os.path.join(place.path, "scratch")
    os.mkdir(local)
    options = {"distributed.worker.preload": ["shmstore.dask"], f"{PREFIX}.sweep-interval": "1h"}
    with cluster(place, 2, worker_class=distributed.Nanny, settings=options,
                 local_directory=local) as client:
        x = client.submit(tasks.make, 1, key="x")
        client.gather([client.submit(tasks.total, x, workers=[w], pure=False)
                       for w in workers(client)])
        stores = place.stores()
        assert len(stores) == 2 and all(store.path.startswith(local) for store in stores)
        os.kill(stores[0].pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(stores[0].path), "the nanny removed it")
        assert client.submit(tasks.total, x, pure=False).result() == pytest.approx(
            tasks.make(1).sum())
