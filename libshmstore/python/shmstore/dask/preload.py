# SPDX-License-Identifier: Apache-2.0
"""The way by configuration only: `--preload shmstore.dask`, or distributed.worker.preload:
[shmstore.dask]. With distributed.nanny.preload: [shmstore.dask] stock's nanny ends its worker for
private memory only, and removes the store of a worker that died.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from functools import partial
from typing import Any

import distributed
from distributed.core import Status
from tornado.ioloop import PeriodicCallback

from .. import Partition
from .config import Fallbacks, Settings, enabled, look_first, offload
from .memory import private_memory
from .worker import Worker


class Nanny(distributed.Nanny):
    """distributed.Nanny whose workers are shmstore.dask.Worker, but where worker_class is given."""

    def __init__(self, *args: Any, worker_class: type | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "worker_class": worker_class or Worker})
        self._watch()

    def _watch(self) -> None:
        """Puts our question before stock's: is it private memory that is over the limit?"""
        if enabled() is False:
            return
        manager = self.memory_manager

        def memory_monitor(stock: PeriodicCallback) -> Awaitable[None] | None:
            pid = (self.process.process.pid if self.process is not None and
                   self.process.process is not None else None)
            if pid is None or self.status != Status.running:
                return None
            try:
                memory = private_memory(pid)
            except OSError:  # it is just ending
                return None
            return (stock.callback() if memory > (manager.memory_limit or 0) * (
                manager.memory_terminate_fraction or 0) else None)

        look_first(self, lambda stock: partial(memory_monitor, stock))

    async def _on_worker_exit(self, exitcode: int) -> None:
        await self._collect_garbage()
        await super()._on_worker_exit(exitcode)

    async def _collect_garbage(self) -> None:
        """Removes the stores of the dead; what a worker had promised to peers when it died stays
        until its leases end, and is asked for again then."""
        try:
            settings = Settings()
            if settings.enabled and await offload(_collect_garbage, settings.partition):
                self.loop.call_later(settings.lease, self._collect_again)
        except (OSError, ValueError) as e:
            Fallbacks(0).note("sweep-failed", e, then="left to gc")

    async def _collect_again(self) -> None:
        if self.status not in (Status.closed, Status.failed):
            await self._collect_garbage()


def _collect_garbage(name: str | None) -> bool:
    """Whether leases keep a dead worker's store."""
    with Partition(name) as partition:
        partition.gc()
        return any(store.alive is False and not store.keep and store.uid == os.geteuid()
                   for store in partition.stores())


def watch(nanny: distributed.Nanny) -> None:
    """Turns a nanny that exists already into one that counts private memory only. Once only."""
    if type(nanny) is distributed.Nanny:
        nanny.__class__ = Nanny
        Nanny._watch(nanny)  # type: ignore[arg-type]


def dask_setup(server: object) -> None:
    """Called by Dask in each worker or nanny that preloads this package."""
    if isinstance(server, distributed.Worker):
        _share_now(server)
    elif isinstance(server, distributed.Nanny):
        watch(server)
    else:
        Fallbacks(0).note("preload", key=type(server).__name__,
                          then="nothing: neither a worker nor a nanny")


def _share_now(worker: distributed.Worker) -> None:
    """Turns a worker that listens already into one that shares. Once only."""
    if isinstance(worker, Worker):
        return
    if type(worker) is not distributed.Worker:
        name = f"{type(worker).__module__}.{type(worker).__qualname__}"
        Fallbacks(0).note("custom-class", key=name, then="worker shares nothing; derive it from "
                                                         "shmstore.dask.Worker")
        return
    worker.__class__ = Worker
    Worker._share(worker)  # type: ignore[arg-type]
    Worker._publish(worker)  # type: ignore[arg-type]
    for name in ("get_data", "gather", "update_data"):
        worker.handlers[name] = getattr(worker, name)
    # Its periodic callbacks start when it has registered, ours with them.
