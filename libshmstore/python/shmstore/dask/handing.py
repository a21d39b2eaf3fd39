# SPDX-License-Identifier: Apache-2.0
"""What stock's code sees as a worker's data while it answers a peer, or runs a key that fetches its own inputs."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .compat.tasks import NoInputs
from .exchange import Pickled
from .handle import Handle

if TYPE_CHECKING:
    from .worker import Worker


class Handing:
    """A worker's data as one peer gets it: handles in place of what lies in the partition."""

    def __init__(self, worker: Worker, pickled: dict[Any, Pickled]) -> None:
        self.worker = worker
        self._pickled = pickled  # what was found not to be shareable on the way: that need not be pickled again
        self._data = worker.state.data
        self._handles: list[Handle] = []

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __getitem__(self, key: Any) -> Any:
        if key in self._pickled and key in self._data:
            return self._pickled[key].serialized()
        handle = self.worker._guard.call("handoff", self._handle, key, key=key)
        return self._data[key] if handle is None else handle

    def _handle(self, key: Any) -> Handle | None:
        entry = self.worker._residence.entry(key)
        handle = None if entry is None else self.worker._exchange.handoff(key, entry)
        if handle is not None:
            self._handles.append(handle)
            if not entry.handed:
                entry.handed = True
                self.worker._guard.call("habits", self.worker._habits.left, key)
        return handle

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def revoke(self) -> None:
        """The answer did not arrive."""
        for handle in self._handles:
            handle.revoke()


#: In place of the data of its worker, for who runs in this context.
handing_now: ContextVar[Handing | NoInputs | None] = ContextVar("shmstore_handing", default=None)
