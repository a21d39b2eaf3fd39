# SPDX-License-Identifier: Apache-2.0
"""shmstore.arbiter against a real daemon: who waits, who is given memory, who is told to roll back,
and that nothing is left behind.

The handling of outcomes by with_retry, in every order, is tested in test_retrying.py.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
import threading
import weakref
from typing import Any

import pytest
import shmstore
from arbiterscene import MIB, Thread, until_state, arbiter, daemon, place, pool, store  # noqa: F401
from conftest import run_child, wait_for
from daemon import Daemon
from shmstore.arbiter import (
    Again,
    Arbiter,
    Canceled,
    Down,
    Injected,
    NoMemory,
    Outcome,
    Pool,
    Removed,
    Reservation,
    Retry,
    Split,
    Task,
    TimedOut,
    TooBig,
)

# -- whether there is one


def test_without_a_daemon_there_is_none(partition: shmstore.Partition,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored")
    with partition.open("main", arbitrate=True) as store:
        assert store.arbiter is None
        store["x"] = b"y"
        with pytest.raises(shmstore.Error, match="shmstored") as error:
            Arbiter(store).task()
        assert error.value.errno == 95


def test_where_it_is_off_there_is_none(partition: shmstore.Partition,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    with Daemon(partition.path, http=False, config="arbiter { enabled = no }") as d:
        monkeypatch.setenv("SHMSTORE_SOCKET", d.socket)
        with partition.open("main", daemon="required") as store:
            assert store.arbiter is None


def test_the_store_does_not_keep_it(store: shmstore.Store) -> None:
    arbiter = store.arbiter
    assert store.arbiter is arbiter
    gone = weakref.ref(arbiter)
    del arbiter
    assert gone() is None
    assert store.arbiter is not None


# -- exceptions


def test_outcomes_are_what_python_knows() -> None:
    for kind in (Retry, Split, NoMemory, TooBig, Again, TimedOut, Canceled, Removed, Down,
                 Injected):
        assert (issubclass(kind, Outcome) and issubclass(kind, shmstore.Error) and
                issubclass(kind, OSError))
        again = pickle.loads(pickle.dumps(kind(1, "text")))
        assert type(again) is kind and again.errno == 1 and again.why == ""
    assert issubclass(NoMemory, MemoryError) and issubclass(TimedOut, TimeoutError)
    assert Retry.outcome == 2 and Injected.outcome == 11


# -- reservations


def test_a_reservation_is_of_a_task_and_ends(arbiter: Arbiter, pool: Pool) -> None:
    with arbiter.task(priority=3, label="job") as task:
        with arbiter.reserve(10 * MIB, pool) as r:
            assert r.bytes == 10 * MIB and r.pool == pool.id and r.held
            assert (task.stats(pool).current == 10 * MIB and
                    task.stats().n_grants == 1 == arbiter.stats().n_grants)
            assert arbiter.stats(pool=pool).current == 10 * MIB
            assert pool.state().used == 10 * MIB and arbiter.state().state == "RUNNING"
        assert r.bytes == 0 and not r.held and pool.state().used == 0
        r.release()
        # and with its last reference it goes
        assert arbiter.reserve(5 * MIB, pool).bytes == 5 * MIB
        gc.collect()
        wait_for("what nobody refers to", lambda: pool.state().used == 0)
    assert task.stats(pool).max == 10 * MIB
    assert arbiter.state().state == "UNKNOWN"
    with pytest.raises(shmstore.Error, match="Errno 22"):
        arbiter.stats()
    pool.remove()
    with pytest.raises(shmstore.Error):
        pool.state()


def test_small_ones_come_from_a_lease(arbiter: Arbiter) -> None:
    with arbiter.task():
        with arbiter.reserve(4096) as r:
            assert r.leased == 4096 and r.id == 0
            used = arbiter.partition.state().used
            with arbiter.reserve(4096):
                assert arbiter.partition.state().used == used


def test_what_cannot_be(arbiter: Arbiter, pool: Pool) -> None:
    with pytest.raises(NoMemory) as error:  # bound to no task: it never waits
        with arbiter.reserve(60 * MIB, pool):
            arbiter.reserve(60 * MIB, pool)
    assert "60" in str(error.value) or "bytes" in str(error.value)
    with arbiter.task():
        with pytest.raises(TooBig, match="capacity"):
            arbiter.reserve(200 * MIB, pool)
        with arbiter.reserve(60 * MIB, pool):
            with pytest.raises(Again):
                arbiter.reserve(60 * MIB, pool, wait=False)
        for bad in (0, -1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                arbiter.reserve(1, pool, timeout=bad)
        with pytest.raises(OverflowError):
            arbiter.reserve(1 << 70, pool)
        with pytest.raises(shmstore.Error):
            arbiter.reserve(1, 12345)


def test_resize_commit_and_many(arbiter: Arbiter, pool: Pool) -> None:
    with arbiter.task():
        with arbiter.reserve(10 * MIB, pool) as r:
            arbiter.thread.resize(r, 30 * MIB)
            assert r.bytes == 30 * MIB == pool.state().used
            arbiter.thread.resize(r, MIB)
            assert pool.state().used == MIB
            with pytest.raises(Again):
                arbiter.thread.resize(r, 101 * MIB - 1, wait=False) if False else arbiter.reserve(
                    100 * MIB, pool, wait=False)
        with pytest.raises(ValueError, match="anew"):
            arbiter.thread.resize(r, 1)
        a, b = arbiter.reserve_many([(pool, 10 * MIB), (1, 20 * MIB)])
        assert (a.bytes, b.bytes, b.pool) == (10 * MIB, 20 * MIB, 1)
        before = arbiter.partition.state().used
        b.commit(0)
        wait_for("the commit", lambda: arbiter.partition.state().used <= before - 20 * MIB)
        assert not b.held
        with pytest.raises(ValueError):
            b.commit()
        a.release()
        with pytest.raises(ValueError, match="1 to 16"):
            arbiter.reserve_many([])


def test_a_wait_ends_when_the_other_releases(arbiter: Arbiter, pool: Pool) -> None:
    context = arbiter.context()

    def other() -> int:
        with arbiter.task(priority=1, label="second") as task:
            context.bind(task)
            with context.reserve(60 * MIB, pool) as r:
                return r.bytes

    with arbiter.task(priority=2):
        with arbiter.reserve(60 * MIB, pool):
            thread = Thread(other)
            until_state(context, "BLOCKED")
            assert pool.state().n_waiting == 1 and pool.state().level == 1
            with pytest.raises(RuntimeError, match="another thread"):
                context.reserve(1, pool)
            with pytest.raises(RuntimeError, match="cancel"):
                context.close()
        assert thread.result() == 60 * MIB
    context.close()
    context.close()
    with pytest.raises(ValueError, match="closed"):
        context.reserve(1, pool)


@pytest.mark.parametrize("how", ["timeout", "cancel", "end", "close"])
def test_a_wait_ends(arbiter: Arbiter, store: shmstore.Store, pool: Pool, how: str) -> None:
    holder = arbiter.task(priority=2)
    held = arbiter.reserve(60 * MIB, pool)
    task = arbiter.task(priority=1, bind=False)
    context = arbiter.context(task)
    thread = Thread(lambda: context.reserve(60 * MIB, pool, timeout=0.05 if how == "timeout"
                                            else None))
    if how == "timeout":
        with pytest.raises(TimeoutError):
            thread.result()
        held.release()
        holder.end()
        return
    until_state(context, "BLOCKED")
    if how == "cancel":
        context.cancel()
    elif how == "end":
        task.end()
    else:
        store.close()
    with pytest.raises(Removed if how == "end" else Canceled):
        thread.result()
    held.release()
    holder.end()
    context.cancel() if how != "close" else None


def test_the_lowest_gives_way(arbiter: Arbiter, pool: Pool) -> None:
    """Two that hold and want what the other has: the lower one is told,
    gives back, and comes after."""
    order: list[str] = []
    both = threading.Barrier(2)

    def work(name: str, priority: int) -> list[str]:
        attempts: list[str] = []

        def attempt(item: str) -> str:
            attempts.append(item)
            with arbiter.reserve(40 * MIB, pool):
                if len(attempts) == 1:
                    both.wait(30)
                with arbiter.reserve(50 * MIB, pool):
                    order.append(name)
                    return item

        with arbiter.task(priority, name):
            assert arbiter.with_retry(["x"], attempt) == ["x"]
        return attempts

    threads = [Thread(lambda: work("low", 1)), Thread(lambda: work("high", 2))]
    assert [len(t.result()) for t in threads] == [2, 1]
    assert order == ["high", "low"] and pool.state().used == 0


# -- with_retry


def test_w20_what_an_attempt_reserved_is_back_before_the_next(arbiter: Arbiter, pool: Pool) -> None:
    kept: list[Reservation] = []

    def attempt(item: int) -> Reservation:
        kept.append(arbiter.reserve(30 * MIB, pool))
        arbiter.reserve(MIB, pool).release()
        if len(kept) == 1:
            arbiter.inject("retry", pool=pool)
        arbiter.reserve(2 * MIB, pool)
        return kept[-1]

    seen: list[int] = []
    with arbiter.task():
        (result,) = arbiter.with_retry([1], attempt,
                                       restore=lambda _: seen.append(pool.state().used))
        assert seen == [0]
        assert not kept[0].held and result.held
        with pytest.raises(ZeroDivisionError):
            arbiter.with_retry([0], lambda item: [arbiter.reserve(MIB, pool), 1 // item])
        gc.collect()
        assert pool.state().used == 30 * MIB


def test_w19_an_injection_is_of_one_block(arbiter: Arbiter, pool: Pool) -> None:
    calls: list[str] = []

    def attempt(item: str) -> int:
        calls.append(item)
        with arbiter.reserve(MIB, pool) as r:
            return r.bytes

    with arbiter.task() as task:
        for item in ("a", "b"):
            arbiter.inject("retry")
            assert arbiter.with_retry([item], attempt) == [MIB]
        assert arbiter.with_retry(["c"], attempt) == [MIB]
        assert calls == ["a", "a", "b", "b", "c"]
        assert task.stats().n_retries == 2
        arbiter.inject("split", skip=1)
        assert arbiter.with_retry([4, 2], lambda n: attempt(str(n)) // MIB * n,
                                  split=lambda n: [n // 2] * 2) == [4, 1, 1]
        for kind, error in (("error", Injected), ("toobig", TooBig), ("timedout", TimedOut)):
            arbiter.inject(kind)
            with pytest.raises(error):
                attempt("d")
        arbiter.inject("retry", count=3)
        arbiter.inject("retry", count=0)
        attempt("e")
        with pytest.raises(ValueError, match="retry, split"):
            arbiter.inject("nothing")


def test_w18_an_inner_block_keeps_what_the_outer_one_lost(arbiter: Arbiter, pool: Pool) -> None:
    inner_calls, used = [], []

    def inner(item: int) -> Reservation:
        inner_calls.append(item)
        return arbiter.reserve(MIB, pool)

    def outer(item: int) -> int:
        if len(inner_calls) == 0:
            arbiter.inject("retry")
        rs = arbiter.with_retry([1], inner)
        if len(inner_calls) == 2:
            arbiter.inject("retry")
        arbiter.reserve(2 * MIB, pool)
        used.append(pool.state().used)
        return len(rs)

    with arbiter.task():
        kept: list[int] = []
        assert arbiter.with_retry([1], outer, restore=lambda _: kept.append(pool.state().used)) == [
            1]
    assert len(inner_calls) == 3  # the inner one twice for its own, once more for the outer's
    assert kept == [0]  # what the inner block left was the outer attempt's
    assert len(used) == 1


def test_split_until_it_fits(arbiter: Arbiter, pool: Pool) -> None:
    """More than the pool has: each half of a half fits."""

    def attempt(n: int) -> int:
        with arbiter.reserve(n * MIB // 2, pool), arbiter.reserve(n * MIB // 2, pool):
            return n

    with arbiter.task() as task:
        results = arbiter.with_retry([150], attempt, split=lambda n: [n // 2, n - n // 2] if n > 1
                                     else None)
        assert sum(results) == 150 and len(results) == 2
        assert task.stats().n_splits == 1
        with pytest.raises(Split, match="150 cannot be split"):
            arbiter.with_retry([150], attempt)


# -- the store's own calls


def test_a_put_waits_for_its_memory(store: shmstore.Store, arbiter: Arbiter) -> None:
    data = bytes(30 * MIB)
    context = arbiter.context()

    def put() -> None:
        with arbiter.task(priority=1) as task:
            context.bind(task)
            with context.used():
                assert arbiter.current is context
                store.put_buffers("x", b"", [data])

    with arbiter.task(priority=2):
        with arbiter.reserve(45 * MIB):
            thread = Thread(put)
            until_state(context, "BLOCKED")
        thread.result()
    assert len(store.view("x").buffers[0]) == 30 * MIB
    assert arbiter.current is not context


def test_a_put_is_rolled_back_and_put_again(store: shmstore.Store, arbiter: Arbiter) -> None:
    data = bytes(5 * MIB)
    calls = []

    def attempt(key: str) -> str:
        calls.append(key)
        store.put_buffers(key, b"", [data], replace=True)
        return key

    with arbiter.task():
        arbiter.inject("retry")
        with pytest.raises(Retry):
            store.create("w", 0, [5 * MIB])
        arbiter.ready()
        arbiter.inject("retry")
        assert arbiter.with_retry(["a", "b"], attempt) == ["a", "b"]
    assert calls == ["a", "a", "b"]
    assert sorted(store) == ["a", "b"]


def test_what_was_reserved_is_spent(store: shmstore.Store, arbiter: Arbiter) -> None:
    with arbiter.task() as task:
        with arbiter.reserve(20 * MIB) as r:
            with r.spending():
                store.put_buffers("x", b"", [bytes(5 * MIB)])
                assert 14 * MIB <= r.bytes <= 15 * MIB
                with pytest.raises(RuntimeError, match="spending"):
                    r.release()
                with pytest.raises(ValueError, match="already"):
                    with r.spending():
                        pass
            assert task.stats(arbiter.partition).n_grants == 1
        with pytest.raises(ValueError, match="nothing"):
            with r.spending():
                pass


# -- marks


def test_marks(arbiter: Arbiter, pool: Pool) -> None:
    with arbiter.task() as task, arbiter.task(bind=False) as other:
        with arbiter.waiting("external"):
            pass
        with arbiter.waiting("task", other), arbiter.waiting("pool"):
            pass
        with pytest.raises(ValueError, match="external"):
            with arbiter.waiting("somebody"):
                pass
        with arbiter.spilling():
            with arbiter.reserve(MIB, pool, spill=True):
                pass
        assert task.stats(pool).footprint == 0
        helper = arbiter.context()
        helper.bind_helper([task, other])
        with pytest.raises(shmstore.Error):
            helper.bind(task)
        helper.unbind([other])
        helper.unbind()
        helper.bind_helper([task], service=True)
        assert helper.state().state == "RUNNING"
        helper.close()


def test_an_inherited_priority(arbiter: Arbiter, daemon: Daemon) -> None:
    with arbiter.task(priority=7, bind=False) as old, arbiter.task(
            label="again", inherit=old, bind=False):
        document = daemon.admin("arb", "tasks")
        (task,) = [t for t in document["partitions"][0]["tasks"] if t["label"] == "again"]
        assert task["priority"] == 7


# -- ends


def test_the_daemon_dies(arbiter: Arbiter, store: shmstore.Store, daemon: Daemon,
                         pool: Pool) -> None:
    task = arbiter.task(priority=2)
    held = arbiter.reserve(60 * MIB, pool)
    low = arbiter.task(priority=1, bind=False)
    context = arbiter.context(low)
    thread = Thread(lambda: context.reserve(60 * MIB, pool))
    until_state(context, "BLOCKED")
    daemon.kill()
    with pytest.raises(Down):
        thread.result()
    assert store.arbiter is None and not arbiter.available
    held.release()
    with pytest.raises((Down, shmstore.Error)):
        arbiter.reserve(MIB, pool)
    task.end()
    low.end()
    store["x"] = bytes(MIB)
    daemon.restart()
    wait_for("the new one", lambda: store.daemon_dispatch() and store.arbiter)
    with arbiter.task():
        arbiter.reserve(MIB).release()


def test_after_close_nothing_is_left_to_do(partition: shmstore.Partition, daemon: Daemon) -> None:
    with partition.open("main", daemon="required") as store:
        arbiter = store.arbiter
        assert arbiter
        task = arbiter.task()
        context = arbiter.context(task)
        r, mine = context.reserve(MIB), arbiter.reserve(MIB)
    assert store.arbiter is None
    r.release()
    task.end()
    context.close()
    del mine
    with pytest.raises(shmstore.ClosedError):
        arbiter.task()
    with pytest.raises(shmstore.ClosedError):
        context.state() if False else arbiter.reserve(1)


def test_a_forked_child_has_none(arbiter: Arbiter, pool: Pool) -> None:
    task = arbiter.task()
    context = arbiter.context(task)
    r = context.reserve(10 * MIB, pool)
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            try:
                context.reserve(1, pool)
            except shmstore.Error as error:
                r.release()
                context.close()
                del context, r
                gc.collect()
                status = 0 if error.errno == 1 else 2
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert pool.state().used == 10 * MIB
    r.release()
    assert pool.state().used == 0
    task.end()


def test_a_dead_process_gives_back(partition: shmstore.Partition, arbiter: Arbiter) -> None:
    run_child(
        "import os, sys, shmstore\n"
        "s = shmstore.Partition(sys.argv[1]).open('child', daemon='required')\n"
        "t = s.arbiter.task(label='doomed')\n"
        "r = s.arbiter.reserve(50 << 20)\n"
        "os._exit(0)\n",
        partition.path,
    )
    with arbiter.task(), arbiter.reserve(50 * MIB, timeout=30) as r:
        assert r.bytes == 50 * MIB


def test_nothing_is_kept(arbiter: Arbiter, pool: Pool) -> None:
    """Contexts, tasks and reservations go with their last reference, also
    where an attempt failed."""

    def attempt(item: int) -> Reservation:
        r = arbiter.reserve(MIB, pool)
        seen.append(weakref.ref(r))
        return r

    seen: list[Any] = []
    with arbiter.task() as task:
        for _ in range(3):
            arbiter.inject("retry", skip=0)
            arbiter.with_retry([1], attempt)
        context = arbiter.context(task)
        seen.append(weakref.ref(context))
        del context
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)
    assert isinstance(task, Task) and pool.state().used == 0
