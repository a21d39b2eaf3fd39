# SPDX-License-Identifier: Apache-2.0
"""When a result is put into the partition: learned by kind of task."""

from __future__ import annotations

import fcntl
import os

import numpy as np
import tasks
from conftest import cluster, on_workers, wait_until, workers

from shmstore.dask.habits import Habits
from shmstore.dask.turn import Turn


def test_a_kind_leaves_once_half_of_it_left():
    habits = Habits()
    assert not habits.leaves("make-1")
    habits.made("make-1")
    assert not habits.leaves("make-2"), "nothing left so far"
    habits.left("make-1")
    assert habits.leaves("make-2")
    assert not habits.leaves("other-1"), "another kind"
    for i in range(3):
        habits.made(f"make-{i}")
    assert not habits.leaves("make-9"), "one of four"
    for i in range(100_000):
        habits.made(f"kind{i}x-1")
    assert len(habits._kinds) <= 1000


def test_results_of_a_kind_that_was_asked_for_are_shared_when_made(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit) as client:
        a, b = workers(client)
        first = client.submit(tasks.make, 1, workers=[a], key="make-1")
        client.submit(tasks.total, first, workers=[b], pure=False).result()
        second = client.submit(tasks.make, 2, workers=[a], key="make-2")
        other = client.submit(tasks.make, 3, workers=[a], key="other-3")
        client.gather([client.submit(tasks.total, x, workers=[a], pure=False) for x in (second, other)])
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
    with Turn(place.path, 1 << 20):
        assert not taken(), "small values take no turns"
    with Turn(place.path, size):
        assert taken()
    assert not taken()
    value = np.zeros(10)
    with Turn(place.path, size) as turn:
        turn.until_gone(value)
    assert taken()
    del value
    assert not taken()
    value = np.zeros(10)
    with Turn(place.path, size) as turn:
        turn.until_gone(value)
    wait_until(lambda: not taken(), "a moment at most", timeout=10)
    try:
        with Turn(place.path, size) as turn:
            turn.until_gone(value)
            raise OSError
    except OSError:
        assert not taken(), "what failed lets the next one go"
    os.close(fd)
