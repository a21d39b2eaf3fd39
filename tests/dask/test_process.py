# SPDX-License-Identifier: Apache-2.0
"""A worker's changes to its process: garbage is not looked for in libraries, and descriptors have
room."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import threading

import pytest
from conftest import cluster, on_workers, wait_until
from together import together



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
        assert (client.submit(inc, value).result() == 2 and
                next(iter(client.run(frozen).values()))[0] == before), "it has values"
        del value
        wait_until(lambda: not any(on_workers(client, keys).values()), "the worker has no values")
        assert client.submit(inc, 1).result() == 2
        ((left_out, left),) = client.run(frozen).values()
        assert left_out > before + objects // 2 and left < objects // 2
        assert client.submit(inc, 2).result() == 3
        ((again, _),) = client.run(frozen).values()
        assert again <= left_out, "what comes later is looked at as ever"


def test_a_process_with_others_in_it_is_left_alone(place):
    async def job(client, a, b):
        before = gc.get_freeze_count()
        assert await client.submit(inc, 1) == 2
        assert gc.get_freeze_count() <= before

    together(place, job)


def test_there_is_room_for_descriptors_from_the_beginning(place):
    """The table is a process's that has never had many of them."""
    with cluster(place, n=1) as client:
        assert min(client.run(descriptor_table).values()) >= 4096
