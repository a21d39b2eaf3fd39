# SPDX-License-Identifier: Apache-2.0
"""client.shmstore: wishes, listings; users' own policies; moves to who has room;
workers that have just come."""

from __future__ import annotations

import os
import signal
import time

import pytest
import tasks
from ammclusters import MIB, amm, conductor, replicas
from conftest import PREFIX, Place, cluster, dask_worker, wait_until, workers
from distributed import wait

import shmstore.dask

ARGUMENTS = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit", "1 GiB")


@pytest.fixture
def other():
    place = Place()
    yield place
    place.remove()


def test_a_wish_stands_until_its_future_is_gone(place, other):
    settings = amm("HostReduceReplicas", start=True, interval="200ms")
    config = {f"{PREFIX}.partition": other.path}
    with cluster(place, 2, settings=settings) as client, dask_worker(
            client.scheduler.address, *ARGUMENTS, config=config):
        client.wait_for_workers(3, timeout=60)
        here = [worker.address for worker in client.cluster.scheduler.workers.values()
                if worker.nanny]
        x = client.submit(tasks.make, 1, key="x", workers=here)
        y = client.submit(tasks.make, 2, key="y", workers=here)
        wait([x, y])
        client.shmstore.replicate([x], n=3, hosts=2)
        wait_until(lambda: replicas(client, [x, y]) == {"x": 3, "y": 1}, "as wished")
        names = [policy.policy for policy in client.shmstore.policies()]
        assert names == ["Wishes(1)", "HostReduceReplicas(linger=10.0)"], "in the order of ranks"
        time.sleep(1)
        assert replicas(client, [x]) == {"x": 3}, "HostReduceReplicas keeps the other host's, too"
        victim = next(address for address in here if address in client.who_has([x])["x"])
        os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
        wait_until(lambda: victim not in workers(client), "dead")
        wait_until(lambda: replicas(client, [x]) == {"x": 3}, "once more")
        wait_until(lambda: client.shmstore.figures()["coming"] == 0, "all have arrived")
        figures = client.shmstore.figures()
        assert figures["copies"] + figures["links"] == 3 and figures["lost"] == 0
        del x
        wait_until(lambda: [policy.policy for policy in client.shmstore.policies()] == [
            "HostReduceReplicas(linger=10.0)"], "withdrawn with it")


def test_a_wish_for_named_workers_and_its_withdrawal(place):
    with cluster(place, 3, settings=amm(start=True, interval="200ms")) as client:
        x = client.submit(tasks.make, 1, key="x", workers=[0])
        wait(x)
        info = client.scheduler_info()["workers"]
        second = next(address for address, worker in info.items() if worker["name"] == 1)
        client.shmstore.replicate(x, n=2, hosts=["0", "1"])
        wait_until(lambda: second in client.who_has([x])["x"], "there")
        assert replicas(client, [x]) == {"x": 2}
        assert client.shmstore.withdraw([x]) == 1 and client.shmstore.withdraw([x]) == 0
        wait_until(lambda: client.shmstore.policies() == [], "nothing left to do")
        with pytest.raises(ValueError, match="1 or more"):
            client.shmstore.replicate(x, n=0)
        client.amm.stop()
        with pytest.raises(RuntimeError, match=r"client\.amm\.start"):
            client.shmstore.replicate(x)


def test_the_report_lists_policies(place):
    settings = amm({"class": "Insurance", "period": "1s"}, "amm_example.Broken", start=True,
                   interval="200ms")
    with cluster(place, 2, settings=settings) as client:
        x = client.submit(tasks.make, 1, key="x")
        wait_until(lambda: replicas(client, [x]) == {"x": 2}, "a policy that fails stops no other")
        wait_until(lambda: client.shmstore.figures()["links"] == 1, "counted")
        found = shmstore.dask.report(client)
        insurance, broken = found.policies
        assert (insurance.policy.startswith("Insurance(") and insurance.period == 1.0 and
                insurance.accepted == 1 and insurance.failures == 0)
        assert broken.failures >= 1
        assert ("policy Insurance(" in str(found) and "links 1" in str(found) and
                "Insurance(" in found._repr_html_())
        (host,) = client.shmstore.hosts()
        assert (host["workers"] == 2 and host["shared"] and host["replicas"] == 2 and
                not host["pressed"])


def test_a_users_own_policy(place, other):
    settings = amm({"class": "amm_example.Pinned", "prefix": "pin"}, "HostReduceReplicas",
                   "amm_example.Once", start=True, interval="200ms")
    with cluster(place, 1, settings=settings) as client:
        with dask_worker(client.scheduler.address, *ARGUMENTS,
                         config={f"{PREFIX}.partition": other.path}):
            client.wait_for_workers(2, timeout=60)
            futures = [client.submit(tasks.make, i, key=key)
                       for i, key in enumerate(["pinned", "other"])]
            wait_until(lambda: replicas(client, futures) == {"pinned": 2, "other": 1},
                       "on both hosts")
            time.sleep(0.5)
            assert replicas(client, futures) == {"pinned": 2, "other": 1}
            assert "Once()" not in [policy.policy for policy in client.shmstore.policies()], (
                "it has removed itself")


def test_a_worker_short_of_memory_moves_values_to_another_host(place):
    """Both are workers that share nothing: what they have is private."""
    import distributed

    settings = {
        **amm({"class": "Offload", "high": 0.4, "low": 0.35}, start=True, interval="200ms"),
        "distributed.worker.memory.target": 0.9,
        "distributed.worker.memory.spill": 0.92,
        "distributed.worker.memory.recent-to-old-time": "500ms",
    }
    with cluster(place, 2, worker_class=distributed.Nanny, memory_limit="600 MiB",
                 settings=settings) as client:
        first, second = workers(client)
        futures = [client.submit(tasks.make, i, 16 * MIB, key=f"x-{i}", workers=[first],
                                 allow_other_workers=False) for i in range(14)]
        wait(futures)
        wait_until(lambda: any(who == (second,) for who in client.who_has(futures).values()),
                   "moved")
        wait_until(lambda: all(len(who) == 1 for who in client.who_has(futures).values()),
                   "moved, not doubled")
        assert [(f.result() == tasks.make(i, 16 * MIB)).all() for i, f in enumerate(futures)] == [
            True] * 14


def test_a_new_worker_links_what_tasks_wait_for(place):
    config = {f"{PREFIX}.partition": place.path}
    with cluster(place, 1, settings=amm("Newcomers", start=True, interval="200ms")) as client:
        x, y = client.submit(tasks.make, 1, key="x"), client.submit(tasks.make, 2, key="y")
        wait([x, y])
        wait_until(lambda: conductor(client).policies()[0].runs >= 1, "it has begun")
        late = client.submit(time.sleep, 600, key="late")
        use = client.submit(tasks.total_after, x, late, 1, key="use")
        with dask_worker(client.scheduler.address, *ARGUMENTS, config=config):
            client.wait_for_workers(2, timeout=60)
            wait_until(lambda: replicas(client, [x]) == {"x": 2}, "linked")
            assert replicas(client, [y]) == {"y": 1}, "nobody waits for it"
        late.cancel()
        use.cancel()
