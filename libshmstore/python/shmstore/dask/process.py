# SPDX-License-Identifier: Apache-2.0
"""Changes of a worker in its process, so that less holds its event loop.

- A full collection of cyclic garbage goes through all objects there are: 40 ms where Dask and pandas are imported. These objects stay as long as
  the process. So what is there when a worker's first task comes is left out from then on; not while the worker has values, which may become
  garbage one day.
- A thread that runs Python code gives the interpreter up when another one has waited for it for 5 ms: that is how long the loop is held each time
  that it waits for the kernel while a task does no more than that. Here it is 1 ms.
- A table of descriptors that is full is doubled, and the kernel waits until no thread of the process looks at the old one: 14 to 40 ms were seen,
  for all threads that opened a file meanwhile. It is made large before there is anything to do.

All but the third only in a process of the worker's own, under a nanny: elsewhere there are objects and threads of others.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import sys
from contextlib import suppress
from typing import Any

_SWITCH = 0.001  # seconds after which the interpreter is given up for who waits for it
_DESCRIPTORS = 4096  # for which there is room from the beginning

_left_out = False  # the libraries, of this process


def settle(own: bool) -> None:
    """When a worker starts. own: the process is the worker's own."""
    if own:
        sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
    with suppress(OSError):
        _make_room_for_descriptors()


def leave_libraries_out(worker: Any) -> None:
    """Whenever a task comes; it is done once."""
    global _left_out
    if not _left_out and worker.nanny and not worker.state.data:
        _left_out = True
        gc.freeze()


def _make_room_for_descriptors() -> None:
    """By having, for a moment, one with a high number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if soft == resource.RLIM_INFINITY else min(_DESCRIPTORS, soft)
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, most - 1))
    finally:
        os.close(fd)
