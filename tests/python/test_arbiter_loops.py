# SPDX-License-Identifier: Apache-2.0
"""The arbiter's up-calls, and waiting for it in event loops and by
descriptor, against a real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import Any

import pytest
import shmstore
from arbiterscene import MIB, Thread, until_state, arbiter, daemon, place, pool, store  # noqa: F401
from conftest import wait_for
from shmstore.arbiter import PARTITION, Arbiter, Context, Outcome, Pool, Reservation, Retry, TooBig

# -- up-calls


def test_evict_makes_room(arbiter: Arbiter, pool: Pool) -> None:
    asked: list[tuple[int, int]] = []
    cached: list[Reservation] = []

    def evict(number: int, bytes: int, reservation: int) -> int:
        asked.append((number, bytes))
        made = cached[0].bytes
        cached[0].release()
        return made

    def serve() -> int:
        served = 0
        while not asked:
            served += arbiter.serve(30)
        return served

    with arbiter.task(label="cache", bind=False) as keeper, arbiter.context(keeper) as owner:
        cached.append(owner.reserve(60 * MIB, pool))
        assert cached[0].unpin()
        assert pool.state().reclaimable == 0  # nobody could be asked for it
        arbiter.upcalls(evict)
        assert pool.state().reclaimable == 60 * MIB
        thread = Thread(serve)
        with arbiter.task():
            with arbiter.reserve(80 * MIB, pool) as r:
                assert r.bytes == 80 * MIB
        assert thread.result() >= 1
        assert asked[0][0] == pool.id and asked[0][1] >= 40 * MIB
        arbiter.upcalls()
        with pytest.raises(shmstore.Error):
            arbiter.serve(0)


def test_what_was_spilled_comes_back_with_a_pin(arbiter: Arbiter, pool: Pool) -> None:
    with arbiter.task(label="cache", bind=False) as keeper, arbiter.context(keeper) as owner:
        r = owner.reserve(60 * MIB, pool)
        r.unpin()
        r.spilled(60 * MIB)
        wait_for("the spill", lambda: pool.state().used == 0)
        assert pool.state().spilled == 60 * MIB
        owner.pin(r)
        assert pool.state().used == 60 * MIB
        r.release()


def test_what_a_call_back_raises_is_raised(arbiter: Arbiter, pool: Pool) -> None:
    def evict(number: int, bytes: int, reservation: int) -> int:
        raise ZeroDivisionError("evict")

    def serve() -> None:
        while arbiter.serve(30):  # not all that comes asks for room
            pass

    with arbiter.task(label="cache", bind=False) as keeper, arbiter.context(keeper) as owner:
        r = owner.reserve(60 * MIB, pool)
        r.unpin()
        arbiter.upcalls(evict)
        server = Thread(serve)
        with arbiter.task():
            with contextlib.suppress(Outcome):
                arbiter.reserve(80 * MIB, pool, timeout=0.2)
        with pytest.raises(ZeroDivisionError):
            server.result()
        r.release()
        arbiter.upcalls()


def test_serving_ends_with_the_channel(arbiter: Arbiter, store: shmstore.Store) -> None:
    levels: list[int] = []
    arbiter.upcalls(pressure=lambda pool, level: levels.append(level))
    assert arbiter.serve_fd() >= 0
    server = Thread(arbiter.serve)
    store.close()
    with contextlib.suppress(shmstore.Error):
        assert server.result() >= 0


def test_pressure_is_told(arbiter: Arbiter) -> None:
    levels: list[tuple[int, int]] = []
    arbiter.upcalls(pressure=lambda number, level: levels.append((number, level)))
    task = arbiter.task(priority=1, bind=False)
    context = arbiter.context(task)
    with arbiter.task(priority=2), arbiter.reserve(40 * MIB):
        thread = Thread(lambda: context.reserve(40 * MIB))
        until_state(context, "BLOCKED")

        def told() -> bool:
            arbiter.serve(0)
            return (PARTITION, 1) in levels

        wait_for("the pressure", told)
    assert thread.result().bytes == 40 * MIB


# -- event loops


def test_awaiting(arbiter: Arbiter, pool: Pool) -> None:
    async def work() -> list[str]:
        order = []
        with arbiter.task(priority=2, bind=False) as one, arbiter.task(
                priority=1, bind=False) as two:
            first, second = arbiter.context(one), arbiter.context(two)
            held = await first.reserve_async(60 * MIB, pool)
            order.append("first")
            waiting = asyncio.ensure_future(wait_for_it(second, order))
            while second.state().state != "BLOCKED":
                await asyncio.sleep(0)
            order.append("release")
            held.release()
            r = await waiting
            assert r.bytes == 60 * MIB and pool.state().used == 60 * MIB
            r.release()
            both = await second.reserve_many_async([(pool, MIB), (1, 2 * MIB)])
            assert [(x.bytes, x.pool) for x in both] == [(MIB, pool.id), (2 * MIB, 1)]
            assert pool.state().used == MIB
            for x in both:
                x.release()
            await second.ready_async()
        return order

    async def wait_for_it(context: Context, order: list[str]) -> Reservation:
        r = await context.reserve_async(60 * MIB, pool)
        order.append("second")
        return r

    assert asyncio.run(asyncio.wait_for(work(), 30)) == ["first", "release", "second"]
    assert pool.state().used == 0


def test_awaiting_what_fails(arbiter: Arbiter, pool: Pool) -> None:
    async def work() -> None:
        with arbiter.task(bind=False) as task:
            context = arbiter.context(task)
            with pytest.raises(TooBig):
                await context.reserve_async(200 * MIB, pool)
            context.inject("retry")
            with pytest.raises(Retry):
                await context.reserve_async(MIB, pool)
            await context.ready_async()
            with pytest.raises(shmstore.Error):
                await arbiter.thread.reserve_async(MIB, pool)
            with await context.reserve_async(MIB, pool) as r:
                assert r.held

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_cancelled_coroutine_leaves_nothing(arbiter: Arbiter, pool: Pool) -> None:
    async def work() -> None:
        with arbiter.task(priority=2, bind=False) as one, arbiter.task(
                priority=1, bind=False) as two:
            first, second = arbiter.context(one), arbiter.context(two)
            held = await first.reserve_async(60 * MIB, pool)

            async def wait() -> Any:
                return await second.reserve_async(60 * MIB, pool)

            for _ in range(3):
                waiting = asyncio.ensure_future(wait())
                while second.state().state != "BLOCKED":
                    await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match="waits already"):
                    second.reserve_async(1, pool)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                while second.state().state != "RUNNING" or arbiter._loops._awaiting:
                    await asyncio.sleep(0)
            # cancelled when it was granted already, but not told
            waiting = asyncio.ensure_future(wait())
            while second.state().state != "BLOCKED":
                await asyncio.sleep(0)
            held.release()
            wait_for("the grant", lambda: second.state().state == "RUNNING")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while pool.state().used:
                await asyncio.sleep(0)
            (await second.reserve_async(90 * MIB, pool)).release()

    asyncio.run(asyncio.wait_for(work(), 30))
    assert not arbiter._loops._watching


def test_the_store_closes_while_awaited(arbiter: Arbiter, store: shmstore.Store,
                                        pool: Pool) -> None:
    async def work() -> None:
        first, second = (arbiter.context(arbiter.task(priority=p, bind=False)) for p in (2, 1))
        held = await first.reserve_async(60 * MIB, pool)
        waiting = asyncio.ensure_future(asyncio.wait_for(second.reserve_async(60 * MIB, pool), 30))
        while second.state().state != "BLOCKED":
            await asyncio.sleep(0)
        store.close()
        with pytest.raises(shmstore.ClosedError):
            await waiting
        held.release()

    asyncio.run(work())


def test_by_descriptor(arbiter: Arbiter, pool: Pool) -> None:
    with arbiter.task(priority=2, bind=False) as one, arbiter.task(priority=1, bind=False) as two:
        first, second = arbiter.context(one), arbiter.context(two)
        done = first.reserve_async(60 * MIB, pool)
        if not done.done:
            assert select.select([arbiter.fd()], [], [], 30)[0]
            assert arbiter.next() is done
        pending = second.reserve_async(60 * MIB, pool)
        until_state(second, "BLOCKED")
        assert not pending.done and arbiter.next() is None
        with pytest.raises(RuntimeError, match="not ended"):
            pending.result()
        done.result().release()
        ended: list[Any] = []

        def hear() -> bool:
            assert select.select([arbiter.fd()], [], [], 30)[0]
            ended.append(arbiter.next())
            return ended[-1] is pending

        wait_for("the completion", hear)
        assert pending.result().bytes == 60 * MIB
        pending.result().release()
        third = second.reserve_async(101 * MIB, pool) if False else second.reserve_async(MIB, pool)
        third.cancel()
        wait_for("its end", lambda: third.done or arbiter.next() is third)
