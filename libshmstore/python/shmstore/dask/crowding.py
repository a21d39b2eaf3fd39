# SPDX-License-Identifier: Apache-2.0
"""When one task more on a host would make nothing faster, and only take memory: all of its processors are in use, and threads wait for them.

What is held back then might still have run: tasks also wait for their inputs, and for the next one to come. Where processors are found idle though tasks
were held back, none are for some time, each time for twice as long.
"""

from __future__ import annotations

import math

from .amm.hosts import Host

_IDLE = 0.05  # the share of a host's processors that is idle, up to which they are all in use
_OURS = 0.85  # the share of a host's processors that the workers themselves have, from which on their threads wait for each other, not for neighbours
_WAITS = 0.5  # threads that wait for a processor, ...
_WAITING = 0.125  # ... and those for each that has one, from which on there are more than enough, ...
_ENOUGH = 1.25  # ... if so many tasks for each processor stay: while a worker gets its next task, another one's runs
_PAUSE = 4.0  # seconds in which nothing is held back, at first ...
_PAUSE_MAX = 64.0  # ... and at most
_FORGIVEN = 1.0  # of that for each look that finds tasks held back, and no processor idle


class Crowding:
    """Of the host of all workers."""

    def __init__(self) -> None:
        self._most = math.inf  # tasks at once
        self._held = False  # some were held back since the last look
        self._pause = _PAUSE
        self._paused_until = 0.0

    def look(self, host: Host, now: float) -> None:
        """At what its workers said last; now and then."""
        idle = host.idle > _IDLE
        if self._held and idle:
            self._paused_until = now + self._pause
            self._pause = min(2 * self._pause, _PAUSE_MAX)
        elif self._held:
            self._pause = max(self._pause - _FORGIVEN, _PAUSE)
        self._held = False
        ours = host.ran >= _OURS * host.processors
        crowded = ours and not idle and now >= self._paused_until and host.waited >= max(_WAITS, host.ran * _WAITING)
        self._most = math.ceil(max(host.ran, host.processors) * _ENOUGH) if crowded else math.inf

    def holds(self, running: int) -> bool:
        """Whether no more tasks are to run than those."""
        held = running >= self._most
        self._held = self._held or held
        return held
