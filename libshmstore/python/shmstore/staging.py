# SPDX-License-Identifier: Apache-2.0
"""How a worker's memory is divided for one stage of a job: docs/governor.md.

>>> profile = store.stage_profile("shuffle-3", other=4)          # nothing of it can be shared
>>> with store.stage("shuffle-3", profile) as stage:             # waits for what others hold
...     run(stage.profile.private, stage.profile.slots)
>>> stage.profile.rules                                          # outside of the stage: the base

Where no daemon is, a profile is None, and a stage runs without one.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from .profiling import unless

if TYPE_CHECKING:
    from .arbiter import Pool
    from .store import Store

__all__ = ["Stage", "StageProfile"]

_ROOTS = {"exchange": 0, "final": 1}
_FALLBACKS = {None: 0, "none": 1, "partial": 2, "whole": 3}
_RULES = ("whole", "partial")
_UNKNOWN = 2**32 - 1
_AS_CONFIGURED = 2**64 - 1


class StageProfile(NamedTuple):
    """A worker's share for a stage. Sizes are bytes."""

    profile: int  #: its number, while the daemon lives; 0: the base
    rules: tuple[str, ...]  #: of a query: those that apply, of whole, partial
    clamped: bool  #: the rules say more private memory than the cap allows
    degraded: bool  #: of a stage: less than the profile, as others hold the rest
    slots: int  #: tasks at once
    private: int
    shared: int
    expires_ms: int  #: after that a query may say something else

    @property
    def private_per_slot(self) -> int:
        return self.private // self.slots

    @property
    def shared_per_slot(self) -> int:
        return self.shared // self.slots


def _profile(answer: tuple[int, int, bool, bool, int, int, int, int]) -> StageProfile:
    return StageProfile(answer[0], tuple(name for i, name in enumerate(_RULES)
                                         if answer[1] >> i & 1), *answer[2:])


def stage_profile(
    store: Store, name: str, native: int = 0, convert: int = 0, other: int = 0,
    nonshare: float | None = None, root: str = "exchange",
    fallback: str | None = None, slots: int = 0,
) -> StageProfile | None:
    """The amounts that this store should have for a stage (see
    `shmstore.staging`); None: there is no daemon.

    native, convert, other: its operators on the store, its copies between that and
    private memory, and all others. nonshare: of its bytes, the share that cannot be
    shared. fallback: "none", "partial" or "whole" instead of what these say. slots:
    at most so many tasks at once.
    """
    ppm = _UNKNOWN if nonshare is None else round(nonshare * 1_000_000)
    with unless(errno.ENOTSUP):
        return _profile(store._stage_query(name, native, convert, other, ppm, _ROOTS[root],
                                           _FALLBACKS[fallback], slots))
    return None


def _number(profile: StageProfile | int | None) -> int:
    return profile.profile if isinstance(profile, StageProfile) else profile or 0


class Stage:
    """A stage that a store is in, from the begin of its block to its end.

    With a pool of the arbiter (`Arbiter.pool`) that is resized to the private bytes of the stage,
    and back to those of the base at its end.
    """

    def __init__(self, store: Store, name: str, profile: StageProfile | int | None,
                 other: StageProfile | int | None, wait: float | None, pool: Pool | None) -> None:
        self._store = store
        self._name = name
        self._profile = _number(profile)
        self._other = self._profile if other is None else _number(other)
        self._wait_ms = _AS_CONFIGURED if wait is None else max(0, round(wait * 1000))
        self._pool = pool
        self._in = False
        #: what the store has now; None: there is no daemon, or no stage has begun
        self.profile: StageProfile | None = None

    def begin(self) -> StageProfile | None:
        """Waits, at most as configured, for what others hold. None: there is no daemon."""
        with unless(errno.ENOTSUP):
            self.profile = _profile(self._store._stage_begin(self._name, self._profile, self._other,
                                                             self._wait_ms))
            self._in = True
        if not self._in:
            return None
        self._resize()
        return self.profile

    def end(self) -> None:
        """It has ended. Once; more often is no error."""
        if not self._in:
            return
        self._in, before = False, self.profile
        # A daemon that was started anew, and a close of the store, have ended it.
        with unless(errno.ENOTSUP, errno.ENOENT, errno.EBADF):
            self.profile = _profile(self._store._stage_end())
        if self.profile is not before:
            self._resize()

    def _resize(self) -> None:
        if self._pool is not None and self.profile is not None:
            self._pool.resize(self.profile.private)

    def __enter__(self) -> Stage:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
