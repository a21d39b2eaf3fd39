# SPDX-License-Identifier: Apache-2.0
"""An arbiter without a daemon: what shmstore.dask asks of one (arbport.Port), with a ledger in memory and answers that a test sets."""

from __future__ import annotations

import os
import threading
from collections import deque

from shmstore.dask.arbport import PARTITION, Answer, Done, Outcome


class FakePort:
    """Gives what fits; what does not waits until something is released. `script` overrules: outcomes of the next reserves and readies."""

    def __init__(self, partition: int = 1 << 40) -> None:
        self.capacity = {PARTITION: partition}
        self.used = {PARTITION: 0}
        self.script: deque[Outcome] = deque()
        self.log: list[tuple] = []  # (what, …) of all that was sent but books
        self.there = True
        self.why = ""
        self.evict = None
        self.yields: list[dict] = []
        self._waiting: list[tuple] = []
        self._done: deque[Done] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.RLock()
        self._hushed = threading.Event()
        self._n = 0

    def close(self) -> None:
        os.close(self._fd)

    def asked(self, what: str) -> list[tuple]:
        return [entry[1:] for entry in self.log if entry[0] == what]

    # -- Port

    def available(self) -> bool:
        return self.there

    def pool(self, name: str, capacity: int) -> int:
        number = max(self.capacity) + 1
        self.capacity[number], self.used[number] = capacity, 0
        return number

    def resize_pool(self, pool: int, capacity: int) -> None:
        self.capacity[pool] = capacity
        self._pump()

    def begin(self, priority, label, service):
        self._n += 1
        self.log.append(("begin", self._n, priority, label, service))
        return self._n

    def loose(self):
        return 0

    def end(self, scope) -> None:
        with self._lock:
            self.log.append(("end", scope))
            self._waiting = [entry for entry in self._waiting if entry[0] != scope]

    def reserve(self, scope, wants, timeout, wait, spill) -> Answer:
        with self._lock:
            if scope:
                self.log.append(("reserve", scope, *wants))
                if self.script and (outcome := self.script.popleft()) is not Outcome.OK:
                    return Answer(outcome, (), self.why)
            if self._fits(wants):
                return self._give(wants)
            if not wait or spill:
                return Answer(Outcome.AGAIN)
            self._waiting.append((scope, wants))
            return Answer(Outcome.PENDING)

    def ready(self, scope, timeout) -> Answer:
        self.log.append(("ready", scope))
        return Answer(self.script.popleft() if self.script else Outcome.OK)

    def resize(self, scope, held, nbytes) -> bool:
        with self._lock:
            more = nbytes - held["bytes"]
            if more > 0 and self.used[held["pool"]] + more > self.capacity[held["pool"]]:
                return False
            self.used[held["pool"]] += more
            held["bytes"] = nbytes
            self._pump()
            return True

    def yielding(self, held) -> None:
        self.yields.append(held)

    def release(self, held) -> None:
        with self._lock:
            self.used[held["pool"]] -= held["bytes"]
            held["bytes"] = 0
            self._pump()

    def commit(self, held, nbytes) -> None:
        self.log.append(("commit", nbytes))
        self.release(held)

    def fd(self) -> int:
        return self._fd

    def next(self):
        with self._lock:
            if not self._done:
                return None
            if len(self._done) == 1:
                os.eventfd_read(self._fd)
            return self._done.popleft()

    def listen(self, evict, pressure) -> None:
        self.evict, self.pressure = evict, pressure

    def serve(self) -> None:
        self._hushed.wait()

    def hush(self) -> None:
        self._hushed.set()

    # -- the test's side

    def answer(self, outcome: Outcome) -> None:
        """The first one that waits is told so."""
        with self._lock:
            scope, _ = self._waiting.pop(0)
            self._tell(Done(scope, Answer(outcome, (), self.why)))

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    # -- private

    def _fits(self, wants) -> bool:
        return all(self.used[pool] + nbytes <= self.capacity[pool] for pool, nbytes in wants)

    def _give(self, wants) -> Answer:
        for pool, nbytes in wants:
            self.used[pool] += nbytes
        return Answer(Outcome.OK, tuple({"pool": pool, "bytes": nbytes} for pool, nbytes in wants))

    def _pump(self) -> None:
        with self._lock:
            for entry in list(self._waiting):
                if self._fits(entry[1]):
                    self._waiting.remove(entry)
                    self._tell(Done(entry[0], self._give(entry[1])))

    def _tell(self, done: Done) -> None:
        if not self._done:
            os.eventfd_write(self._fd, 1)
        self._done.append(done)
