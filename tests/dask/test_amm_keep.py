# SPDX-License-Identifier: Apache-2.0
"""Insurance, InDemand and Retire on clusters: links before anybody asks,
and nothing computed twice."""

from __future__ import annotations

import os
import signal
import time

import pytest
import tasks
from ammclusters import MIB, amm, conductor, replicas, used
from conftest import PREFIX, Place, cluster, dask_worker, on_workers, wait_until, workers
from distributed import wait


def pid_of(client, address):
    return client.run(os.getpid, workers=[address])[address]


def test_insured_keys_survive_their_worker_and_are_not_computed_again(place):
    settings = amm({"class": "Insurance", "size": "1 MiB"}, "HostReduceReplicas", start=True)
    with cluster(place, 3, settings=settings) as client:
        futures = [client.submit(tasks.make_counted, place.path, i, key=f"x-{i}") for i in range(6)]
        small = client.submit(tasks.make, 1, 80_000, key="small")
        wait([*futures, small])
        wait_until(lambda: set(replicas(client, futures).values()) == {2}, "insured", 20)
        counters = conductor(client).ledger.counters
        wait_until(lambda: settled(client).links == 6, "links, each once")
        assert counters.copies == 0 and replicas(client, [small]) == {"small": 1}
        assert used(place) < (6 * 4 + 8) * MIB, "one copy of each"
        for _ in range(2):
            victim = next(iter(client.who_has(futures)["x-0"]))
            os.kill(pid_of(client, victim), signal.SIGKILL)
            wait_until(lambda: victim not in client.cluster.scheduler.workers, "gone")
            wait_until(lambda: set(replicas(client, futures).values()) == {2}, "insured again", 60)
        assert [(future.result() == tasks.make(i)).all() for i, future in enumerate(futures)] == [
            True] * 6
        assert tasks.counted(place.path) == 6, "nothing was computed twice"


def settled(client):
    client.amm.run_once()
    return conductor(client).ledger.counters


def test_insurance_by_cost(place):
    settings = amm({"class": "Insurance", "size": None, "cost": "1s"}, start=True)
    with cluster(place, 2, settings=settings) as client:
        slow = client.submit(tasks.make_slowly, 1.5, key="slow-1")
        quick = client.submit(tasks.make, 1, key="quick-1")
        wait([slow, quick])
        wait_until(lambda: replicas(client, [slow]) == {"slow-1": 2}, "insured")
        assert replicas(client, [quick]) == {"quick-1": 1}


def test_what_is_in_demand_is_linked_before_it_is_asked_for(place):
    settings = amm({"class": "InDemand", "waiters": 3}, start=True, interval="300ms")
    with cluster(place, 3, settings=settings) as client:
        x = client.submit(tasks.make, 1, key="x")
        late = client.submit(time.sleep, 4, key="late")
        uses = [client.submit(tasks.total_after, x, late, i, key=f"use-{i}") for i in range(6)]
        wait(x)
        wait_until(lambda: replicas(client, [x]) == {"x": 3}, "linked while the tasks wait", 3.5)
        assert not late.done()
        assert client.gather(uses) == pytest.approx([tasks.make(1).sum() + i for i in range(6)])


def test_a_retired_workers_values_go_to_its_siblings(place):
    other = Place()
    try:
        # Stock takes the worker with the least memory: that of the other host.
        config = {f"{PREFIX}.partition": other.path}
        arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit",
                     "1 GiB")
        settings = {**amm("Retire", start=True), f"{PREFIX}.share": "eager"}
        with cluster(place, 2, settings=settings) as client:
            first, second = workers(client)
            with dask_worker(client.scheduler.address, *arguments, config=config):
                client.wait_for_workers(3, timeout=60)
                futures = [client.submit(tasks.make, i, key=f"x-{i}", workers=[first])
                           for i in range(8)]
                wait(futures)
                on_workers(client, ballast)  # so that no sibling is the one with the least memory
                before = used(place)
                began = time.monotonic()
                client.retire_workers([first])
                took = time.monotonic() - began
                assert {who for whos in client.who_has(futures).values() for who in whos} == {
                    second}
                assert used(place) <= before + MIB and used(other) < MIB
                assert [(f.result() == tasks.make(i)).all() for i, f in enumerate(futures)] == [
                    True] * 8
                conductor(client).kick(0)
                print(f"retired 32 MiB in {took:.2f} s")
    finally:
        other.remove()


def ballast(worker):
    """Private memory of the workers that have a nanny."""
    if worker.nanny:
        worker.ballast = bytearray(os.urandom(1 << 20) * 200)


def test_the_last_worker_of_a_host_is_copied_to_another(place):
    other = Place()
    try:
        config = {f"{PREFIX}.partition": other.path}
        arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit",
                     "1 GiB")
        with cluster(place, 1, settings=amm("Retire", start=True)) as client:
            (first,) = workers(client)
            x = client.submit(tasks.make, 1, key="x")
            wait(x)
            with dask_worker(client.scheduler.address, *arguments, config=config):
                client.wait_for_workers(2, timeout=60)
                client.retire_workers([first])
                assert first not in client.who_has([x])["x"] and (x.result() == tasks.make(1)).all()
    finally:
        other.remove()
