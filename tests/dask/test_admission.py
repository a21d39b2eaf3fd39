# SPDX-License-Identifier: Apache-2.0
"""How one key gets memory, against an arbiter that does what the test
says: no cluster, no daemon."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from arbfake import FakeDaemon
from distributed import Reschedule

from shmstore.arbiter import NoMemory, Retry, Split, TimedOut, TooBig
from shmstore.dask import Input, register_splitter
from shmstore.dask.arbiter import Arbiter
from shmstore.dask.claim import Admission, NoRoom, Slots, Unwanted, fold_priority
from shmstore.dask.compat import worker as tasks
from shmstore.dask.config import Fallbacks
from shmstore.dask.inputs import Need, check_pieces, inputs_in, splitter_of, with_values
from shmstore.dask.memory import Budget
from shmstore.dask.values import Habits
from shmstore.pools import PARTITION

MIB = 1 << 20
LIMIT, TARGET = 100 * MIB, 0.6
CAPACITY = 60 * MIB


class Needs:
    """Keys need as much as the test says."""

    def __init__(self) -> None:
        self.need = Need(0, 0, 0, 0, 0)
        self.short = False  # the partition
        self.n_let_go = 0

    def of(self, task, result, promote_most):
        return self.of_keys(["in-1", "in-2"], result, promote_most)

    def of_keys(self, keys, result, promote_most):
        need = self.need
        if promote_most is not None and need.promote > promote_most:
            store = need.store if promote_most else 0
            return need._replace(promote=promote_most, store=store), frozenset(
                ["in-1"] if promote_most else keys)
        return need, frozenset()

    def relaxed(self, nbytes):
        return not self.short

    def let_go(self):
        self.n_let_go += 1


class World:
    def __init__(self, daemon, evict=None) -> None:
        self.daemon = daemon
        self.values = 0
        self.measured = 0
        self.budget = Budget(LIMIT, TARGET, 0.95, lambda: self.values, lambda: self.measured +
                             self.values + self.budget.claimed)
        self.needs = Needs()
        self.state = SimpleNamespace(nthreads=1, running=True)
        self.started = 0
        self.arbiter = Arbiter(daemon, self.budget, Fallbacks(0), evict or self.evict, lambda: None)
        self.admission = Admission(self.arbiter, self.budget, Slots(self.state, self.start),
                                   self.needs, Habits(), MIB)

    def start(self):
        self.started += 1

    async def evict(self, nbytes):
        freed = min(self.values, nbytes)
        self.values -= freed
        return freed

    def admit(self, key="key-1", may_split=False, task=None):
        return self.admission.admit(key, task or self.task(), may_split)

    @staticmethod
    def task(order=0):
        return SimpleNamespace(key="key-1", priority=(0, 1, order, 0), state="executing",
                               dependencies=())


@contextlib.asynccontextmanager
async def world(**options):
    daemon = FakeDaemon()
    it = World(daemon, **options)
    try:
        assert await it.arbiter.look("test")
        yield it
    finally:
        await it.arbiter.close()
        daemon.close()


async def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def run(scenario, **options):
    async def main():
        async with world(**options) as it:
            await scenario(it)

    asyncio.run(main())


# -- nobody is asked


def test_what_is_at_hand_is_not_asked_for():
    async def scenario(w):
        w.needs.need = Need(unspill=10 * MIB, result=10 * MIB, promote=MIB, store=0,
                            pinned=500 * MIB)
        grant = await w.admit()
        assert w.budget.claims == {"key-1": 20 * MIB}
        grant.done()
        assert not w.daemon.log and not w.budget.claims and not w.budget.unasked

    run(scenario)


def test_a_small_key_is_not_asked_for_when_memory_is_short():
    async def scenario(w):
        w.needs.short, w.values = True, CAPACITY
        w.needs.need = Need(0, MIB - 1, 0, 0, 0)
        (await w.admit()).done()
        assert not w.daemon.log

    run(scenario)


def test_what_runs_unasked_makes_the_pool_smaller():
    async def scenario(w):
        w.needs.need = Need(0, 40 * MIB, 0, 0, 0)
        first = await w.admit("key-1")
        assert not w.daemon.log
        second = asyncio.ensure_future(w.admit("key-2"))
        await until(lambda: w.admission.n_waiting)
        # 40 MiB of 60 MiB are not the daemon's to give: it is not even
        # asked, as it would say "too big"
        assert not w.daemon.asked("reserve")
        first.done()
        (await second).done()
        assert w.daemon.asked("reserve") == [(1, (2, 40 * MIB))]

    run(scenario)


# -- waiting


def test_a_key_waits_and_another_may_start():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, 40 * MIB, 0, 0, 0)
        first = await w.admit("key-1")
        waiting = asyncio.ensure_future(w.admit("key-2", task=w.task(order=5)))
        await until(lambda: w.daemon.n_waiting and w.state.nthreads == 2)
        assert w.started == 1 and not waiting.done()
        first.done()
        second = await waiting
        assert w.state.nthreads == 1
        assert [entry[3] for entry in w.daemon.asked("begin")] == [False, False]
        priorities = [entry[1] for entry in w.daemon.asked("begin")]
        assert priorities == [fold_priority((0, 1, 0)), fold_priority((0, 1, 5))]
        second.done()
        await until(lambda: w.daemon.used[w.arbiter.pool] == 0)

    run(scenario)


def test_no_more_slots_than_four_per_thread():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, CAPACITY, 0, 0, 0)
        first = await w.admit("key-0")
        waiting = [asyncio.ensure_future(w.admit(f"key-{i}")) for i in range(1, 8)]
        await until(lambda: w.daemon.n_waiting == 7 and w.state.nthreads == 5)
        first.done()
        for key in asyncio.as_completed(waiting):
            (await key).done()
        assert w.state.nthreads == 1

    run(scenario)


def test_retry_lets_go_and_asks_again():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, 40 * MIB, 8 * MIB, 0, 0)
        w.daemon.script += [Retry, None, None]  # reserve, ready, reserve
        grant = await w.admit()
        assert (w.needs.n_let_go == 1 and len(w.daemon.asked("ready")) == 1 and
                len(w.daemon.asked("reserve")) == 2)
        assert not grant.aside
        grant.done()

    run(scenario)


def test_a_cancelled_key_does_not_wait_on():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, CAPACITY, 0, 0, 0)
        first = await w.admit("key-1")
        task = w.task()
        waiting = asyncio.ensure_future(w.admit("key-2", task=task))
        await until(lambda: w.daemon.n_waiting)
        task.state = "cancelled"
        with pytest.raises(Unwanted):
            await waiting
        await until(lambda: not w.daemon.n_waiting)
        assert w.daemon.asked("end") == [(2,)] and w.state.nthreads == 1
        first.done()

    run(scenario)


def test_without_the_daemon_keys_run():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, CAPACITY, 0, 0, 0)
        first = await w.admit("key-1")
        waiting = asyncio.ensure_future(w.admit("key-2"))
        await until(lambda: w.daemon.n_waiting)
        w.daemon.available = False
        assert not await w.arbiter.look("test")
        assert w.arbiter.fallbacks.counts == {"arbiter-lost": 1}
        (await waiting).done()
        first.done()
        assert not w.budget.claims
        w.daemon.available = True
        assert await w.arbiter.look("test")

    run(scenario)


# -- by steps


def test_half_of_the_inputs_then_none():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, MIB, 40 * MIB, MIB, 0)
        w.daemon.script += [Split, Split, TooBig, None]
        grant = await w.admit()
        partition = [dict(wants).get(PARTITION) for _, *wants in w.daemon.asked("reserve")]
        assert partition == [41 * MIB, 41 * MIB, 21 * MIB, None]
        assert (grant.aside == {"in-1", "in-2"} and
                w.admission.counts == {"again": 1, "fewer": 1, "aside": 1})
        grant.done()

    run(scenario)


def test_a_split_may_be_over_when_others_have_let_go():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, MIB, 40 * MIB, MIB, 0)
        w.daemon.script += [Split, None]
        grant = await w.admit()
        assert [dict(wants)[PARTITION] for _, *wants in w.daemon.asked("reserve")] == [
            41 * MIB, 41 * MIB]
        assert not grant.aside and w.admission.counts == {"again": 1}
        grant.done()

    run(scenario)


def test_a_timeout_waits_for_the_partition_no_second_time():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, MIB, 40 * MIB, 0, 0)
        w.daemon.script += [TimedOut, None]
        grant = await w.admit()
        assert grant.aside == {"in-1", "in-2"} and len(w.daemon.asked("reserve")) == 2
        grant.done()

    run(scenario)


def test_a_splitter_comes_after_half_of_the_inputs():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, MIB, 40 * MIB, 0, 0)
        w.daemon.script += [Split, Split, Split]
        grant = await w.admit(may_split=True)
        assert grant.in_pieces and w.admission.counts == {"again": 1, "fewer": 1, "pieces": 1}
        # its pieces ask for themselves; a task that runs and waits for them would hide a deadlock
        await until(lambda: w.daemon.asked("end"))
        grant.done()

    run(scenario)


def test_an_estimate_that_is_too_large_runs_alone():
    async def scenario(w):
        w.values = 20 * MIB
        w.needs.need = Need(unspill=10 * MIB, result=200 * MIB, promote=0, store=0, pinned=0)
        waiting = asyncio.ensure_future(w.admit())
        await until(lambda: w.daemon.n_waiting)  # for the values to leave
        assert w.daemon.asked("reserve") == [(1, (2, CAPACITY))]
        await asyncio.get_running_loop().run_in_executor(None, w.daemon.evict, 20 * MIB)
        assert w.values == 0
        (await waiting).done()
        assert w.admission.counts == {"alone": 1}

    run(scenario)


def test_what_is_known_to_be_too_large_is_handed_back_and_then_fails_alone():
    async def scenario(w):
        w.measured = 5 * MIB
        w.budget.look()
        w.needs.need = Need(unspill=300 * MIB, result=0, promote=0, store=0, pinned=0)
        with pytest.raises(Reschedule):
            await w.admit("big-1")
        w.budget.claim("other-1", 8 * MIB, asked=False)
        with pytest.raises(MemoryError) as caught:
            await w.admit("big-1")
        text = str(caught.value)
        for part in ("'big-1' needs 300.0 MiB", "5.0 MiB other than values",
                     "8.0 MiB running other-1", "register_splitter"):
            assert part in text
        assert w.admission.counts == {"handed-back": 1, "no-memory": 1}
        assert type(pickle.loads(pickle.dumps(NoRoom("x")))) is MemoryError
        assert not w.daemon.asked("reserve"), "nobody is disturbed by what can never be had"

    run(scenario)


def test_a_pool_from_which_nothing_leaves_fails_the_key_with_what_the_daemon_says():
    async def scenario(w):
        w.values = CAPACITY
        w.needs.need = Need(0, 40 * MIB, 0, 0, 0)
        w.daemon.why = "all of it is held by nobody who waits"
        for expected in (Reschedule, NoRoom):
            w.daemon.script += [Split, NoMemory]  # then alone
            with pytest.raises(expected) as caught:
                await w.admit()
        assert "held by nobody who waits" in str(caught.value)

    run(scenario)


def test_values_that_have_more_than_the_pool_leave_first():
    async def scenario(w):
        w.values = 50 * MIB
        await w.arbiter.look("test")
        w.measured = 30 * MIB  # the process has grown: 30 MiB are left for 50 MiB of values
        await w.arbiter.look("test")
        w.needs.need = Need(0, 20 * MIB, 0, 0, 0)
        w.daemon.script += [TooBig]
        (await w.admit()).done()
        assert w.values == 10 * MIB and not w.admission.counts

    run(scenario)


def test_it_waits_for_those_who_run_before_it_goes_on():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, 40 * MIB, 0, 0, 0)
        first = await w.admit("key-1")
        w.daemon.script += [Split, None]
        waiting = asyncio.ensure_future(w.admit("key-2"))
        await until(lambda: len(w.daemon.asked("reserve")) == 2)
        await asyncio.sleep(0)
        assert not waiting.done() and not w.admission.counts
        first.done()
        (await waiting).done()
        assert not w.admission.counts

    run(scenario)


def test_who_ended_while_it_was_refused_is_reason_to_ask_again():
    async def scenario(w):
        w.needs.short = True
        w.needs.need = Need(0, 40 * MIB, 0, 0, 0)
        first = await w.admit("key-1")
        w.daemon.script += [Split, None]
        reserve, refused, ended = w.daemon.reserve, threading.Event(), threading.Event()

        def reserve_late(*args):
            try:
                return reserve(*args)
            finally:
                refused.set()
                assert ended.wait(10)

        w.daemon.reserve = reserve_late
        waiting = asyncio.ensure_future(w.admit("key-2"))
        await until(refused.is_set)
        first.done()  # before the loop hears of the refusal
        ended.set()
        (await asyncio.wait_for(waiting, 10)).done()
        assert not w.admission.counts, "it is asked again, and not done in another way"

    run(scenario)


# -- the books


def test_values_are_booked_and_yield():
    async def scenario(w):
        w.values = 30 * MIB
        await w.arbiter.look("test")
        await until(lambda: w.daemon.used[w.arbiter.pool] == 30 * MIB)
        assert [held.bytes for held in w.daemon.yields] == [30 * MIB]
        gone = await asyncio.get_running_loop().run_in_executor(None, w.daemon.evict, 10 * MIB)
        assert gone == 10 * MIB and w.daemon.used[w.arbiter.pool] == 20 * MIB

    run(scenario)


def test_unmanaged_memory_shrinks_the_pool_at_once_and_is_forgotten_slowly():
    async def scenario(w):
        w.measured = 40 * MIB
        await w.arbiter.look("test")
        await until(lambda: w.daemon.capacity[w.arbiter.pool] == 20 * MIB)
        w.measured = 0
        await w.arbiter.look("test")
        assert 0 < w.budget.unmanaged < 40 * MIB
        w.measured = 500 * MIB
        w.budget.look()
        assert w.budget.capacity == CAPACITY // 8

    run(scenario)


def test_an_error_that_nobody_waits_for_is_said():
    async def scenario(w):
        w.arbiter.post(lambda: 1 / 0)
        w.arbiter.post(w.daemon.refuse, TooBig)  # as where it has gone
        await until(lambda: w.arbiter.fallbacks.counts["failed-post"])
        assert w.arbiter.fallbacks.counts == {"failed-post": 1}

    run(scenario)


# -- pieces of it


def test_estimates_are_what_four_of_five_did_not_exceed():
    habits = Habits()
    assert habits.of("x-1").size == 0
    for size in (10, 20, 30, 40, 1000):
        habits.of(f"x-{size}").sizes.append(size)
    assert habits.of("x-99").size == 40 and habits.of("y-1").size == 0


def test_priorities_keep_their_order():
    tuples = [(-5, 7, 0), (0, 1, 0), (0, 1, 1), (0, 1, 1 << 40), (0, 2, 0), (3, 0, 0)]
    folded = [fold_priority((*part, -1)) for part in tuples]
    assert folded == sorted(folded, reverse=True) and len(set(folded)) == len(folded)
    assert all(0 <= number < 1 << 63 for number in folded)
    assert (fold_priority(None) is None and fold_priority(("a", 1, 2)) is None and
            fold_priority((1, 2)) is None)


def _function(parts, scale=1):
    return sum(sum(part) for part in parts) * scale


def _call(function, keys, **kwargs):
    """As this Dask has it in a graph."""
    inputs = {key: Input(key, 24) for key in keys}
    if not tasks.NODES:
        return tasks.packed(tasks.plain_call(function, (keys,), kwargs), inputs)
    from dask._task_spec import List, Task, TaskRef

    return tasks.node_call(Task("x", function, List(*map(TaskRef, keys)), **kwargs), inputs)


def _split(args, kwargs):
    (parts,) = args
    return [((parts[:1],), kwargs), ((parts[1:],), kwargs)] if len(parts) > 1 else None


def test_splitters_are_found_by_function_and_by_prefix():
    register_splitter(_function, _split, sum)
    register_splitter("kind", _split, max)
    assert splitter_of("other-1", _function).combine is sum
    assert splitter_of("kind-1", len).combine is max
    assert splitter_of("other-1", len) is None and splitter_of("other-1", []) is None
    for bad in ((3, _split, sum), (len, None, sum), (len, _split, "sum")):
        with pytest.raises(TypeError):
            register_splitter(*bad)


def test_a_split_works_on_inputs_and_a_piece_on_values():
    register_splitter(_function, _split, sum)
    values = {"a": [1, 2, 3], "b": [10, 20]}
    call = _call(_function, ["a", "b"], scale=2)
    assert [item.key for item in inputs_in(call.args)] == ["a", "b"]
    pieces = check_pieces(_split(call.args, call.kwargs), splitter_of("x", _function))
    results = [_function(*with_values(args, values), **with_values(kwargs, values))
               for args, kwargs in pieces]
    assert results == [12, 60]
    assert Input("a", 24)[1:][0].of(values["a"]) == 2
    with pytest.raises(TypeError, match="a split sees no values"):
        list(Input("a", 24))
    with pytest.raises(TypeError, match="as a piece"):
        check_pieces([1, 2], splitter_of("x", _function))
    assert check_pieces([((), {})], splitter_of("x", _function)) is None


@pytest.mark.skipif(tasks.NODES, reason="this Dask has no such tasks")
def test_a_nested_task_is_a_plain_call():
    from dask.utils import apply
    from distributed.worker import execute_task

    assert tasks.plain_call(execute_task, ((_function, ["a"]),), {})[:2] == (_function, (["a"],))
    assert tasks.plain_call(execute_task, ((apply, _function, [["a"]], {"scale": 3}),),
                            {}) == (_function, (["a"],), {"scale": 3})
    call = tasks.packed(tasks.plain_call(execute_task, ((_function, [(sorted, "a")]),), {}),
                        {"a": Input("a", 24)})
    assert with_values(call.args, {"a": [3, 1]}) == ([[1, 3]],)


@pytest.mark.skipif(not tasks.NODES, reason="this Dask's tasks are no nodes")
def test_a_node_of_a_graph_is_a_plain_call():
    from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef, Tuple

    inputs = {"a": Input("a", 24), ("b", 0): Input(("b", 0), 16)}
    values = {"a": [3, 1], ("b", 0): 5}
    nested = Task("n", sorted, TaskRef("a"))
    node = Task("x", _function, List(nested, Tuple(TaskRef(("b", 0)), (len, 1))),
                scale=Dict({"by": TaskRef(("b", 0)), "and": DataNode(None, 7)}))
    call = tasks.node_call(node, inputs)
    assert (call.function is _function and
            [item.key for item in inputs_in((call.args, call.kwargs))] == ["a", ("b", 0), ("b", 0)])
    # a tuple of a program is no task
    assert with_values(call.args, values) == ([[1, 3], (5, (len, 1))],)
    assert with_values(call.kwargs, values) == {"scale": {"by": 5, "and": 7}}
    for other in (Alias("x", "a"), DataNode("x", 1), List(1, 2), None):
        with pytest.raises(TypeError, match="is no call"):
            tasks.node_call(other, inputs)


def test_a_piece_runs_in_the_context_of_its_key():
    """By it Dask knows in whose span it is, and whose its seconds are."""
    variable = contextvars.ContextVar("whose", default="nobody's")

    async def go():
        variable.set("x's")
        with ThreadPoolExecutor(1) as pool:
            worker = SimpleNamespace(
                executors={"default": pool}, execution_state={"worker": None}, active_threads={},
                active_threads_lock=threading.Lock(), scheduler_delay=0)
            task = SimpleNamespace(key="x", annotations=None)
            return await tasks.run_in_thread(worker, task,
                                             lambda: (variable.get(),
                                                      threading.current_thread().name), (), {})

    (whose, thread), nbytes = asyncio.run(go())
    assert whose == "x's" and thread != threading.current_thread().name and nbytes > 0
