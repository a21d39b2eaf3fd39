# SPDX-License-Identifier: Apache-2.0
"""The way by configuration only: `--preload shmstore.dask`, or distributed.worker.preload: [shmstore.dask]. With
distributed.nanny.preload: [shmstore.dask] the nanny, too, counts private memory only.
"""

from __future__ import annotations

from typing import Any

import distributed

from .fallback import Fallbacks
from .nanny import watch
from .worker import share


def dask_setup(server: Any) -> None:
    """Called by Dask in each worker or nanny that preloads this package."""
    if isinstance(server, distributed.Worker):
        share(server)
    elif isinstance(server, distributed.Nanny):
        watch(server)
    else:
        Fallbacks(0).note("preload", key=type(server).__name__, then="nothing: neither a worker nor a nanny")
