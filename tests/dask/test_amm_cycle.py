# SPDX-License-Identifier: Apache-2.0
"""Cycle: every worker's process is replaced while a job runs, and nothing is computed again."""

from __future__ import annotations

import os
import time

import distributed
import pytest
import tasks
from ammclusters import MIB, amm, conductor
from conftest import PREFIX, cluster, on_workers, wait_until, workers
from distributed import wait
from together import together


def cycle(client):
    return next(policy for policy in conductor(client).policies() if type(policy).__name__ ==
                "Cycle")


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "stock"])
def test_all_processes_are_replaced_and_nothing_is_computed_again(place, shared):
    settings = {
        **amm({"class": "Cycle", "age": "3s", "growth": None, "period": "100ms"}, "Retire",
              start=True, interval="200ms"),
        f"{PREFIX}.share": "eager",
    }
    options = {} if shared else {"worker_class": distributed.Nanny}
    with cluster(place, 3, settings=settings, **options) as client:
        pids = set(client.run(os.getpid).values())
        chunks = [client.submit(tasks.make_counted, place.path, i, key=f"x-{i}") for i in range(6)]
        wait(chunks)
        policy = cycle(client)
        sums = []
        for round in range(400):
            sums += [client.submit(tasks.total, chunk, round, key=f"sum-{round}-{i}")
                     for i, chunk in enumerate(chunks)]
            if policy.cycled >= 3:
                break
            wait(sums[-6:])
            time.sleep(0.1)
        policy.age = None
        wait_until(lambda: len(client.cluster.scheduler.running) == 3, "all are there again")
        values = client.gather(sums)
        expected = [tasks.make(i).sum() for i in range(6)]
        assert values == pytest.approx([expected[i % 6] + i // 6 for i in range(len(sums))])
        assert policy.cycled >= 3 and policy.failed == 0
        assert not pids & set(client.run(os.getpid).values())
        assert tasks.counted(place.path) == 6, "nothing was computed twice"


def test_a_process_that_grew_is_replaced_and_others_are_not(place):
    settings = amm({"class": "Cycle", "growth": "100 MiB", "period": "100ms"}, "Retire", start=True,
                   interval="200ms")
    settings["distributed.worker.memory.recent-to-old-time"] = "500ms"
    with cluster(place, 2, settings=settings) as client:
        policy = cycle(client)
        wait_until(lambda: len(policy._began) == 2, "it knows them")
        before = {worker["name"]: address
                  for address, worker in client.scheduler_info()["workers"].items()}
        client.submit(leak, workers=[before[0]]).result()
        wait_until(lambda: policy.cycled == 1, "replaced")
        wait_until(lambda: len(client.cluster.scheduler.running) == 2, "back")
        after = {worker["name"]: address
                 for address, worker in client.scheduler_info()["workers"].items()}
        assert after[1] == before[1] and after[0] != before[0]


def leak():
    import tasks

    tasks.leaked = bytearray(os.urandom(MIB) * 200)


def test_one_that_cannot_go_stays_and_works(place):
    """Its task runs for longer than it is waited for."""
    settings = amm({"class": "Cycle", "growth": None, "patience": "1s", "period": "100ms"},
                   start=True, interval="200ms")
    with cluster(place, 2, settings=settings) as client:
        policy = cycle(client)
        slow = [client.submit(tasks.make_slowly, 8, i, key=f"slow-{i}", workers=[address])
                for i, address in enumerate(workers(client))]
        wait_until(lambda: all(on_workers(client, executes).values()), "both run")
        wait_until(lambda: len(policy._began) == 2, "it knows them")
        policy.age = 0.0
        wait_until(lambda: policy.failed >= 1, "given up")
        policy.age = None
        wait_until(lambda: len(client.cluster.scheduler.running) == 2, "it takes tasks again")
        assert policy.cycled == 0
        wait(slow)
        assert client.submit(tasks.total, slow[0]).result() == pytest.approx(tasks.make(0).sum())


def executes(worker):
    return len(worker.state.executing)


def test_a_worker_that_is_to_go_is_asked_whether_it_runs_anything(place):
    from shmstore.dask.compat.scheduler import runs_nothing

    with cluster(place, 1) as client:
        scheduler, (address,) = client.cluster.scheduler, workers(client)
        ask = lambda: client.sync(runs_nothing, scheduler, address)  # noqa: E731
        assert ask() is False, "it may begin something"
        gate = os.path.join(place.path, "gate")
        slow = client.submit(tasks.wait_for_file, gate)
        wait_until(lambda: on_workers(client, executes)[address], "it runs")
        client.sync(go, scheduler, address)
        wait_until(lambda: set(client.run(status).values()) == {"closing_gracefully"}, "it knows")
        assert ask() is False
        open(gate, "w").close()
        assert slow.result() and ask() is True


async def go(scheduler, address):
    await scheduler.retire_workers([address], close_workers=False, remove=False)


def status(dask_worker):
    return dask_worker.status.name


def test_a_worker_whose_process_is_being_replaced_does_not_end_its_nanny(place):
    """It would, where a heartbeat of it comes after the scheduler has removed it and
    before the nanny ends it."""
    from shmstore.dask.compat.scheduler import unmissed

    async def job(client, worker):
        scheduler = next(each for each in distributed.Scheduler._instances
                         if each.address == worker.scheduler.address)
        with unmissed(scheduler, worker.address):
            await scheduler.remove_worker(worker.address, stimulus_id="test", close=False)
            await worker.heartbeat()
            assert worker.status.name == "running"
        await worker.heartbeat()
        assert worker.status.name == "closed", "as ever"

    together(place, job, n=1)
