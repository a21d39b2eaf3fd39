# SPDX-License-Identifier: Apache-2.0
"""What a worker changes in its process: garbage is not looked for in libraries, threads give way sooner, descriptors have room."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading

import pytest
from conftest import cluster, on_workers, wait_until
from together import together

from shmstore.dask import processors


def frozen():
    return gc.get_freeze_count(), len(gc.get_objects())


def keys(worker):
    return list(worker.data)


def inc(x):
    return x + 1


def descriptor_table():
    """For how many there is room now."""
    return int(re.search(r"FDSize:\s+(\d+)", open("/proc/self/status").read())[1])


def test_libraries_are_left_out_once_the_first_task_comes(place):
    with cluster(place, n=1) as client:
        ((before, objects),) = client.run(frozen).values()
        value = client.scatter([1], hash=False)[0]
        assert client.submit(inc, value).result() == 2 and next(iter(client.run(frozen).values()))[0] == before, "it has values"
        del value
        wait_until(lambda: not any(on_workers(client, keys).values()), "the worker has no values")
        assert client.submit(inc, 1).result() == 2
        ((left_out, left),) = client.run(frozen).values()
        assert left_out > before + objects // 2 and left < objects // 2
        assert client.submit(inc, 2).result() == 3
        ((again, _),) = client.run(frozen).values()
        assert again <= left_out, "what comes later is looked at as ever"


def test_a_process_with_others_in_it_is_left_alone(place):
    interval = sys.getswitchinterval()

    async def job(client, a, b):
        before = gc.get_freeze_count()
        assert await client.submit(inc, 1) == 2
        assert gc.get_freeze_count() <= before and sys.getswitchinterval() == interval

    together(place, job)


def test_a_worker_of_a_nanny_waits_for_the_interpreter_for_a_millisecond_at_most(place):
    with cluster(place, n=1) as client:
        assert set(client.run(sys.getswitchinterval).values()) == {0.001}


def test_there_is_room_for_descriptors_from_the_beginning(place):
    """The table is a process's that has never had many of them."""
    with cluster(place, n=1) as client:
        assert min(client.run(descriptor_table).values()) >= 4096


def run_on(processor, stop):
    """A thread that wants nothing but that processor."""
    os.sched_setaffinity(0, {processor})
    while not stop.is_set():
        pass


def test_processors_are_counted():
    """One that this process shares with another, which wants all of it, too."""
    processor, stop = min(os.sched_getaffinity(0)), threading.Event()
    rival = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"])
    thread = threading.Thread(target=run_on, args=(processor, stop))
    thread.start()
    try:
        account, looks = processors.Processors(), []

        def both():
            looks.append(account.look())
            return any(look["ran"] > 0.2 for look in looks) and any(look["waited"] > 0.2 for look in looks)

        wait_until(both, "its thread had the processor, and waited for it")
        assert all(0 <= look["ran"] and 0 <= look["waited"] and 0 <= look["idle"] <= 1 and look["processors"] >= 1 for look in looks)
    finally:
        stop.set()
        thread.join()
        rival.kill()
        rival.wait()


@pytest.mark.parametrize("path", ["_THREADS", "_MACHINE"])
def test_what_the_kernel_does_not_tell_of_processors_is_left_out(monkeypatch, tmp_path, path):
    """A container may hide it; the worker shares its values all the same."""
    monkeypatch.setattr(processors, path, str(tmp_path) if path == "_THREADS" else str(tmp_path / "none"))
    account = processors.Processors()
    assert account.look() == {} and account.look() == {}


def test_workers_say_what_they_have_of_the_processors(place):
    with cluster(place, n=1) as client:

        def said():
            (info,) = client.scheduler_info()["workers"].values()
            return info["metrics"].get("shmstore", {}).keys() >= {"processors", "ran", "waited", "idle"}

        wait_until(said, "with a heartbeat")
