# SPDX-License-Identifier: Apache-2.0
"""How long single calls hold a worker's event loop. `watch` and `report` run on each worker (Client.run).

A call's time is taken from its begin to its end, less what the loop's thread waited for a processor meanwhile (run_delay in
/proc/<pid>/task/<tid>/schedstat): a busy machine holds everything, and is not what is asked about. Waiting for the disk, a lock or the
interpreter counts.
"""
import asyncio
import os
import threading
import time

BOUND = 0.005  # seconds


class _Watch:
    """Of one process, in place of asyncio's Handle._run."""

    def __init__(self):
        self.stat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self.longest, self.what, self.n, self.n_over = 0.0, "", 0, 0
        self.stock = asyncio.Handle._run
        watch, stock = self, self.stock

        def run(handle):
            start, waited = time.perf_counter(), watch.waited()
            try:
                return stock(handle)
            finally:
                watch.note(handle, time.perf_counter() - start - (watch.waited() - waited))

        asyncio.Handle._run = run

    def waited(self):
        return int(os.pread(self.stat, 64, 0).split()[1]) / 1e9

    def note(self, handle, seconds):
        self.n += 1
        self.n_over += seconds > BOUND
        if seconds > self.longest:
            self.longest, self.what = seconds, repr(handle)[:300]


def watch():
    """Begins. Run by a worker's event loop itself."""
    global _watch
    _watch = _Watch()


def report():
    """(longest call in seconds, what it was, calls over BOUND, calls)."""
    return _watch.longest, _watch.what, _watch.n_over, _watch.n
