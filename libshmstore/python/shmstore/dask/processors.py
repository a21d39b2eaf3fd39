# SPDX-License-Identifier: Apache-2.0
"""How much of a host's processors a process has, how much more it would have if there were more, and how much nobody uses: as the kernel counts it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from dask.system import CPU_COUNT

_THREADS = "/proc/self/task"
_MACHINE = "/proc/stat"
_TICKS = os.sysconf("SC_CLK_TCK")


class Processors:
    """Of this process, from the last look to the next one."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._before = _counted()
        self._idle_before = _idle()

    def look(self) -> dict[str, float]:
        """`processors`: how many it may use; `ran`: how many its threads had on average since the last look; `waited`: how many threads waited for
        one; `idle`: which share of the machine's had nothing to do. Empty where the kernel does not count it."""
        now, counted, idle = time.monotonic(), _counted(), _idle()
        before, passed = self._before, now - self._at
        self._at, self._before = now, counted
        idle_before, self._idle_before = self._idle_before, idle
        if not counted or idle is None or idle_before is None or passed <= 0:
            return {}
        ran = sum(ran - before.get(thread, (0, 0))[0] for thread, (ran, _) in counted.items())
        waited = sum(waited - before.get(thread, (0, 0))[1] for thread, (_, waited) in counted.items())
        idled = (idle - idle_before) / passed / (os.cpu_count() or 1)
        return {"processors": CPU_COUNT, "ran": ran / 1e9 / passed, "waited": waited / 1e9 / passed, "idle": min(max(0.0, idled), 1.0)}


def _counted() -> dict[str, tuple[int, int]]:
    """{thread: nanoseconds on a processor, and waiting for one}."""
    counted = {}
    for thread in os.listdir(_THREADS):
        with suppress(OSError), open(f"{_THREADS}/{thread}/schedstat", "rb", buffering=0) as file:  # it has ended
            ran, waited, _ = file.read(128).split()
            counted[thread] = int(ran), int(waited)
    return counted


def _idle() -> float | None:
    """Seconds for which the machine's processors had nothing to do so far, together; None where that may not be read."""
    try:
        with open(_MACHINE, "rb", buffering=0) as file:
            _, _user, _nice, _system, idle, waiting, *_ = file.read(256).split()
    except OSError:
        return None
    return (int(idle) + int(waiting)) / _TICKS
