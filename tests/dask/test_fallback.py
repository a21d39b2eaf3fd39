# SPDX-License-Identifier: Apache-2.0
"""Values that cannot be shared go the ordinary way, the log says so, and the job ends right."""

from __future__ import annotations

import contextlib
import logging
import os

import distributed
import pytest
import tasks
from conftest import PREFIX, Place, cluster, dask_worker, fallbacks, on_workers, wait_until, workers
from distributed import Client
from distributed.worker_state_machine import GatherDepSuccessEvent
from tasks import MIB
from together import together

import shmstore.dask
from shmstore import Ticket
from shmstore.dask.config import Fallbacks
from shmstore.dask.handle import Handle


def all_pairs(client, n=6, size=4 * MIB):
    chunks = [client.submit(tasks.make, i, size, key=f"chunk-{i}") for i in range(n)]
    dots = [client.submit(tasks.dot, a, b, pure=False) for a in chunks for b in chunks]
    data = [tasks.make(i, size) for i in range(n)]
    assert client.gather(dots) == pytest.approx([tasks.dot(a, b) for a in data for b in data])
    return chunks


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a small tmpfs")
def test_a_full_partition_keeps_values_private_and_says_so_once(memory_limit):
    place = Place(size=10 * MIB)
    try:
        settings = {f"{PREFIX}.tier.enabled": False}
        with cluster(place, 2, memory_limit=memory_limit, settings=settings) as client:
            chunks = all_pairs(client, n=12)
            found = fallbacks(client)
            assert any(reasons.get("partition-full") for reasons in found.values())
            assert all(set(reasons) <= {"partition-full"} for reasons in found.values()), found
            for address, log in client.get_worker_logs().items():
                lines = [text for _, text in log if "reason=partition-full" in text]
                assert len(lines) <= 1, lines
                assert all("errno=ENOSPC" in line and "key=" in line for line in lines)
            del chunks
            wait_until(lambda: place.partition.usage().n_objects == 0, "keys released")
            all_pairs(client, n=2)
    finally:
        place.remove()


def test_without_a_partition_workers_are_as_on_stock(place, tmp_path):
    if _is_tmpfs(tmp_path):
        pytest.skip("no directory on a disk here")
    with cluster(place, 2, settings={f"{PREFIX}.partition": str(tmp_path)}) as client:
        chunks = all_pairs(client)
        assert all(reasons == {"no-store": 1} for reasons in fallbacks(client).values())
        logs = [text for log in client.get_worker_logs().values() for _, text in log]
        assert sum("reason=no-store" in text and "errno=ENOTSUP" in text for text in logs) == 2


def _is_tmpfs(path) -> bool:
    with contextlib.suppress(OSError):
        shmstore.Partition(path, create=True)
        return True
    return False


def test_stock_workers_and_ours_in_one_cluster(place):
    with cluster(place, 2, memory_limit=0) as client, dask_worker(
        client.scheduler.address, "--no-nanny", "--name", "stock", "--memory-limit", "0"
    ):
        client.wait_for_workers(3, timeout=60)
        chunks = all_pairs(client)
        assert set(client.run(lambda dask_worker: type(dask_worker).__module__).values()) == {
            "distributed.worker",
            "shmstore.dask.worker",
        }
        assert place.partition.usage().n_objects > 0
        ours = [w for w, info in client.scheduler_info()["workers"].items()
                if info["name"] != "stock"]
        stock = [w for w in workers(client) if w not in ours]
        x = client.submit(tasks.make, 1, workers=stock, key="x")
        y = client.submit(tasks.make, 2, workers=ours[:1], key="y")
        for w in (*ours, *stock):
            assert client.submit(tasks.total, x, y, workers=[w],
                                 pure=False).result() == pytest.approx(
                                     tasks.make(1).sum() + tasks.make(2).sum()
            )


def test_workers_of_two_partitions_in_one_cluster(place):
    other = Place()
    try:
        with cluster(place, 1, memory_limit=0) as client, dask_worker(
            client.scheduler.address,
            *("--worker-class", "shmstore.dask.Worker", "--memory-limit", "0", "--no-nanny"),
            config={f"{PREFIX}.partition": other.path},
        ):
            client.wait_for_workers(2, timeout=60)
            chunks = all_pairs(client)
            assert place.partition.usage().n_objects == other.partition.usage().n_objects == 0
            assert not any(fallbacks(client).values())
    finally:
        other.remove()


@pytest.mark.parametrize("limit", ["1 GiB", 0])
def test_a_ticket_that_cannot_be_used_is_asked_for_again(place, limit):
    """The donor's leases go before the receiver comes: the value travels by socket."""
    with cluster(place, 2, memory_limit=limit) as client:
        a, b = workers(client)
        on_workers(client, _spoil_tickets)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
            tasks.make(1).sum())
        assert fallbacks(client)[b] == {"adopt-failed": 1}
        y = client.submit(tasks.make, 2, workers=[a], key="y")
        y.result()
        client.replicate([y])
        assert len(client.who_has([y])["y"]) == 2
        assert fallbacks(client)[b] == {"adopt-failed": 2}


def _spoil_tickets(worker):
    handoff = worker._exchange.handoff

    def spoiled(key, entry):
        handle = handoff(key, entry)
        handle.revoke()
        return handle

    worker._exchange.handoff = spoiled


def test_the_log_is_limited_and_counts_what_it_leaves_out(caplog):
    with caplog.at_level(logging.WARNING, "distributed.worker.shared"):
        notes = Fallbacks(interval=3600, who="me")
        for i in range(100):
            notes.note("adopt-failed", OSError(116, "stale"), f"k{i}")
        assert [r.getMessage() for r in caplog.records if "adopt-failed" in r.getMessage()] == [
            caplog.records[0].getMessage()]
        assert ("key='k0'" in caplog.text and "errno=ESTALE" in caplog.text and
                "worker=me" in caplog.text)
        caplog.clear()
        for _ in range(3):
            notes.note("partition-full", OSError(28, "full"), "k")
        assert caplog.text.count("partition-full") == 1
        assert notes.counts == {"adopt-failed": 100, "partition-full": 3}
        tiny = Fallbacks(interval=0, who="me")
        tiny.note("partition-full", OSError(28, "full"), "k")
        assert caplog.text.count("partition-full") == 2
        tiny.full_is_no_news()
        tiny.note("partition-full", OSError(28, "full"), "k")
        assert caplog.text.count("partition-full") == 2 and tiny.counts == {"partition-full": 2}


def test_configuration_that_makes_no_sense_is_refused():
    import dask

    from shmstore.dask.config import Settings

    for key, value in (("map", "rw"), ("min-size", "many"), ("lease", "0s"), ("share", "never"),
                       ("share", True), ("max-maps", 0)):
        with dask.config.set({f"{PREFIX}.{key}": value}), pytest.raises(ValueError):
            Settings()
    assert dask.config.get(f"{PREFIX}.enabled") is None
    assert Settings().min_size == 65536 and Settings().cow


def test_a_worker_with_data_of_its_users_own_shares_nothing(place):
    class Own(dict):
        pass

    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0) as s:
            async with shmstore.dask.Worker(s.address, data=Own(), nthreads=1) as a, Client(
                    s.address, asynchronous=True) as c:
                assert type(a.data) is Own and a._exchange is None
                assert await c.submit(tasks.total, tasks.make(1)) == pytest.approx(
                    tasks.make(1).sum())

    import asyncio

    asyncio.run(go())


def cannot_adopt(worker, monkeypatch):
    monkeypatch.setattr(worker._exchange, "adopt", lambda *arguments, **options: False)


def test_what_cannot_be_adopted_is_not_lost_where_its_donor_is_busy(place, monkeypatch):
    stock, asked = shmstore.dask.worker.ask_worker, []

    async def ask(rpc, keys, worker, who):
        asked.append(keys)
        return {"status": "busy"} if len(asked) == 1 else await stock(rpc, keys, worker, who)

    async def job(client, a, b):
        cannot_adopt(b, monkeypatch)
        monkeypatch.setattr(shmstore.dask.worker, "ask_worker", ask)
        x = client.submit(tasks.make_counted, place.path, 1, workers=[a.address], key="x")
        total = client.submit(tasks.total, x, workers=[b.address])
        assert await total == pytest.approx(tasks.make(1).sum())
        assert asked == [["x"], ["x"]], "once more, a moment later"
        assert tasks.counted(place.path) == 1, "Dask has not taken it for lost"

    together(place, job)


@pytest.mark.parametrize("answer", [{"status": "busy"}, ZeroDivisionError("no answer today")],
                         ids=["busy", "error"])
def test_what_does_not_come_after_all_is_no_longer_held_for_siblings(place, monkeypatch, answer):
    async def ask(*arguments):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def gather(keys):
        handle = Handle(Ticket("/nowhere", 0, 0), MIB)
        return GatherDepSuccessEvent(worker="tcp://far", total_nbytes=2 * MIB, stimulus_id="test",
                                     data={"came": 1, "linked": handle})

    async def job(client, a):
        cannot_adopt(a, monkeypatch)
        monkeypatch.setattr(shmstore.dask.worker, "ask_worker", ask)
        monkeypatch.setattr(distributed.Worker, "gather_dep",
                            lambda self, worker, keys, **options: gather(keys))
        assert a._crossings.claim("came")
        event = await a.gather_dep("tcp://far", ["came", "linked"], 2 * MIB, stimulus_id="test")
        assert not isinstance(event, GatherDepSuccessEvent) and not a._crossings._held

    together(place, job, n=1)


def test_what_dask_could_not_gather_is_said_beside_what_we_could_not(place, monkeypatch):
    async def ask(*arguments):
        return {}

    async def job(client, a, b):
        cannot_adopt(b, monkeypatch)
        x = client.submit(tasks.make, 1, workers=[a.address], key="x")
        await distributed.wait(x)
        await a._export(["x"])
        monkeypatch.setattr(shmstore.dask.worker, "ask_workers", ask)
        answer = await b.gather({"x": [a.address], "gone": [a.address]})
        assert answer["status"] == "partial-fail" and set(answer["keys"]) == {"x", "gone"}

    together(place, job)
