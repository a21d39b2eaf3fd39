# SPDX-License-Identifier: Apache-2.0
"""A worker's private budget: its memory limit times the target, less memory that is not values.

    limit x target = unmanaged + values + claims + free

    unmanaged   measured: what the process has beyond its values and its claims. It grows at once and is forgotten slowly, as
                tasks' scratch memory comes and goes
    values      private values of the data mapping: they can leave
    claims      what running keys were granted: inputs that they read into private memory, and their results

All is of one event loop.
"""

from __future__ import annotations

from collections.abc import Callable

_FLOOR = 8  # of the budget one part in so many remains, whatever the process takes: it is measured, not known
_FORGET = 0.8  # of what unmanaged memory was over the present, at each look


class Budget:
    """limit: of the process, in bytes; target and terminate: shares of it. values: bytes of private values now."""

    def __init__(self, limit: int, target: float, terminate: float, values: Callable[[], float], measure: Callable[[], int]) -> None:
        self.limit = limit
        self.whole = int(limit * target)
        self.last = int(limit * (terminate or 1.0))
        self.unmanaged = 0
        self.claims: dict[str, int] = {}  #: by key
        self.unasked = 0  #: bytes of them that the arbiter knows nothing of
        self._values = values
        self._measure = measure

    def look(self) -> None:
        """Brings unmanaged memory up to date."""
        try:
            measured = self._measure()
        except OSError:
            return
        now = max(0, measured - self.values - self.claimed)
        self.unmanaged = max(now, int(now + (self.unmanaged - now) * _FORGET))

    @property
    def values(self) -> int:
        return int(self._values())

    @property
    def claimed(self) -> int:
        return sum(self.claims.values())

    @property
    def capacity(self) -> int:
        """For values and claims together."""
        return max(self.whole - self.unmanaged, self.whole // _FLOOR)

    @property
    def ceiling(self) -> int:
        """Bytes that one key alone may take before the process is ended for it."""
        return max(self.last - self.unmanaged, self.whole // _FLOOR)

    def fits(self, nbytes: int) -> bool:
        """Beside what there is now."""
        return self.values + self.claimed + nbytes <= self.capacity

    def claim(self, key: str, nbytes: int, asked: bool) -> None:
        """More for a key that runs. asked: the arbiter gave it."""
        if nbytes:
            self.claims[key] = self.claims.get(key, 0) + nbytes
            self.unasked += 0 if asked else nbytes

    def unclaim(self, key: str, nbytes: int, asked: bool) -> None:
        """Undoes it."""
        left = self.claims.get(key, 0) - nbytes
        self.unasked -= 0 if asked else nbytes
        if left > 0:
            self.claims[key] = left
        else:
            self.claims.pop(key, None)

    def holders(self, most: int = 5) -> str:
        """The holders of memory, for people."""
        parts = [f"{_mib(self.unmanaged)} other than values, {_mib(self.values)} private values"]
        largest = sorted(self.claims.items(), key=lambda item: -item[1])
        parts += [f"{_mib(nbytes)} running {key}" for key, nbytes in largest[:most]]
        if len(largest) > most:
            parts.append(f"{_mib(sum(nbytes for _, nbytes in largest[most:]))} {len(largest) - most} more")
        return ", ".join(parts)


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
