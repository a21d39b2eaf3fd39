# SPDX-License-Identifier: Apache-2.0
"""How much of a host's processors a process has, and how much more it would have if there were more: as the kernel counts it for each thread."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from dask.system import CPU_COUNT

_THREADS = "/proc/self/task"


class Processors:
    """Of this process, from the last look to the next one."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._before = _counted()

    def look(self) -> dict[str, float]:
        """`processors`: how many it may use; `ran`: how many its threads had on average since the last look; `waited`: how many threads waited for
        one. Empty where the kernel does not count it."""
        now, counted = time.monotonic(), _counted()
        before, passed = self._before, now - self._at
        self._at, self._before = now, counted
        if not counted or passed <= 0:
            return {}
        ran = sum(ran - before.get(thread, (0, 0))[0] for thread, (ran, _) in counted.items())
        waited = sum(waited - before.get(thread, (0, 0))[1] for thread, (_, waited) in counted.items())
        return {"processors": CPU_COUNT, "ran": ran / 1e9 / passed, "waited": waited / 1e9 / passed}


def _counted() -> dict[str, tuple[int, int]]:
    """{thread: nanoseconds on a processor, and waiting for one}."""
    counted = {}
    for thread in os.listdir(_THREADS):
        with suppress(OSError), open(f"{_THREADS}/{thread}/schedstat", "rb", buffering=0) as file:  # it has ended
            ran, waited, _ = file.read(128).split()
            counted[thread] = int(ran), int(waited)
    return counted
