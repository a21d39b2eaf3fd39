# SPDX-License-Identifier: Apache-2.0
"""How long single calls hold a worker's event loop, and by what. `watch` and `report` run
on each worker (Client.run).

A call's time is taken from its begin to its end, less what the loop's thread waited for a
processor meanwhile (run_delay in /proc/<pid>/task/<tid>/schedstat): a busy machine holds
everything, and is not what is asked about. Waiting for the disk, a lock or the interpreter counts.
So a call's time is what its thread ran, and what it slept: waited for something other than a
processor. Mostly that is the interpreter, and whoever has it may be the one who waits for a
processor: of what a call slept it is said for how long a single other thread of the process did
(at most; it need not be the one that had the interpreter).

With stacks, a thread looks every so often where a call is that is over the bound by then. It needs
the interpreter for that: a call that keeps it is seen at the point where it gave it up.
"""
import asyncio
import contextlib
import gc
import os
import sys
import threading
import time
import traceback
from typing import NamedTuple

BOUND = 0.005  # seconds
LOOK = 0.002  # seconds between two looks
FRESH = 0.002  # seconds for which it is known how long other threads have waited
THREADS = 0.5  # seconds between two looks for new threads
DEPTH = 14  # lines of a stack


class Call(NamedTuple):
    """Seconds of one call: held is ran and slept together."""

    held: float = 0.0
    ran: float = 0.0  #: on a processor
    collected: float = 0.0  #: of that, collecting garbage
    slept: float = 0.0  #: waiting for the disk, a lock or the interpreter, which another thread has
    #: of that, at most, while another thread of the process waited for a processor
    behind: float = 0.0
    queued: float = 0.0  #: waiting for a processor: not part of held
    what: str = ""


class _Others:
    """How long the other threads of this process have waited for a processor so far."""

    def __init__(self):
        self._stats = {}  # thread -> descriptor of its schedstat
        self._own = threading.get_native_id()
        self._listed, self._at, self._before = 0.0, 0.0, {}

    def mark(self, now):
        """Waits are counted from here on, or from a moment before."""
        if now - self._at > FRESH:
            if now - self._listed > THREADS:
                self._listed = now
                self._list()
            self._at, self._before = now, self._waits()

    def most(self):
        """Seconds that one of them has waited since the mark."""
        return max((wait - self._before.get(thread, wait)
                    for thread, wait in self._waits().items()), default=0.0)

    def _list(self):
        for thread in os.listdir("/proc/self/task"):
            if thread not in self._stats and int(thread) != self._own:
                with contextlib.suppress(OSError):
                    self._stats[thread] = os.open(f"/proc/self/task/{thread}/schedstat",
                                                  os.O_RDONLY)

    def _waits(self):
        waits = {}
        for thread, fd in list(self._stats.items()):
            try:
                waits[thread] = _wait_in(fd)
            except OSError:  # it has ended
                os.close(self._stats.pop(thread))
        return waits


def _wait_in(schedstat):
    """Seconds that a thread has waited for a processor."""
    return int(os.pread(schedstat, 64, 0).split()[1]) / 1e9


class _Watch:
    """Of one process, in place of asyncio's Handle._run."""

    def __init__(self, stacks):
        self.stacks = {}  # stack -> [calls, seconds of the longest]
        self.began, self.seen = 0.0, ""
        self.loop, self.collected = threading.get_ident(), 0.0
        if stacks:
            threading.Thread(target=self.look, daemon=True).start()
        self.stat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self.others = _Others()
        self.longest, self.n, self.n_over = Call(), 0, 0
        self.stock = asyncio.Handle._run
        watch, stock = self, self.stock

        def run(handle):
            before = watch.clocks()
            watch.others.mark(before[0])
            watch.began = before[0]
            try:
                return stock(handle)
            finally:
                watch.began = 0.0
                watch.note(handle, *(after - then for after, then in zip(watch.clocks(), before)))

        asyncio.Handle._run = run
        gc.callbacks.append(self.collects)

    def collects(self, phase, _):
        """Python begins or ends to collect garbage, in whichever thread."""
        if threading.get_ident() == self.loop:
            self.collected += time.thread_time() if phase == "stop" else -time.thread_time()

    def clocks(self):
        """Seconds in all, on a processor, collecting garbage, and waiting for a processor."""
        return time.perf_counter(), time.thread_time(), self.collected, _wait_in(self.stat)

    def note(self, handle, passed, ran, collected, queued):
        held = passed - queued
        self.n += 1
        if held > BOUND:
            self.n_over += 1
            calls = self.stacks.setdefault(self.seen or f"(no stack) {handle!r}"[:300],
                                           [0, 0.0, 0.0])
            if held > calls[1]:
                calls[1:] = held, ran
            calls[0] += 1
        self.seen = ""
        if held > self.longest.held:
            slept = max(0.0, held - ran)
            self.longest = Call(held, ran, collected, slept, min(slept, self.others.most()), queued,
                                repr(handle)[:300])

    def look(self):
        looked = 0.0
        while True:
            time.sleep(LOOK)
            began = self.began
            if began and began != looked and time.perf_counter() - began > BOUND - LOOK:
                frame = sys._current_frames().get(self.loop)
                if frame is not None and self.began == began:
                    looked, self.seen = began, "".join(traceback.format_stack(frame)[-DEPTH:])
                del frame


def watch(stacks=False):
    """Begins. Run by a worker's event loop itself."""
    global _watch
    _watch = _Watch(stacks)


def report():
    """(the longest Call, calls over BOUND, calls)."""
    return tuple(_watch.longest), _watch.n_over, _watch.n


def stacks():
    """{stack of a call over BOUND: [how many, seconds that the longest held the loop, and ran]}."""
    return _watch.stacks
