# SPDX-License-Identifier: Apache-2.0
"""How long single calls hold a worker's event loop. `watch` and `report` run on each worker (Client.run).

A call's time is taken from its begin to its end, less what the loop's thread waited for a processor meanwhile (run_delay in
/proc/<pid>/task/<tid>/schedstat): a busy machine holds everything, and is not what is asked about. Waiting for the disk, a lock or the
interpreter counts.

With stacks, a thread looks every so often where a call is that is over the bound by then. It needs the interpreter for that: a call that keeps
it is seen at the point where it gave it up.
"""
import asyncio
import os
import sys
import threading
import time
import traceback

BOUND = 0.005  # seconds
LOOK = 0.002  # seconds between two looks
DEPTH = 14  # lines of a stack


class _Watch:
    """Of one process, in place of asyncio's Handle._run."""

    def __init__(self, stacks):
        self.stacks = {}  # stack -> [calls, seconds of the longest]
        self.began, self.seen = 0.0, ""
        if stacks:
            threading.Thread(target=self.look, args=(threading.get_ident(),), daemon=True).start()
        self.stat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self.longest, self.what, self.n, self.n_over = 0.0, "", 0, 0
        self.stock = asyncio.Handle._run
        watch, stock = self, self.stock

        def run(handle):
            start, waited = time.perf_counter(), watch.waited()
            watch.began = start
            try:
                return stock(handle)
            finally:
                watch.began = 0.0
                watch.note(handle, time.perf_counter() - start - (watch.waited() - waited))

        asyncio.Handle._run = run

    def waited(self):
        return int(os.pread(self.stat, 64, 0).split()[1]) / 1e9

    def note(self, handle, seconds):
        self.n += 1
        self.n_over += seconds > BOUND
        if seconds > BOUND:
            calls = self.stacks.setdefault(self.seen or f"(no stack) {handle!r}"[:300], [0, 0.0])
            calls[0], calls[1] = calls[0] + 1, max(calls[1], seconds)
        self.seen = ""
        if seconds > self.longest:
            self.longest, self.what = seconds, repr(handle)[:300]

    def look(self, loop):
        looked = 0.0
        while True:
            time.sleep(LOOK)
            began = self.began
            if began and began != looked and time.perf_counter() - began > BOUND - LOOK:
                frame = sys._current_frames().get(loop)
                if frame is not None and self.began == began:
                    looked, self.seen = began, "".join(traceback.format_stack(frame)[-DEPTH:])
                del frame


def watch(stacks=False):
    """Begins. Run by a worker's event loop itself."""
    global _watch
    _watch = _Watch(stacks)


def report():
    """(longest call in seconds, what it was, calls over BOUND, calls)."""
    return _watch.longest, _watch.what, _watch.n_over, _watch.n


def stacks():
    """{stack of a call over BOUND: [how many, seconds of the longest]}."""
    return _watch.stacks
