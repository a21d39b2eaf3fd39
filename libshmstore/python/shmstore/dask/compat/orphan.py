# SPDX-License-Identifier: Apache-2.0
"""A worker's process that loses its nanny: Dask ends it at once, by os._exit() in a thread of its own. Its stores go first."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import distributed.process

from .probe import ORPHAN, missing_of

_PATIENCE = 5.0  # seconds that it may take
_stores: weakref.WeakSet[Any] = weakref.WeakSet()


def close_when_orphaned(store: Any) -> None:
    """store.close(), before this process ends for want of its parent."""
    _stores.add(store)
    if not missing_of(ORPHAN) and not isinstance(distributed.process.os, _Os):
        distributed.process.os = _Os()  # type: ignore[assignment]


class _Os:
    """The module os, as Dask's module of processes sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def _exit(status: int) -> None:
        try:
            closing = threading.Thread(target=_close, daemon=True)
            closing.start()
            closing.join(_PATIENCE)
        finally:
            os._exit(status)


def _close() -> None:
    for store in list(_stores):
        store.close()
