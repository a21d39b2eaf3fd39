# SPDX-License-Identifier: Apache-2.0
"""Threads: the GIL is free while the library works, and a close in the midst of calls is
only an exception to them."""

import os
import random
import threading
import time

import numpy as np
import pytest

import shmstore
from conftest import wait_for


class Ticker:
    """A thread that notes the time over and over: what it noted during a call, it noted
    without the GIL being held."""

    def __enter__(self):
        self.stamps, self.stop = [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.stop:
            self.stamps.append(time.perf_counter())
            time.sleep(0.0002)  # paces the thread; nothing waits for it

    def __exit__(self, *exc):
        self.stop = True
        self.thread.join()

    def within(self, act):
        """Stamps inside the middle half of the call."""
        self.stamps = []
        start = time.perf_counter()
        act()
        end = time.perf_counter()
        quarter = (end - start) / 4
        return sum(start + quarter < stamp < end - quarter for stamp in self.stamps)


BIG = 128 << 20


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("call", ["put", "checksum", "verify", "adopt", "close", "usage", "gc",
                                  "partition", "list"])
def test_gil_is_released(partition, store, call):
    data = np.ones(BIG, "u1")
    if call in ("verify", "adopt"):
        store.put_buffers("big", b"", [data], checksum=True)
    if call in ("usage", "partition", "list"):
        for i in range(30000):
            store.put_buffers(str(i), b"", [])
    closing = []

    def prepare():
        """Makes the conditions of a call anew each time; not timed."""
        if call == "close":
            victim = partition.open(f"victim-{len(closing)}")
            for i in range(5000):
                victim.put_buffers(str(i), b"", [])
            closing.append(victim)
        if call == "gc":
            for i in range(5000):
                store.put_buffers("k", b"", [], replace=True)
                store.handoff("k", lease=0.001)
        if call == "adopt":
            closing.append(store.handoff("big"))

    acts = {
        "put": lambda: store.put_buffers("k", b"", [data], replace=True),
        "checksum": lambda: store.put_buffers("k", b"", [data], replace=True, checksum=True),
        "verify": lambda: store.view("big", verify=True),
        "adopt": lambda: store.adopt("copy", closing[-1], replace=True, verify=True),
        "close": lambda: closing[-1].close(),
        "usage": lambda: store.usage(),
        "gc": lambda: partition.gc(),
        "partition": lambda: partition.usage(full=True),
        "list": lambda: store.objects(),
    }
    # A stamp now and then proves nothing, the thread may have got in just before the
    # call: it has to be the rule.
    rounds = passed = 0
    with Ticker() as ticker:
        end = time.monotonic() + 60
        while rounds < 5 or passed * 3 < rounds:
            prepare()
            passed += ticker.within(acts[call]) >= 3
            rounds += 1
            assert time.monotonic() < end, (
                f"another thread ran in the middle of {passed} of {rounds} calls only")


def test_many_threads_on_one_store(store):
    failures = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(300):
            key, value = str(rng.randrange(10)), rng.randrange(256)
            try:
                action = rng.randrange(6)
                if action < 2:
                    store[key] = np.full(rng.randrange(1, 40000), value, "u1")
                elif action < 4:
                    got = store.get(key, cow=action == 2)
                    if got is not None and not (got == got[0]).all():
                        failures.append(key)
                elif action == 4:
                    store.pop(key, None)
                else:
                    store.adopt(str(rng.randrange(10)), store.handoff(key), replace=True)
            except KeyError:
                pass
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all((value == value[0]).all() for value in store.values())


@pytest.mark.parametrize("round_", range(20))
def test_close_while_others_are_inside(partition, round_):
    store = partition.open("victim")
    data = np.ones(200000, "u1")
    started, failures, views = threading.Barrier(7), [], []

    def work(i):
        started.wait()
        try:
            while True:
                store.put_buffers(str(i), b"", [data], replace=True)
                views.append(store.view(str(i)))
                len(store), store.usage(), str(i) in store
                store.create("w", 0, [1000])  # forgotten: aborted, also after the close
        except shmstore.ClosedError:
            pass
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    closers = [threading.Thread(target=lambda: (started.wait(), store.close())) for _ in range(2)]
    for thread in threads + closers:
        thread.start()
    started.wait()
    store.close()
    assert store.closed and not os.path.exists(store.path), (
        "close came back before the store was closed")
    for thread in threads + closers:
        thread.join()
    assert failures == []
    assert all(view.nbytes == 200000 and memoryview(view)[199999] == 1 for view in views)


def test_close_waits_for_a_put(partition):
    store = partition.open("victim")
    data = np.ones(BIG, "u1")
    thread = threading.Thread(target=lambda: store.put_buffers("k", b"", [data], checksum=True))
    inflight = (lambda: partition.stores()[0].counters.reserved_n or thread.ident and
                not thread.is_alive())
    thread.start()
    wait_for("the put", inflight)
    store.close()
    thread.join()
    assert not os.path.exists(store.path) and partition.stores() == []


def test_writers_in_threads(store):
    failures = []

    def work(i):
        for j in range(100):
            try:
                with store.create(f"{i}", 4, [20000], replace=True) as writer:
                    writer.header[:] = b"%4d" % j
                    np.frombuffer(writer.buffers[0], "u1")[:] = i
                view = store.view(f"{i}")
                if view.header != b"%4d" % j or bytes(view) != bytes([i]) * 20000:
                    failures.append((i, j))
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def all_at_once(*acts):
    """Runs these in threads that begin together; returns what they raised."""
    barrier, raised = threading.Barrier(len(acts)), []

    def run(act):
        barrier.wait()
        try:
            act()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=[act]) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_exports_of_a_writer_are_counted(store):
    """Without the GIL and the writer's lock some of them would be lost, and it could
    not be sealed, or too soon."""
    writer = store.create("w", 10, [10])

    def look():
        for _ in range(20000):
            writer.header.release()

    assert not all_at_once(*[look] * 4)
    writer.seal()


@pytest.mark.parametrize("what", ["header", "seal", "abort", "partition", "store"])
def test_one_object_in_many_threads(partition, store, what):
    store.put_buffers("k", b"header" * 100, [b"data"])
    for i in range(300):
        if what == "header":
            view = store.view("k")
            headers = []
            assert not all_at_once(*[lambda: headers.append(view.header)] * 4)
            assert len({id(header) for header in headers}) == 1
        elif what in ("seal", "abort"):
            writer = store.create("w", 10, [10], replace=True)
            raised = all_at_once(getattr(writer, what), lambda: writer.buffers[0].release(),
                                 lambda: bytes(writer.header), writer.abort)
            assert all(isinstance(error, (ValueError, BufferError)) for error in raised)
            writer.abort()
            assert writer.closed
        elif what == "partition":
            mine = shmstore.Partition(partition.path)
            raised = all_at_once(mine.close, mine.info, mine.info, mine.close)
            assert mine.closed and all(isinstance(error, shmstore.ClosedError) for error in raised)
        else:
            mine = partition.open(f"mine-{i}")
            mine["k"] = i
            raised = all_at_once(mine.close, lambda: mine["k"], lambda: mine["k"], mine.close)
            assert mine.closed and all(isinstance(error, shmstore.ClosedError) for error in raised)
