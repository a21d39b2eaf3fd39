# SPDX-License-Identifier: Apache-2.0
"""Which task runs next while memory is short: one whose inputs are in memory."""

from __future__ import annotations

import operator
from types import SimpleNamespace

import pytest
from distributed.collections import HeapSet

from shmstore.dask.compat.worker import Ready, choose_next
from shmstore.dask.config import Fallbacks, Guard
from shmstore.dask.inputs import _INPUTS_MAX, _PASSES_MAX, _TASKS_MAX, Inputs

CHUNK = 1 << 20


class Task:
    """As Dask's, as far as it is looked at."""

    def __init__(self, priority, *inputs):
        self.key = f"task-{priority}"
        self.priority = (priority,)
        self.dependencies = [SimpleNamespace(key=key) for key in inputs]

    def __repr__(self):
        return self.key


class Host:
    """An Inputs over what is in memory and what is on disk."""

    def __init__(self, memory=(), disk=()):
        self.entries = {key: SimpleNamespace(name=key, nbytes=CHUNK, value=None, coming=None)
                        for key in (*memory, *disk)}
        self.disk = set(disk)
        self.short = True
        self.looks = []
        self.state = SimpleNamespace(ready=HeapSet(key=operator.attrgetter("priority")))
        exchange = SimpleNamespace(guard=Guard(Fallbacks(60)))
        tier = SimpleNamespace(pressed=lambda: self.short, at_ease=lambda: not self.short,
                               has=self.has)
        # there is nothing to be mapped ahead
        residence = SimpleNamespace(shared=self.entries, entry=self.entries.get,
                                    held=lambda more=(): 0)
        self.inputs = Inputs(exchange, residence, tier, self.state)

    def has(self, entry):
        self.looks.append(entry.name)
        return entry.name in self.disk

    def run(self, *tasks):
        """The order in which they run."""
        for task in tasks:
            self.state.ready.add(task)
        return [self.state.ready.pop().priority[0] for _ in tasks]


class Counted(tuple):
    """A priority that counts how often it is compared."""

    n = 0

    def __lt__(self, other):
        Counted.n += 1
        return tuple.__lt__(self, other)


def test_the_next_task_costs_no_sort_of_all_where_the_first_one_will_do():
    host = Host(memory="a", disk="x")
    n = 500
    for i in range(n):
        task = Task(i * 7919 % n, "a" if i % 2 else "x")
        task.priority = Counted(task.priority)
        host.state.ready.add(task)
    host.short = False
    Counted.n = 0
    for i in range(n - 1):
        host.inputs.look_ahead()
        assert host.state.ready.pop().priority == (i,)
    assert Counted.n < 30 * n, "each time the same few of a heap"


def test_who_needs_nothing_from_disk_runs_first():
    host = Host(memory="ab", disk="xy")
    assert host.run(Task(0, "a", "x"), Task(1, "y"), Task(2, "a", "b"), Task(3, "private")) == [
        2, 3, 0, 1]
    assert len(host.looks) < 4 * 4, "of a value it is asked once for each task that runs"


def test_who_needs_least_runs_first_where_all_need_something():
    host = Host(memory="a", disk="xyz")
    assert host.run(Task(0, "x", "y", "z"), Task(1, "x", "y"), Task(2, "a", "z")) == [2, 1, 0]


def test_what_lets_most_others_run_is_read_first():
    host = Host(memory="abc", disk="wxyz")
    tasks = [Task(0, "a", "x"), Task(1, "a", "y"), Task(2, "b", "y"), Task(3, "c", "y"),
             Task(4, "a", "z"), Task(5, "b", "z"), Task(6, "x", "w")]
    for task in tasks:
        host.state.ready.add(task)
    order = []
    while host.state.ready:
        task = host.state.ready.pop()
        order.append(task.priority[0])
        host.disk -= {dep.key for dep in task.dependencies}
    assert order == [1, 2, 3, 4, 5, 0, 6], (
        "y lets three run, z two, x one; 6 needs two that are on disk")


def test_few_bytes_for_a_task_go_before_many():
    host = Host(memory="a", disk="xy")
    host.entries["x"].nbytes = 4 * CHUNK
    assert host.run(Task(0, "a", "x"), Task(1, "x"), Task(2, "y")) == [2, 0, 1]


def test_what_is_mapped_or_on_its_way_counts_as_in_memory():
    host = Host(disk="xyz")
    host.entries["y"].value = object()
    assert host.run(Task(0, "x"), Task(1, "y")) == [1, 0]
    host.entries["z"].coming = object()
    assert host.run(Task(2, "x"), Task(3, "z")) == [3, 2]


def test_where_memory_is_not_short_priority_decides_and_nothing_is_looked_at():
    host = Host(memory="a", disk="x")
    host.short = False
    assert host.run(Task(0, "x"), Task(1, "a"), Task(2)) == [0, 1, 2]
    assert host.looks == []


def test_nobody_is_passed_over_for_ever():
    host = Host(memory="a", disk="x")
    order = host.run(Task(0, "x"), *(Task(n, "a") for n in range(1, _PASSES_MAX + 10)))
    assert order.index(0) == _PASSES_MAX and order[_PASSES_MAX + 1] == _PASSES_MAX + 1


def test_a_look_is_short_however_much_there_is_to_do():
    keys = [f"x{n}" for n in range(4 * _INPUTS_MAX)]
    host = Host(disk=keys, memory="a")
    for n in range(2 * _TASKS_MAX):
        host.state.ready.add(Task(n, "x0"))
    host.state.ready.add(Task(2 * _TASKS_MAX, "a"))
    assert host.state.ready.pop().priority == (0,), "beyond what is looked at"
    host = Host(disk=keys, memory="a")
    assert host.run(Task(0, *keys[: _INPUTS_MAX + 1]), Task(1, "a")) == [0, 1]
    assert len(host.looks) <= _INPUTS_MAX + 1 + 1


def test_an_error_of_ours_leaves_the_order_as_on_stock():
    host = Host(memory="a", disk="x")
    host.entries["x"] = SimpleNamespace(value=None)  # lacks what is asked of it
    assert host.run(Task(0, "x"), Task(1, "a")) == [0, 1]


def test_the_set_is_as_before_otherwise():
    before = HeapSet(key=operator.attrgetter("priority"))
    tasks = [Task(n, "a") for n in range(5)]
    for task in tasks[3:]:
        before.add(task)
    state = SimpleNamespace(ready=before)
    ready = choose_next(state, lambda tasks: list(tasks)[-1])
    assert type(ready) is Ready and state.ready is ready and set(ready) == set(tasks[3:])
    for task in tasks[:3]:
        ready.add(task)
    assert ready.peek() is tasks[0] and list(ready.sorted()) == tasks
    assert ready.pop() is tasks[4] and tasks[4] not in ready
    ready.add(tasks[4])  # once more
    assert [ready.pop() for _ in range(len(ready))] == tasks[::-1]
    with pytest.raises(KeyError):
        ready.pop()


def test_another_kind_of_set_is_left_alone():
    state = SimpleNamespace(ready=[1, 2])
    assert choose_next(state, None) is None and state.ready == [1, 2]
    assert choose_next(SimpleNamespace(), None) is None
