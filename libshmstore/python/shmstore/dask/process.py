# SPDX-License-Identifier: Apache-2.0
"""What Python's collector of cyclic garbage goes through.

A full collection goes through all objects there are and holds the event loop for as long: 40 ms where Dask and pandas are imported. These objects
stay as long as the process. So what is there when a worker's first task begins is left out from then on; not while the worker has values, which
may become garbage one day, and only in a process of the worker's own, under a nanny: elsewhere there are objects of others.
"""

from __future__ import annotations

import gc

_left_out = False  # of this process


def leave_libraries_out(alone: bool) -> None:
    """Whenever a task begins; it is done once. alone: the process is the worker's own, and has no values."""
    global _left_out
    if alone and not _left_out:
        _left_out = True
        gc.freeze()
