# SPDX-License-Identifier: Apache-2.0
"""Objects that live in one process and are called from others, one call after the other, and that
may be moved: docs/actors.md.

>>> with store.place("first") as place:                      # in one process: takes actors
...     place.begin("counter", Counter())
...     place.serve()                                        # until place.stop(), in this thread
>>> counter = store.actor("counter")                         # in another process of the user
>>> counter.call("add", 3)
3
>>> calls = [counter.send("add", 1) for _ in range(100)]     # answered in this order, each once
>>> counter.move("second")                                   # to the process with that place
>>> [c.result() for c in calls][-1]
103

An actor is any object that can be pickled, and is moved as its pickle; the buffers of its arrays
are not copied where both stores are of one partition.
"""

from __future__ import annotations

import errno
import pickle
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .errors import Error

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Actor", "ActorLost", "Call", "Place"]

_RUN, _STOP, _SAVE, _LOAD, _DROP = 1, 2, 3, 4, 5
_NONE, _OK, _FAILED, _LOST = 0, 1, 2, 4
_CAN_SAVE, _CAN_LOAD = 1, 2
_LEVELS = ("never", "low", "med", "high", "always")
# seconds: in one call of the library; between two of them signals are handled, and a close is seen
_SLICE = 0.1


class ActorLost(RuntimeError):
    """The actor has ended, or its process has: it may have run the call, and nobody knows. Or no
    actor has the name, so that nothing has run the call."""


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _copies(copies: float | str | None, **options: str | int | list[str] | None) -> str:
    """The words of the section `peers` that these options are; None: as it says."""
    if copies is not None and copies is not True:
        number = (copies if isinstance(copies, str) else f"frac:{copies}"
                  if isinstance(copies, float) else f"explicit:{copies}")
        options["num"] = f"explicit:{copies}" if copies == "max" else number if copies else None
    words = {"copies": None if copies is None else "yes" if copies else "no", **options}
    return " ".join(f"{key.replace('_', '-')}={_word(value)}" for key, value in words.items()
                    if value is not None)


def _word(value: str | int | list[str]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, (int, str)) else "fixed:" + ",".join(value)


class Call:
    """A call under way. Its answer is not waited for by anybody once this object has
    gone; it is run all the same."""

    def __init__(self, store: Store, actor: str, call: object) -> None:
        self._store, self._actor, self._call = store, actor, call

    def done(self) -> bool:
        """Is the answer there?"""
        return self._answer(0) is not None

    def result(self, timeout: float | None = None) -> Any:
        """The answer, or what the actor raised. Raises TimeoutError; ActorLost; Error ENOTSUP:
        the daemon ended meanwhile."""
        answer = self._answer(timeout)
        if answer is None:
            raise TimeoutError(f"actor {self._actor} has not answered within {timeout} s")
        how, data = answer
        if how == _NONE:
            raise ActorLost(f"no actor has the name {self._actor}: none was begun, or it has ended")
        if how == _LOST:
            raise ActorLost(f"actor {self._actor} has ended; whether it ran this call is not known")
        value: Any = pickle.loads(data) if data else None
        if how == _FAILED:
            raise value
        return value

    def _answer(self, timeout: float | None) -> tuple[int, bytes] | None:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
            try:
                answer = self._store._actor_answer(self._call, _ms(left))
            except Error as error:
                if error.errno != errno.ENOENT:
                    raise
                return _NONE, b""
            if answer is not None or (end is not None and time.monotonic() >= end):
                return answer


class Actor:
    """An actor by its name, wherever it is: of `Store.actor`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name

    def send(self, method: str, /, *args: object, **kwargs: object) -> Call:
        """Calls a method, and does not wait. Arguments and answer are pickles of about 4,000 bytes
        at most: hand over what is larger by a ticket."""
        data = pickle.dumps((method, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        return Call(self._store, self.name, self._store._actor_call(self.name, data))

    def call(self, method: str, /, *args: object, **kwargs: object) -> Any:
        """As ``send(...).result()``."""
        return self.send(method, *args, **kwargs).result()

    def move(self, place: str | None = None, timeout: float | None = None) -> None:
        """To another place, None: the one that has most room. It is there when this returns.

        Raises ActorLost; Error: ECANCELED: it failed, and the actor goes on where it was; EPERM: it
        must not be moved; EBUSY: it is being moved; ESTALE: no such place.
        """
        Call(self._store, self.name, self._store._actor_move(self.name, place)).result(timeout)


class Place(AbstractContextManager["Place", None]):
    """This process as a place for actors: of `Store.place`. Closed with the block that it is
    used for, or by `close`."""

    def __init__(self, store: Store, name: str, room: int | None) -> None:
        self._store, self.name = store, name
        self._place = store._place_open(name, room)
        self._actors: dict[str, Any] = {}
        self._stop = threading.Event()

    def begin(
        self, name: str, actor: object, *, level: str | int = "low", movable: bool = True,
        parent: str | None = None, step: float = 10.0, suspend: float = 10.0,
        max_restarts: int = 0, copies: float | str | None = None,
        selection: str | list[str] | None = None, strategy: str | None = None,
        frequency: float | None = None, retry: int | None = None,
        panic_on_missing: bool | None = None, preempt_from_stale: bool | str | None = None,
    ) -> None:
        """An actor begins here; `serve` runs its calls.

        level: how willing it is to be moved where memory is short, ``never`` to ``always``.
        movable: it can be pickled, and is of use as its pickle.
        parent: the actor with which it ends. step: seconds for each step of a move. suspend:
        seconds that it is held where no other place has room.
        max_restarts: how often it is begun again when its process died; -1: always.

        The others say how copies of it are made at other daemons; None: as the daemon's
        section ``peers`` says. copies: how many, 0 none, 0.5 of the daemons, ``max``.
        selection: ``resource``, ``random`` or names of daemons. strategy: ``round_robin``,
        ``all``. frequency: seconds.
        preempt_from_stale: whether the newest copy goes on where memory is short: True, False,
        ``timeout:MS``, ``maxage:MS``.
        """
        stale = {True: "always", False: "never"}.get(
            preempt_from_stale, preempt_from_stale)  # type: ignore[arg-type]
        words = _copies(copies, selection=selection, strategy=strategy, frequency=None
                        if frequency is None else f"{_ms(frequency)}ms", retry=retry,
                        panic_on_missing=panic_on_missing, preempt_from_stale=stale)
        number = _LEVELS.index(level.lower()) if isinstance(level, str) else level
        self._actors[name] = actor
        try:
            self._store._actor_begin(self._place, name, parent, number, _CAN_SAVE | _CAN_LOAD
                                     if movable else 0, 1, _ms(step), _ms(suspend),
                                      max_restarts & 0xFFFFFFFF, words)
        except BaseException:
            del self._actors[name]
            raise

    def end(self, name: str) -> None:
        """It ends, and its children; calls that wait are told so."""
        self._store._actor_end(self._place, name)
        self._actors.pop(name, None)

    @property
    def actors(self) -> dict[str, Any]:
        """Those that are here now, by name."""
        return dict(self._actors)

    def serve(self, timeout: float | None = None) -> None:
        """Runs the calls of the actors that are here, and moves, in this thread, until
        `stop` or for so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._stop.is_set() and (end is None or time.monotonic() < end):
            self.serve_one(_SLICE if end is None else max(0.0, min(_SLICE, end - time.monotonic())))
        self._stop.clear()

    def stop(self) -> None:
        """Ends `serve` in another thread, after the call that runs."""
        self._stop.set()

    def serve_one(self, timeout: float = 0.0) -> bool:
        """One order, waited for so many seconds. Was there one?"""
        came = self._store._actor_next(self._place, _ms(timeout))
        if came is None:
            return False
        order, what, name, key, data = came
        how, answer = _OK, b""
        if what == _RUN:
            how, answer = self._run(name, data)
        elif what == _SAVE:
            how = self._save(name, key)
        elif what == _LOAD:
            how = self._load(name, key)
        elif what == _DROP:
            self._actors.pop(name, None)
        if what in (_RUN, _SAVE, _LOAD):
            self._store._actor_done(self._place, order, how, answer)
        return True

    def _run(self, name: str, data: bytes) -> tuple[int, bytes]:
        try:
            method, args, kwargs = pickle.loads(data)
            return _OK, self._pack(getattr(self._actors[name], method)(*args, **kwargs))
        except Exception as error:
            try:
                return _FAILED, self._pack(error)
            except Exception:
                return _FAILED, pickle.dumps(
                    RuntimeError(f"{type(error).__name__}: {str(error)[:1000]}"))

    @staticmethod
    def _pack(value: object) -> bytes:
        data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        if len(data) > 4032:
            raise ValueError(f"an answer of {len(data)} bytes is longer than 4032: hand it over by "
                             f"a ticket")
        return data

    def _save(self, name: str, key: str) -> int:
        try:
            self._store.put(key, self._actors[name], replace=True)
        except Exception:  # it goes on here
            return _FAILED
        return _OK

    def _load(self, name: str, key: str) -> int:
        try:
            self._actors[name] = self._store.get(key, cow=True)
        except Exception:
            return _FAILED
        return _OK

    def close(self) -> None:
        """Its actors end, and those who wait for them are told. Idempotent."""
        self._stop.set()
        self._actors.clear()
        self._place = None

    def __exit__(self, *exc: object) -> None:
        self.close()
