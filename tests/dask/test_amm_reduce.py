# SPDX-License-Identifier: Apache-2.0
"""HostReduceReplicas: what Dask's own drops for nothing stays, and what frees memory goes. Hosts
are partitions of their own."""

from __future__ import annotations

import os
import time

import pytest
import tasks
from ammclusters import MIB, POLICIES, amm, conductor, replicas, used
from conftest import PREFIX, Place, cluster, dask_worker, on_workers, wait_until, workers
from distributed import wait


@pytest.fixture
def other_place():
    place = Place()
    yield place
    place.remove()


def replicated(client, n=4, first=None):
    """n keys of 4 MiB that all workers have; those named first are the first to have them."""
    first = workers(client) if first is None else first
    futures = [client.submit(tasks.make, i, key=f"x-{i}", workers=first[:1]) for i in range(n)]
    wait(futures)
    client.replicate(futures, workers=first)
    client.replicate(futures)
    assert set(replicas(client, futures).values()) == {len(workers(client))}
    return futures


def test_stock_drops_links_for_nothing(place):
    with cluster(place, 3,
                 settings=amm("distributed.active_memory_manager.ReduceReplicas")) as client:
        futures = replicated(client)
        client.amm.run_once()
        wait_until(lambda: set(replicas(client, futures).values()) == {1}, "dropped")


def test_links_of_a_host_stay_at_no_memory(place):
    with cluster(place, 3, settings=amm("HostReduceReplicas")) as client:
        futures = [client.submit(tasks.make, i, key=f"x-{i}") for i in range(4)]
        wait(futures)
        client.gather([client.submit(tasks.total, x, workers=[w], pure=False) for x in futures
                       for w in workers(client)[:2]])
        before = used(place)
        client.replicate(futures)
        assert used(place) - before < 8 * 4 * MIB / 100 + MIB, "links take a directory entry each"
        for _ in range(3):
            client.amm.run_once()
            time.sleep(0.2)
        assert set(replicas(client, futures).values()) == {3}
        assert all(n == 4 for n in on_workers(client, tasks.n_objects).values())
        assert conductor(client).ledger.counters.drops == 0


def test_under_pressure_the_other_hosts_copy_is_enough(place, other_place):
    """Three workers of one host, one of another: all three links go at once, and df falls."""
    config = {f"{PREFIX}.partition": other_place.path}
    arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit", "1 GiB")
    settings = {**amm("HostReduceReplicas"), f"{PREFIX}.share": "eager",
                f"{PREFIX}.tier.enabled": False}
    with cluster(place, 3, settings=settings) as client, dask_worker(
            client.scheduler.address, *arguments, config=config):
        client.wait_for_workers(4, timeout=60)
        here = [worker.address for worker in client.cluster.scheduler.workers.values()
                if worker.nanny]
        futures = replicated(client, first=here)
        wait_until(lambda: used(place) >= 16 * MIB, "put")
        before = used(place)
        place.resize(int(before / 0.9))
        told(client, place)
        client.amm.run_once()
        wait_until(lambda: set(replicas(client, futures).values()) == {1},
                   "the links of the host are gone")
        wait_until(lambda: used(place) <= before - 15 * MIB, "df falls")
        assert conductor(client).ledger.counters.drops == 12
        assert (futures[0].result() == tasks.make(0)).all()


def test_under_pressure_one_link_stays_for_the_tiers_mover(place):
    settings = {**amm("HostReduceReplicas"), f"{PREFIX}.share": "eager",
                f"{PREFIX}.tier.high": 0.9}
    with cluster(place, 3, settings=settings) as client:
        futures = replicated(client)
        before = used(place)
        assert set(on_workers(client, give).values()) == {0}, "nothing that others link is moved"
        place.resize(int(before / 0.83))  # above amm.high, below the tier's own watermark
        told(client, place)
        client.amm.run_once()
        wait_until(lambda: set(replicas(client, futures).values()) == {1}, "one link is left")
        # the scheduler counts a link as gone when it asks for that; the worker may be busy yet
        given = []
        wait_until(lambda: given.append(sum(on_workers(client, give).values())) or
                   sum(given) >= 15 * MIB, "it is the only one: it may be moved")
        wait_until(lambda: used(place) <= before - 15 * MIB, "df falls")
        assert all((future.result() == tasks.make(i)).all() for i, future in enumerate(futures))


def give(worker):
    """Bytes that a worker gives when the daemon asks it for memory."""
    worker._residence.unmap_idle()
    return worker._exchange.demote(list(worker._exchange.alone()), 64 * MIB)


def told(client, place):
    """The scheduler has heard how full the partition is now."""
    def heard():
        said = [worker.metrics["shmstore"] for worker in client.cluster.scheduler.workers.values()]
        here = [ours for ours in said if ours["size"] == size]
        return len(here) >= 3 and all(ours["used"] >= 0.8 * size for ours in here)

    status = os.statvfs(place.path)
    size = status.f_blocks * status.f_frsize
    wait_until(heard, "heartbeats")


def test_workers_that_share_nothing_are_as_on_stock(place):
    import distributed

    with cluster(place, 3, worker_class=distributed.Nanny,
                 settings=amm("HostReduceReplicas")) as client:
        futures = replicated(client)
        client.amm.run_once()
        wait_until(lambda: set(replicas(client, futures).values()) == {1}, "dropped as on stock")


def test_small_values_are_as_on_stock(place):
    with cluster(place, 3, settings=amm("HostReduceReplicas")) as client:
        x = client.submit(tasks.make, 1, 800, key="small")
        wait(x)
        client.replicate([x])
        assert replicas(client, [x]) == {"small": 3}
        client.amm.run_once()
        wait_until(lambda: replicas(client, [x]) == {"small": 1}, "dropped")


def test_the_managers_configuration_is_all_there_is(place):
    """By configuration alone, and the manager runs them by itself."""
    settings = {**amm("HostReduceReplicas", start=True), f"{POLICIES}.interval": "100ms"}
    with cluster(place, 2, settings=settings) as client:
        futures = replicated(client)
        wait_until(lambda: conductor(client).policies()[0].runs >= 3, "it runs")
        assert set(replicas(client, futures).values()) == {2}
        state = conductor(client).policies()[0].describe()
        assert (state.policy == "HostReduceReplicas(linger=10.0)" and state.failures == 0 and
                state.state == "idle")
