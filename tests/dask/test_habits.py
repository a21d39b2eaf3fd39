# SPDX-License-Identifier: Apache-2.0
"""When a result is put into the partition: learned by kind of task."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time

import distributed
import numpy as np
import tasks
from conftest import cluster, on_workers, wait_until, workers
from together import together

from shmstore.dask.values import Habits
from shmstore.dask.memory import Turns


def test_a_kind_leaves_once_half_of_it_left():
    habits = Habits()
    assert not habits.of("make-1").leaves
    habits.of("make-1").made += 1
    assert not habits.of("make-2").leaves, "nothing left so far"
    habits.of("make-1").left += 1
    assert habits.of("make-2").leaves
    assert not habits.of("other-1").leaves, "another kind"
    for i in range(3):
        habits.of(f"make-{i}").made += 1
    assert not habits.of("make-9").leaves, "one of four"
    for i in range(100_000):
        habits.of(f"kind{i}x-1").made += 1
    assert len(habits._kinds) <= 1000


def test_results_of_a_kind_that_was_asked_for_are_shared_when_made(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit) as client:
        a, b = workers(client)
        first = client.submit(tasks.make, 1, workers=[a], key="make-1")
        client.submit(tasks.total, first, workers=[b], pure=False).result()
        second = client.submit(tasks.make, 2, workers=[a], key="make-2")
        other = client.submit(tasks.make, 3, workers=[a], key="other-3")
        client.gather([client.submit(tasks.total, x, workers=[a], pure=False)
                       for x in (second, other)])
        assert on_workers(client, tasks.n_objects)[a] == 2, "make-1 and make-2"
        assert (second.result() == tasks.make(2)).all()


def test_a_turn_lasts_until_the_value_is_gone(place):
    fd = os.open(os.path.join(place.path, "stores"), os.O_RDONLY | os.O_DIRECTORY)

    def taken() -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False

    size = 64 << 20
    turns = Turns(place.path)
    with turns.turn(1 << 20, True):
        assert not taken(), "small values take no turns"
    with turns.turn(size, True):
        assert taken()
    assert not taken()
    value = np.zeros(10)
    with turns.turn(size, True) as until_gone:
        until_gone(value)
    assert taken()
    del value
    assert not taken()
    value = np.zeros(10)
    with turns.turn(size, True) as until_gone:
        until_gone(value)
    wait_until(lambda: not taken(), "a moment at most", timeout=10)
    try:
        with turns.turn(size, True) as until_gone:
            until_gone(value)
            raise OSError
    except OSError:
        assert not taken(), "what failed lets the next one go"
    os.close(fd)


def test_a_stopped_process_holds_up_nobody_for_long(place):
    """It was stopped in its turn: the first one waits for less than a second, the next ones not
    at all, until it goes on."""
    code = ("import fcntl, os, sys, signal; fd = os.open(sys.argv[1], os.O_RDONLY); "
            "fcntl.flock(fd, fcntl.LOCK_EX); print('has it', flush=True)")
    code += "; os.kill(os.getpid(), signal.SIGSTOP)"
    process = subprocess.Popen([sys.executable, "-c", code, os.path.join(place.path, "stores")],
                               stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"has it\n"
        turns = Turns(place.path)
        started = time.monotonic()
        with turns.turn(64 << 20, wait=True):
            first = time.monotonic() - started
        for _ in range(50):
            with turns.turn(64 << 20, wait=True):
                pass
        assert first < 1 and time.monotonic() - started < 1 and turns.missed == 51
    finally:
        process.send_signal(signal.SIGCONT)
        process.wait(10)
    with turns.turn(64 << 20, wait=True):
        assert turns.missed == 51, "it is free again"
    process.stdout.close()


def test_an_event_loop_waits_for_no_turn(place):
    turns = Turns(place.path)
    with turns.turn(64 << 20, wait=True):
        started = time.monotonic()
        other = Turns(place.path)
        with other.turn(64 << 20, wait=False):
            assert other.missed == 1 and time.monotonic() - started < 0.1


def test_a_producer_that_keeps_its_values_does_not_keep_the_turn(place):
    """Twenty puts of values that somebody still has: at first each turn lasts
    a moment, soon none does."""
    turns = Turns(place.path)
    values = [np.zeros(10) for _ in range(20)]
    started = time.monotonic()
    for value in values:
        with turns.turn(64 << 20, wait=True) as until_gone:
            until_gone(value)
    assert time.monotonic() - started < 0.5, "a moment for each would be a second"
    assert turns.missed == 0


def test_a_worker_that_was_stopped_in_its_turn(place):
    """Others hand over, and their event loops go on."""

    async def job(client, a, b):
        fd = os.open(os.path.join(place.path, "stores"), os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        longest = 0.0

        async def beat():
            nonlocal longest
            while True:
                started = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - started)

        beating = asyncio.ensure_future(beat())
        try:
            xs = [client.submit(tasks.make, i, 32 << 20, workers=[a.address], key=f"x{i}")
                  for i in range(3)]
            await distributed.wait(xs)
            started = time.monotonic()
            await asyncio.gather(*(client.submit(len, x, workers=[b.address], key=f"y{i}")
                                   for i, x in enumerate(xs)))
            took = time.monotonic() - started
        finally:
            beating.cancel()
            os.close(fd)
        assert took < 3 and longest < 1, (took, longest)
        assert not any(a._exchange.fallbacks.counts.values())
        assert all(f"x{i}" in b.data.shared for i in range(3))

    together(place, job)
