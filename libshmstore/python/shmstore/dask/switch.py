# SPDX-License-Identifier: Apache-2.0
"""Preloaded by all workers and nannies of a process that imports `shmstore.dask`: they share where `enabled` is true when they start."""

from typing import Any

from . import dask_setup as _setup
from .config import enabled


def dask_setup(server: Any) -> None:
    """Called by Dask in each worker or nanny."""
    if enabled():
        _setup(server)
