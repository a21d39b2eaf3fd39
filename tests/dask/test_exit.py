# SPDX-License-Identifier: Apache-2.0
"""A program that ends leaves nothing behind; so does a worker that is closed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tasks
from conftest import HERE, wait_until
from distributed import Status
from together import together

from shmstore.dask.tier import Tier

SCRIPT = """
import atexit, sys, time
import tasks
from distributed import Client, LocalCluster
import shmstore.dask

def main(kind):
    atexit.register(print, "atexit handlers ran", flush=True)
    if kind == "threads":
        options = dict(processes=False, protocol="tcp://", worker_class=shmstore.dask.Worker)
    else:
        options = dict(processes=True, worker_class=shmstore.dask.Nanny)
    global client, chunks
    client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None,
                                 memory_limit="1 GiB", **options))
    chunks = client.map(tasks.make, range(4))
    totals = [client.submit(tasks.total, *chunks, pure=False) for _ in range(4)]
    print(client.submit(tasks.total, *totals).result())

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_script_that_simply_ends(place, tmp_path, kind):
    """Its cluster is closed by an atexit handler of Dask's, when threads take no more work."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "SHMSTORE_PARTITION": place.path,
           "PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    command = [sys.executable, "-W", "ignore", str(script), kind]
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True,
                           timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout.split()[0]) == pytest.approx(
        4 * sum(tasks.make(i).sum() for i in range(4)))
    assert "atexit handlers ran" in ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    assert place.partition.stores() == [] and place.partition.usage().n_objects == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_a_program_that_is_ended_leaves_nothing(place, tmp_path, number):
    """Its workers lose their nanny, and end at once; their stores go
    before. Nobody else comes by."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + """
    print("made", flush=True)
    time.sleep(60)
""")
    env = {**os.environ, "SHMSTORE_PARTITION": place.path,
           "PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    with subprocess.Popen([sys.executable, "-W", "ignore", script, "left"], env=env, cwd=tmp_path,
                          stdout=subprocess.PIPE, text=True) as program:
        while "made" not in program.stdout.readline():
            assert program.poll() is None
        assert place.partition.usage().n_objects > 0
        program.send_signal(number)
        program.wait(60)
    wait_until(lambda: place.partition.stores() == [] and place.partition.usage().n_objects == 0,
               "the stores are gone")


def test_a_closed_worker_keeps_no_descriptor(place):
    """Without the help of the garbage collector."""

    def partition_descriptors() -> list[str]:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue
            if target.startswith(place.path):
                found.append(target)
        return sorted(found)

    async def job(client, a, b):
        x = client.submit(tasks.make, 1, workers=[a.address], key="x")
        await client.submit(tasks.total, x, workers=[b.address])
        during = partition_descriptors()
        await a.close()
        await b.close()
        assert a._exchange is not None and len(during) > len(before)
        assert partition_descriptors() == before

    before = partition_descriptors()
    gc.disable()
    try:
        together(place, job)
    finally:
        gc.enable()


@pytest.mark.parametrize("waits", ["close", "finished"])
def test_a_worker_ends_once_and_whoever_waits_for_it_sees_the_end(place, monkeypatch, waits):
    """A program and its lost connection both close it, for example; a process ends when its worker
    has finished."""
    ends, withdraw = [], Tier.withdraw

    def slow(tier):
        ends.append("begins")
        time.sleep(0.2)
        withdraw(tier)
        ends.append("ends")

    async def job(client, a, b):
        closing = asyncio.ensure_future(a.close())
        while "begins" not in ends:
            await asyncio.sleep(0.01)
        assert a.status is Status.closed
        await getattr(a, waits)()
        assert ends == ["begins", "ends"]
        await closing

    monkeypatch.setattr(Tier, "withdraw", slow)
    together(place, job)
    assert ends == 2 * ["begins", "ends"]  # of both workers


def test_a_worker_whose_event_loop_ends_meanwhile_leaves_no_store(place, monkeypatch):
    begun, close = threading.Event(), Tier.close

    def slow(tier):
        begun.set()
        time.sleep(0.2)
        close(tier)

    async def job(client, a, b):
        closing = asyncio.ensure_future(a.close())
        while not begun.is_set():
            await asyncio.sleep(0.01)
        a._ending.cancel()  # as asyncio.run() does at its end
        with pytest.raises(asyncio.CancelledError):
            await closing
        a._ending = asyncio.ensure_future(asyncio.sleep(0))  # the loop did not end: others wait yet
        assert a._exchange.store.closed and len(place.stores()) == 1

    monkeypatch.setattr(Tier, "close", slow)
    together(place, job)
