# SPDX-License-Identifier: Apache-2.0
"""A store with an arbiter, but without a daemon: tasks, contexts, reservations and pools as
shmstore.arbiter has them, with a ledger in memory and answers that a test sets."""

from __future__ import annotations

import os
import threading
from collections import deque
from types import SimpleNamespace

from shmstore import arbiter
from shmstore.arbiter import Awaiting
from shmstore.pools import PARTITION


class FakeReservation:
    def __init__(self, daemon, pool, nbytes) -> None:
        self.daemon, self.pool, self.bytes = daemon, pool, nbytes

    def unpin(self) -> None:
        self.daemon.yields.append(self)

    def release(self) -> None:
        self.daemon.resize(self, 0)

    def commit(self, nbytes) -> None:
        self.daemon.log.append(("commit", nbytes))
        self.release()


class FakeContext:
    def __init__(self, daemon) -> None:
        self.daemon = daemon
        self.number = 0  # of its task

    def bind(self, task) -> None:
        self._begin(task, False)

    def bind_helper(self, tasks, service) -> None:
        self._begin(tasks[0], service)

    def _begin(self, task, service) -> None:
        self.number = task.number
        self.daemon.log.append(("begin", task.number, task.priority, task.label, service))

    def reserve(self, nbytes, pool, spill) -> FakeReservation:
        assert spill
        return self.daemon.now(self, [(pool, nbytes)])[0]

    def reserve_many(self, wants, wait) -> tuple[FakeReservation, ...]:
        assert not wait
        return self.daemon.now(self, wants)

    def reserve_async(self, nbytes, pool, timeout) -> Awaiting:
        return self.daemon.reserve(self, [(pool, nbytes)])

    def reserve_many_async(self, wants, timeout) -> Awaiting:
        return self.daemon.reserve(self, wants)

    def ready_async(self, timeout) -> Awaiting:
        self.daemon.log.append(("ready", self.number))
        self.daemon.refuse(self.daemon.script.popleft() if self.daemon.script else None)
        return self.daemon.ended(self, None)

    def resize(self, held, nbytes, wait) -> None:
        assert not wait
        self.daemon.resize(held, nbytes)

    def close(self) -> None:
        pass


class FakeDaemon:
    """Gives what fits; what does not waits until something is released. `script` overrules:
    outcomes of the next reserves and readies."""

    closed = False

    def __init__(self, partition: int = 1 << 40) -> None:
        self.capacity = {PARTITION: partition}
        self.used = {PARTITION: 0}
        self.script: deque[type[arbiter.Outcome] | None] = deque()
        self.log: list[tuple] = []  # (what, …) of all that was sent but books
        self.available = True
        self.why = ""
        self.evict = None
        self.yields: list[FakeReservation] = []
        self._waiting: list[tuple] = []
        self._done: deque[Awaiting] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.RLock()
        self._hushed = threading.Event()
        self._n = 0

    def close(self) -> None:
        os.close(self._fd)

    def asked(self, what: str) -> list[tuple]:
        return [entry[1:] for entry in self.log if entry[0] == what]

    # -- the store, and its arbiter

    @property
    def arbiter(self):
        return self if self.available else None

    def pool(self, name: str, capacity: int):
        number = max(self.capacity) + 1
        self.capacity[number], self.used[number] = capacity, 0

        def resize(capacity: int) -> None:
            self.capacity[number] = capacity
            self._pump()

        return SimpleNamespace(id=number, resize=resize)

    def task(self, priority, label, bind):
        assert not bind
        self._n += 1
        number = self._n

        def end() -> None:
            with self._lock:
                self.log.append(("end", number))
                self._waiting = [entry for entry in self._waiting if entry[0].context.number !=
                                 number]

        return SimpleNamespace(number=number, priority=priority, label=label, end=end)

    def context(self) -> FakeContext:
        return FakeContext(self)

    def fd(self) -> int:
        return self._fd

    def next(self) -> Awaiting | None:
        with self._lock:
            if not self._done:
                return None
            if len(self._done) == 1:
                os.eventfd_read(self._fd)
            return self._done.popleft()

    def upcalls(self, evict=None, pressure=None) -> None:
        if evict is None:
            self._hushed.set()
        else:
            self.evict, self.pressure = lambda nbytes: evict(2, nbytes, 0), pressure

    def serve(self) -> None:
        self._hushed.wait()
        raise OSError("nobody listens any more")

    # -- the ledger

    def now(self, context, wants) -> tuple[FakeReservation, ...]:
        with self._lock:
            self._ask(context, wants)
            if not self._fits(wants):
                self.refuse(arbiter.Again)
            return self._give(wants)

    def reserve(self, context, wants) -> Awaiting:
        with self._lock:
            self._ask(context, wants)
            if self._fits(wants):
                return self.ended(context, self._give(wants))
            waits = Awaiting(None, context, None, None)
            self._waiting.append((waits, wants))
            return waits

    def resize(self, held, nbytes) -> None:
        with self._lock:
            more = nbytes - held.bytes
            if more > 0 and self.used[held.pool] + more > self.capacity[held.pool]:
                self.refuse(arbiter.Again)
            self.used[held.pool] += more
            held.bytes = nbytes
            self._pump()

    def refuse(self, outcome: type[arbiter.Outcome] | None) -> None:
        if outcome is not None:
            raise self._refusal(outcome)

    def ended(self, context, value) -> Awaiting:
        awaiting = Awaiting(None, context, value, None)
        awaiting._complete(None)
        return awaiting

    # -- the test's side

    def answer(self, outcome: type[arbiter.Outcome]) -> None:
        """The first one that waits is told so."""
        with self._lock:
            self._tell(self._waiting.pop(0)[0], self._refusal(outcome))

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    # -- private

    def _refusal(self, outcome: type[arbiter.Outcome]):
        error = outcome()
        error.why = self.why
        return error

    def _ask(self, context, wants) -> None:
        if context.number:
            self.log.append(("reserve", context.number, *wants))
            if self.script:
                self.refuse(self.script.popleft())

    def _fits(self, wants) -> bool:
        return all(self.used[pool] + nbytes <= self.capacity[pool] for pool, nbytes in wants)

    def _give(self, wants) -> tuple[FakeReservation, ...]:
        for pool, nbytes in wants:
            self.used[pool] += nbytes
        return tuple(FakeReservation(self, pool, nbytes) for pool, nbytes in wants)

    def _pump(self) -> None:
        with self._lock:
            for entry in list(self._waiting):
                if self._fits(entry[1]):
                    self._waiting.remove(entry)
                    entry[0]._value = self._give(entry[1])
                    self._tell(entry[0], None)

    def _tell(self, awaiting: Awaiting, error) -> None:
        if not self._done:
            os.eventfd_write(self._fd, 1)
        awaiting._complete(error)
        self._done.append(awaiting)
