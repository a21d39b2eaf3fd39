# SPDX-License-Identifier: Apache-2.0
"""A worker's data for stock's code that answers a peer or runs a key that fetches its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .compat.worker import NoInputs
from .exchange import Entry, Pickled
from .handle import Handle
from .offloading import offload

if TYPE_CHECKING:
    from .worker import Worker


class Handing:
    """A worker's data as one peer gets it: handles in place of what lies in the partition."""

    def __init__(self, worker: Worker, pickled: dict[Any, Pickled]) -> None:
        self.worker = worker
        self._pickled = pickled  # values found not to be shareable: they need not be pickled again
        self._data = worker.state.data
        self._ready: dict[Any, tuple[Entry, Handle]] = {}  # made beforehand
        self._handles: list[Handle] = []

    async def prepare(self, keys: Iterable[Any]) -> None:
        """Makes the handles of those keys beside the event loop: while objects are moved to and from the disk a link may have to wait."""
        entries = [(key, entry) for key in keys if (entry := self.worker._residence.entry(key)) is not None]
        await offload(self._prepare, entries)

    def _prepare(self, entries: list[tuple[Any, Entry]]) -> None:
        for key, entry in entries:
            if not entry.dropped and (handle := self.worker._exchange.handoff(key, entry)) is not None:
                self._handles.append(handle)
                self._ready[key] = entry, handle

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __getitem__(self, key: Any) -> Any:
        if key in self._pickled and key in self._data:
            return self._pickled[key].serialized()
        handle = self.worker._guard.call("handoff", self._handle, key, key=key)
        return self._data[key] if handle is None else handle

    def _handle(self, key: Any) -> Handle | None:
        entry = self.worker._residence.entry(key)
        made, handle = self._ready.pop(key, (None, None))
        if made is None or made is not entry:  # the key has got another value meanwhile
            handle = None if entry is None else self.worker._exchange.handoff(key, entry)
            if handle is not None:
                self._handles.append(handle)
        if handle is not None:
            if not entry.handed:
                entry.handed = True
                self.worker._guard.call("habits", self.worker._habits.left, key)
        return handle

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def done(self) -> None:
        """The answer is over. Takes back handles that are not in it."""
        for _, handle in self._ready.values():
            handle.revoke()

    def revoke(self) -> None:
        """The answer did not arrive."""
        for handle in self._handles:
            handle.revoke()


#: In place of the data of its worker, for who runs in this context.
handing_now: ContextVar[Handing | NoInputs | None] = ContextVar("shmstore_handing", default=None)


def can_carry(serializers: Any) -> bool:
    """Whether handles can go out in an answer that is made by these; None: by whatever there is."""
    return serializers is None or "dask" in serializers or "pickle" in serializers
