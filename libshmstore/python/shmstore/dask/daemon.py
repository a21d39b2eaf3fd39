# SPDX-License-Identifier: Apache-2.0
"""A worker and the host daemon: hears it as soon as it says something, and gives memory back when it asks.

Where the daemon is away the store goes on alone; it is looked for once a second, in a thread, as the look may take a while.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tornado.ioloop import PeriodicCallback

from .exchange import Exchange
from .offloading import offload
from .tier import Tier

_INTERVAL = 1000  # ms


class Listening:
    """Of one worker's event loop, on which everything here runs."""

    def __init__(self, exchange: Exchange, residence: Any, tier: Tier | None = None) -> None:
        self.exchange = exchange
        self.residence = residence
        self.tier = tier
        self.given = 0  #: bytes moved to disk because the daemon asked
        self._giving: asyncio.Future[int] | None = None
        self.callback = PeriodicCallback(self._look, _INTERVAL)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd: int | None = None

    def close(self) -> None:
        """Before the store is closed, whose descriptor it is."""
        self.callback.stop()
        if self._loop is not None and self._fd is not None:
            self._loop.remove_reader(self._fd)
        self._loop = self._fd = None

    async def _look(self) -> None:
        store = self.exchange.store
        if store.closed:
            return
        try:
            if await offload(store.daemon_dispatch):
                self._watch(store.daemon_fd())
                self._give()
        except (OSError, ValueError) as e:  # closed meanwhile
            self.exchange.fallbacks.note("daemon-failed", e, then="goes on alone")

    def _watch(self, fd: int | None) -> None:
        # The descriptor stays the same for the store's life, whatever becomes of the connection.
        if self._fd is None and fd is not None and not self.exchange.store.closed:
            self._loop, self._fd = asyncio.get_running_loop(), fd
            self._loop.add_reader(fd, self._hear)

    def _hear(self) -> None:
        try:
            self.exchange.store.daemon_dispatch()
            self._give()
        except (OSError, ValueError):  # closed meanwhile
            self.close()

    def _give(self) -> None:
        asked = self.exchange.store.asked()
        if asked and self.tier is not None:
            if self._giving is None or self._giving.done():
                self._giving = asyncio.ensure_future(self._demote(asked))
            return
        evict = getattr(self.residence, "evict_shared", None)  # a dict, whose user wants nothing on disk, has none
        if asked and evict is not None:
            self.given += evict(asked)

    async def _demote(self, asked: int) -> int:
        """Into the disk tier, what nobody needs now first. Bytes of memory that this gave back."""
        self.residence.unmap_idle()
        given: int = await self.tier.give(self.exchange.demote, self.residence.idle_names(), asked)  # type: ignore[union-attr]
        self.given += given
        return given
