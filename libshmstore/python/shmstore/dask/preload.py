# SPDX-License-Identifier: Apache-2.0
"""The way by configuration only: `--preload shmstore.dask`, or distributed.worker.preload: [shmstore.dask]. With
distributed.nanny.preload: [shmstore.dask] the nanny, too, counts private memory only.
"""

from __future__ import annotations

from typing import Any

import distributed

from .fallback import Fallbacks
from .nanny import watch
from .worker import Worker


def dask_setup(server: Any) -> None:
    """Called by Dask in each worker or nanny that preloads this package."""
    if isinstance(server, distributed.Worker):
        _share(server)
    elif isinstance(server, distributed.Nanny):
        watch(server)
    else:
        Fallbacks(0).note("preload", key=type(server).__name__, then="nothing: neither a worker nor a nanny")


def _share(worker: distributed.Worker) -> None:
    """Turns a worker that listens already into one that shares. Once only."""
    if isinstance(worker, Worker):
        return
    if type(worker) is not distributed.Worker:
        name = f"{type(worker).__module__}.{type(worker).__qualname__}"
        Fallbacks(0).note("custom-class", key=name, then="worker shares nothing; derive it from shmstore.dask.Worker")
        return
    worker.__class__ = Worker
    worker._share()
    worker._publish()
    for name in ("get_data", "gather", "update_data"):
        worker.handlers[name] = getattr(worker, name)
    # Its periodic callbacks start when it has registered, ours with them.
