# SPDX-License-Identifier: Apache-2.0
"""Keys under the pressure of a host of 512 MiB that is made up: they wait at the gate of a real
daemon, have their level and their profile there, and those that are preempted run elsewhere, later,
without being held against anybody."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
from types import SimpleNamespace

import dask
import pytest
from conftest import PREFIX, Place, cluster, wait_until
from distributed import wait
from presstasks import MIB, Counter, hold, hold_until, pid_and_time, value

from shmstore.dask.pressure import Pressure, Running, level_of

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from daemon import ADMIN, Daemon  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")

CONFIG = """pressure {{ enabled = yes
 host-total = {total}MiB
 interval = 50ms
 preempt = shm
 preempt-grace = 300ms
 preempt-term = 30s }}
profile {{ private = conservative
 directory = none
 default-estimate = {estimate}MiB
 interval = 10ms }}
partition "{path}" {{ }}
"""
SETTINGS = {
    f"{PREFIX}.pressure": True,
    **{f"distributed.worker.memory.{key}": False
       for key in ("spill", "pause", "terminate", "target")},
}


class Host:
    """A partition and its daemon."""

    def __init__(self, total: int, estimate: int) -> None:
        self.place = Place(64 * MIB)
        self.daemon = Daemon(config=CONFIG.format(total=total, estimate=estimate,
                                                  path=self.place.path), http=False)
        self.before = os.environ.get("SHMSTORE_SOCKET")
        os.environ["SHMSTORE_SOCKET"] = self.daemon.socket

    def ask(self, *words: str) -> dict:
        result = subprocess.run([str(ADMIN), "--json", *words], env=self.daemon.env(),
                                capture_output=True, text=True, timeout=60, check=True)
        answer: dict = json.loads(result.stdout)
        return answer

    def gate(self) -> dict:
        return self.ask("gate")["gate"]

    def close(self) -> None:
        if self.before is None:
            del os.environ["SHMSTORE_SOCKET"]
        else:
            os.environ["SHMSTORE_SOCKET"] = self.before
        try:
            self.daemon.close()
        finally:
            self.place.remove()


@pytest.fixture
def make_host():
    made = []

    def make(total: int = 2048, estimate: int = 16) -> Host:
        made.append(Host(total, estimate))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.mark.parametrize(
    ("annotations", "level"),
    [
        (None, ("never", False)),
        ({}, ("never", False)),
        ({"retries": 0}, ("never", False)),
        ({"retries": 2}, ("auto", True)),
        ({"shmstore_preempt": "high"}, ("high", True)),
        ({"shmstore_preempt": "never", "retries": 3}, ("never", True)),
        ({"shmstore_preempt": True}, ("always", True)),
        ({"shmstore_preempt": False}, ("never", False)),
        ({"shmstore_preempt": 0}, (0, False)),
        ({"shmstore_preempt": 4}, (4, True)),
        ({"shmstore_preempt": "auto"}, ("auto", False)),
    ],
)
def test_the_level_of_a_key(annotations, level):
    assert level_of(annotations) == level


def test_a_notice_goes_with_its_task():
    """Its number comes never again, and what is said of it later is of no task here."""
    pressure = Pressure.__new__(Pressure)
    admitted = SimpleNamespace(task=7, created=lambda shared: None, done=lambda how: None)
    pressure._running, pressure._noticed = {7: Running("k", admitted)}, {7: None, 8: None}
    asyncio.run(pressure._done(pressure._running[7], None))
    assert not pressure._running and list(pressure._noticed) == [8]


def test_off_by_default(make_host):
    host = make_host()
    with cluster(host.place, 1, settings={**SETTINGS, f"{PREFIX}.pressure": False}) as client:
        assert client.submit(value, 3).result() == 3
        assert client.run(lambda dask_worker: dask_worker._pressure is None) == {
            w: True for w in client.scheduler_info()["workers"]}
    assert host.gate()["admitted"] == 0


def test_each_key_is_a_task_with_its_level_and_its_kind(make_host, tmp_path):
    host = make_host()
    with cluster(host.place, 2, settings=SETTINGS) as client:
        with dask.annotate(shmstore_preempt="low"):
            first = client.submit(hold_until, 1, str(tmp_path / "go"), pure=False)
        second = client.submit(hold_until, 1, str(tmp_path / "go"), pure=False, retries=2)
        wait_until(lambda: host.gate()["running"] == 2, "both run")
        assert {(t["level"], t["function"]) for t in host.gate()["tasks"]} == {
            ("LOW", "hold_until"), ("AUTO", "hold_until")}
        (tmp_path / "go").touch()
        wait([first, second])
        assert host.gate()["running"] == 0
        futures = client.map(hold, [40] * 8, [0.2] * 8, pure=False)
        assert client.gather(futures) == [40] * 8
        kinds = {k["func"]: k for user in host.ask("profile", "show")["users"]
                 for k in user["kinds"]}
        assert kinds["hold"]["private"]["n"] == 8 and kinds["hold"]["private"]["peak"] >= 38 * MIB
        counts = client.run(lambda dask_worker: dask_worker._pressure.counts)
        assert sum(c.get("fits", 0) + c.get("progress", 0) for c in counts.values()) == 10


def test_keys_wait_until_what_is_expected_of_them_fits(make_host, tmp_path):
    """Four workers, and four keys of a kind that nobody knows, of which the configuration expects
    300 MiB each: not all at once below 90 % of 1 GiB."""
    host = make_host(total=1024, estimate=300)
    with cluster(host.place, 4, settings=SETTINGS) as client:
        futures = client.map(hold_until, [10] * 4, [str(tmp_path / "go")] * 4, pure=False)
        wait_until(lambda: host.gate()["running"] + host.gate()["waiting"] == 4, "all have asked")
        g = host.gate()
        assert 1 <= g["running"] <= 3 and g["waiting"] >= 1, g
        (tmp_path / "go").touch()
        assert client.gather(futures) == [10] * 4


def test_a_key_without_a_profile_where_nobody_watches(place):
    with cluster(place, 1, settings=SETTINGS) as client:
        assert client.submit(value, 3).result() == 3
        ((counts),) = client.run(lambda dask_worker: dask_worker._pressure.counts).values()
        assert counts == {"off": 1}


def test_a_wrong_level_fails_its_key_only(make_host):
    host = make_host()
    with cluster(host.place, 1, settings=SETTINGS) as client:
        with dask.annotate(shmstore_preempt="sometimes"):
            wrong = client.submit(value, 1, pure=False)
        with pytest.raises(ValueError, match="sometimes"):
            wrong.result()
        assert client.submit(value, 2).result() == 2


def test_a_worker_that_has_actors_is_not_ended(make_host, tmp_path):
    host = make_host()
    with cluster(host.place, 1, settings=SETTINGS) as client:
        counter = client.submit(Counter, actor=True).result()
        with dask.annotate(shmstore_preempt="always"):
            key = client.submit(hold_until, 1, str(tmp_path / "go"), pure=False)
        wait_until(lambda: host.gate()["running"] == 1, "it runs")
        assert [t["level"] for t in host.gate()["tasks"]] == ["NEVER"]
        (tmp_path / "go").touch()
        wait(key)
        assert counter.add(2).result() == 2
        del counter
        wait_until(lambda: client.run(lambda dask_worker: len(dask_worker.state.actors)) == {
            w: 0 for w in client.scheduler_info()["workers"]}, "it has gone")
        (tmp_path / "go").unlink()
        with dask.annotate(shmstore_preempt="always"):
            key = client.submit(hold_until, 1, str(tmp_path / "go"), pure=False)
        wait_until(lambda: host.gate()["running"] == 1, "it runs")
        assert [t["level"] for t in host.gate()["tasks"]] == ["ALWAYS"]
        (tmp_path / "go").touch()
        wait(key)


def test_a_preempted_key_runs_elsewhere_and_later(make_host, tmp_path):
    """Its worker is ended; allowed-failures is 0, and it does not fail; the NEVER one goes on; the
    next attempt begins after the delay."""
    host = make_host(total=1024, estimate=1)
    with cluster(host.place, 3, settings={**SETTINGS, "distributed.scheduler.allowed-failures":
                                              0}) as client:
        wait_until(lambda: len(host.ask("mem", "--daemon")["memory"]["processes"]) >= 3,
                   "all are seen")
        used = host.ask("mem", "--daemon")["memory"]["used"]
        room = 1024 - used // MIB
        with dask.annotate(shmstore_preempt="high"):
            victim = client.submit(pid_and_time, room // 3, str(tmp_path / "tries"),
                                   str(tmp_path / "go"), pure=False)
        wait_until(lambda: (tmp_path / "tries").exists(), "it has begun")
        never = client.submit(hold_until, room * 2 // 3 + 30, str(tmp_path / "go"), pure=False)
        wait_until(lambda: host.gate()["preemption"]["gone"] == 1, "it was preempted")
        (tmp_path / "go").touch()
        assert never.result() == room * 2 // 3 + 30
        pid, begun = victim.result()
        tries = [line.split() for line in (tmp_path / "tries").read_text().splitlines()]
        assert len(tries) == 2 and int(tries[0][0]) != int(tries[1][0]) == pid
        with host.daemon.wire() as wire:
            (told,) = [event["time"] for event in wire.query("events")["events"]
                       if event["event"] == "preempt" and event["step"] == "term"]
        assert begun - told >= 1, "it waits out its delay of a second"
        assert host.gate()["preemption"]["kills"] == 0, "it left in order"


def test_a_worker_that_waits_closes(make_host, tmp_path):
    """Keys that stand at the gate hold up nobody's end."""
    host = make_host(total=256, estimate=200)
    begun = time.monotonic()
    with cluster(host.place, 2, settings=SETTINGS) as client:
        futures = [client.submit(hold_until, 1, str(tmp_path / "go"), pure=False) for _ in range(4)]
        wait_until(lambda: host.gate()["waiting"] >= 1, "one waits")
        (tmp_path / "go").touch()
        del futures
    assert time.monotonic() - begun < 40
    wait_until(lambda: host.gate()["running"] == host.gate()["waiting"] == 0,
               "nothing is left of them")
