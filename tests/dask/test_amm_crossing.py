# SPDX-License-Identifier: Apache-2.0
"""A value of another host crosses the network once for all workers of this one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tasks
from ammclusters import MIB, amm
from conftest import PREFIX, Place, cluster, dask_worker, on_workers, wait_until, workers
from distributed import wait
from distributed.worker_state_machine import GatherDepSuccessEvent

from shmstore.dask.handle import Crossings


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    a, b = Crossings("host", "tcp://a"), Crossings("host", "tcp://b")
    yield a, b
    a.close()
    b.close()
    assert os.listdir(tmp_path) == []


def test_one_fetches_and_the_other_learns_from_whom(two):
    a, b = two
    assert a.claim("x") and a.claim("x") and not b.claim("x") and b.claim("y")

    async def go():
        waiting = asyncio.ensure_future(b.wait("x", 10))
        await asyncio.sleep(0.05)
        assert not waiting.done() and await b.wait("x", 0.02) is None, "not for ever"
        a.release(["x", "not held"])
        return await waiting

    assert asyncio.run(go()) == "tcp://a"
    assert b.claim("x"), "it did not come: free again"


def test_who_comes_late_learns_who_has_it(two):
    a, b = two
    assert a.claim("x")
    a.release(["x"], arrived=True)
    assert not b.claim("x") and asyncio.run(b.wait("x", 1)) == "tcp://a"
    assert a.claim("x"), "it has lost it, and fetches it again"
    a.release(["x"], arrived=True)
    b.claim_anyway("x")  # a has it no more
    assert b.claim("x")
    b.release(["x"], arrived=True)
    assert not a.claim("x")


def test_of_those_who_find_it_gone_one_fetches_it(two, tmp_path):
    a, b = two
    c = Crossings("host", "tcp://c")
    assert a.claim("x")
    a.release(["x"], arrived=True)
    for late in (b, c):
        assert not late.claim("x")
        late.claim_anyway("x", "tcp://a")  # it said that it has it no more
    assert b.claim("x") and not c.claim("x"), "not both"
    b.release(["x"], arrived=True)
    assert not c.claim("x") and asyncio.run(c.wait("x", 1)) == "tcp://b"
    c.claim_anyway("x", "tcp://b")
    assert c.claim("x"), "it is waited for twice, not for ever"
    c.close()


def test_a_lock_ends_with_its_process(two):
    _, b = two
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        Crossings("host", "tcp://b").claim("x")
        os.write(done, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    assert not b.claim("x")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert b.claim("x")


def test_who_starts_removes_what_killed_workers_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    live, left, young = Crossings("live", "tcp://a"), Crossings("left", "tcp://a"), Crossings(
        "young", "tcp://a")
    places = {name: Path(c.directory) for name, c in (("live", live), ("left", left),
                                                      ("young", young))}
    for c in (live, left, young):
        assert c.claim("x")
    for name in ("full", "link", "foreign"):
        places[name] = tmp_path / ("shmstore-crossing-" + hashlib.blake2b(
            name.encode(), digest_size=12).hexdigest())
    places["other"] = tmp_path / "shmstore-crossing-of-mine"
    (tmp_path / "aim").mkdir()
    (tmp_path / "aim" / "x").touch()
    places["link"].symlink_to(tmp_path / "aim")
    for name in ("full", "foreign", "other"):
        places[name].mkdir(0o700)
    (places["full"] / "not ours").mkdir()
    if os.geteuid() == 0:
        os.chown(places["foreign"], 65534, -1)
    else:
        places["foreign"].rmdir()
    for c in (left, young):  # as if their workers had been killed
        for fd in (c._fd, *c._held.values()):
            os.close(fd)
        c._fd = None
        c._held.clear()
    for name in set(places) - {"young", "link"}:
        if places[name].exists():
            os.utime(places[name], (0, 0))
    os.utime(tmp_path / "aim", (0, 0))
    there = set(os.listdir(tmp_path))
    Crossings("new", "tcp://b").close()
    assert there - set(os.listdir(tmp_path)) == {places["left"].name}
    assert (tmp_path / "aim" / "x").exists()
    assert live.claim("y") and (places["live"] / os.path.basename(live._path("y"))).exists(), (
        "a worker that asked for nothing in an hour has its own")
    live.close()


class Sharer:
    """The part of a worker that Crossings uses. The keys that it fetches from
    another host are in `fetched`."""

    bandwidth, rpc = 100e6, None

    def __init__(self, crossings, who_has, peers):
        tasks_of = {key: SimpleNamespace(nbytes=MIB, who_has=set(who))
                    for key, who in who_has.items()}
        self.state, self.crossings, self.peers, self.fetched = SimpleNamespace(
            tasks=tasks_of), crossings, peers, []

    def _is_peer(self, address):
        return address in self.peers

    async def _fetch(self, address, keys, total_nbytes):
        await asyncio.sleep(0.05)
        self.fetched += keys
        return GatherDepSuccessEvent(worker=address, total_nbytes=total_nbytes,
                                     data={key: "fetched" for key in keys}, stimulus_id="test")

    async def gather(self, *keys):
        """As the worker does it; a sibling can then ask for what came."""
        nbytes = MIB * len(keys)
        event = await self.crossings.gather(self, "tcp://far",
                                            partial(self._fetch, "tcp://far", total_nbytes=nbytes),
                                            keys, nbytes)
        self.crossings.release(event.data, arrived=True)
        return event.data


@pytest.fixture
def siblings_have(monkeypatch):
    """{address: keys}: what siblings answer with."""
    have = {}

    async def ask(rpc, keys, address, who):
        if address not in have:
            raise OSError(f"nobody listens at {address}")
        return {"status": "OK", "data": {key: f"of {address}" for key in keys
                                         if key in have[address]}}

    monkeypatch.setattr("shmstore.dask.handle.ask_worker", ask)
    return have


def test_what_a_sibling_has_is_not_fetched_though_dask_asks_another_host_for_it(two, siblings_have):
    """It does where a request to the sibling is under way."""
    siblings_have["tcp://b"] = ["x", "z"]
    a = Sharer(two[0], {"x": ["tcp://far", "tcp://b"], "y": ["tcp://far"],
                        "z": ["tcp://c", "tcp://b", "tcp://far"], "gone": ["tcp://b"]}, {"tcp://b"})
    assert asyncio.run(a.gather("x", "y", "z", "gone")) == {"x": "of tcp://b", "y": "fetched",
                                                            "z": "of tcp://b", "gone": "fetched"}
    assert sorted(a.fetched) == ["gone", "y"]


def test_of_those_who_find_that_the_fetcher_died_one_fetches(two, siblings_have):
    dead = Crossings("host", "tcp://dead")
    assert dead.claim("x")
    dead.release(["x"], arrived=True)
    siblings_have.update({"tcp://a": ["x"], "tcp://b": ["x"]})
    a, b = (Sharer(crossings, {"x": ["tcp://far"]}, {"tcp://a", "tcp://b"}) for crossings in two)

    def find_out_together(crossings):
        inner = crossings.wait

        async def wait(key, seconds):
            found = await inner(key, seconds)
            await asyncio.sleep(0.01)
            return found

        crossings.wait = wait

    async def both():
        return await asyncio.gather(a.gather("x"), b.gather("x"))

    find_out_together(two[0])
    find_out_together(two[1])

    found = asyncio.run(both())
    assert a.fetched + b.fetched == ["x"], "once"
    assert sorted(data["x"].partition(" ")[0] for data in found) == ["fetched", "of"]
    dead.close()


def test_without_a_directory_everybody_fetches(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    a, b = Crossings("host", "tcp://a"), Crossings("host", "tcp://b")
    assert a.claim("x") and b.claim("x")


@pytest.fixture(scope="module")
def two_hosts():
    """A client, the addresses of three workers of one host, and that of one of another, which
    counts what it sends to those."""
    place, other = Place(), Place()
    try:
        arguments = ("--worker-class", "shmstore.dask.Worker", "--no-nanny", "--memory-limit",
                     "2 GiB")
        with cluster(place, 3, settings=amm()) as client, dask_worker(
                client.scheduler.address, *arguments, config={f"{PREFIX}.partition": other.path}):
            client.wait_for_workers(4, timeout=60)
            here = [worker.address for worker in client.cluster.scheduler.workers.values()
                    if worker.nanny]
            (there,) = set(workers(client)) - set(here)
            on_workers(client, count_sent)
            on_workers(client, be_patient)
            yield client, here, there
    finally:
        place.remove()
        other.remove()


def test_in_a_cluster_of_two_hosts(two_hosts):
    """Three workers of one host ask at the same time for what one of the other has."""
    client, here, there = two_hosts
    before = on_workers(client, sent)[there]
    chunks = [client.submit(tasks.make, i, 8 * MIB, key=f"x-{i}", workers=[there])
              for i in range(6)]
    wait(chunks)
    sums = [client.submit(tasks.total, *chunks, workers=[address], pure=False) for address in here]
    expected = sum(float(np.sum(tasks.make(i, 8 * MIB))) for i in range(6))
    assert client.gather(sums) == pytest.approx([expected] * 3)
    assert on_workers(client, sent)[there] - before == 6, "each once"
    wait_until(lambda: all(not held for held in on_workers(client, holds).values()),
               "nothing is held")


def test_a_value_whose_task_is_stolen_while_it_crosses_crosses_once(two_hosts, tmp_path):
    client, (victim, thief, _), there = two_hosts
    before, gate = on_workers(client, sent)[there], str(tmp_path / "gate")
    chunk = client.submit(tasks.make, 1, 8 * MIB, key="stolen-input", workers=[there])
    wait(chunk)
    on_workers(client, send_when, gate)
    total = client.submit(tasks.total, chunk, key="stolen", workers=[victim, thief],
                          allow_other_workers=True)
    wait_until(lambda: client.run_on_scheduler(runs_on, "stolen") is not None, "it is somewhere")
    if client.run_on_scheduler(runs_on, "stolen") == thief:
        victim, thief = thief, victim
    wait_until(lambda: on_workers(client, state_of, "stolen-input")[victim] == "flight",
               "it crosses")
    client.run_on_scheduler(steal, "stolen", victim, thief)
    wait_until(lambda: on_workers(client, state_of, "stolen-input")[thief] == "flight",
               "the thief asks for it")
    assert on_workers(client, state_of, "stolen-input")[victim] == "cancelled"
    Path(gate).touch()
    assert total.result() == pytest.approx(tasks.make(1, 8 * MIB).sum())
    assert on_workers(client, sent)[there] - before == 1, "once"
    wait_until(lambda: set(client.who_has([chunk])["stolen-input"]) == {there, victim, thief},
               "what came is a replica as others are, once the victim has said so")
    wait_until(lambda: all(not held for held in on_workers(client, holds).values()),
               "nothing is held")
    del chunk, total
    wait_until(lambda: set(on_workers(client, state_of, "stolen-input").values()) == {None},
               "it goes as any other")


def count_sent(worker):
    worker.sent, worker.gate, inner = 0, None, worker.get_data

    async def get_data(comm, keys=None, who=None, **kwargs):
        if keys and who and not worker._is_peer(who):
            worker.sent += len(keys)
            while worker.gate and not os.path.exists(worker.gate):
                await asyncio.sleep(0.01)
        return await inner(comm, keys=keys, who=who, **kwargs)

    worker.handlers["get_data"] = get_data


def sent(worker):
    return worker.sent


def holds(worker):
    return list(worker._crossings._held)


def be_patient(worker):
    """A busy machine may take longer than what a sibling is waited for."""
    import shmstore.dask.handle

    shmstore.dask.handle._WAIT = 600.0


def send_when(worker, gate):
    """Not before that file is there."""
    worker.gate = gate


def state_of(worker, key):
    task = worker.state.tasks.get(key)
    return task.state if task is not None else None


def runs_on(key, dask_scheduler):
    task = dask_scheduler.tasks.get(key)
    return (task.processing_on.address if task is not None and task.processing_on is not None
            else None)


def steal(key, victim, thief, dask_scheduler):
    workers = dask_scheduler.workers
    dask_scheduler.extensions["stealing"].move_task_request(dask_scheduler.tasks[key],
                                                            workers[victim], workers[thief])
