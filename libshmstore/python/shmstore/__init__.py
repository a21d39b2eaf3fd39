# SPDX-License-Identifier: Apache-2.0
"""shmstore: a shared-memory object store for the processes of one host.

>>> import shmstore
>>> p = shmstore.Partition("/mnt/shm", create=True)
>>> with p.open("worker-1") as store:
...     store["x"] = array                   # pickled; the buffers are copied once, into the object
...     y = store["x"]                       # its buffers are the mapped object
...     ticket = store.handoff("x")          # for another process of the host, which
...                                          # calls other.adopt("x", ticket)

A **partition** is a directory on a tmpfs; a **store** is one process's directory of objects in it;
an **object** is an immutable header and buffers under a key; a **view** maps an object and keeps it
alive; a **ticket** hands an object to another process by a hard link, without copying a byte. A
partition may have a **tier**: a directory on a disk to which objects are moved where memory runs
short; they come back when they are asked for.

Where the host daemon runs an **arbiter** (`shmstore.arbiter`), memory is
reserved before it is taken.

Objects put through the mapping are pickles, and reading one runs its pickle: a partition is
to be trusted as far as the users who may write to it. No function starts threads or keeps a
file descriptor per object. A call that copies or waits releases the GIL. Views, and arrays
over them, may be used after the store is closed and in a forked child; the store itself
belongs to the process that opened it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

try:
    from . import _shmstore
except ModuleNotFoundError as error:
    import pathlib
    import sys

    _built = [path.name for path in pathlib.Path(__file__).parent.glob("_shmstore*.so")]
    if error.name != f"{__name__}._shmstore" or not _built:
        raise
    raise ModuleNotFoundError(
        f"{__name__} was built for the Python of {_built[0]}, and this is {sys.executable}, Python "
        f"{sys.version.split()[0]}: "
        "on Debian run /usr/bin/python3 instead", name=error.name) from None

from . import actors, arbiter, preempting, profiling, staging
from ._shmstore import View, Writer, default_path, strerror, version
from .errors import ClosedError, Error
from .partition import Partition
from .pickling import dumps, loads
from .records import (
    Counters, EvictReport, Finding, GcAction, GcReport, Holder, ObjectInfo, PartitionInfo,
    Reconciliation, StoreInfo, StoreUsage, TierInfo,
    Usage,
)
from .store import Store
from .ticket import Ticket

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .caching import Cache, get_or_create
    from .pinning import pinned

__version__ = version()

__all__ = [
    "Cache", "ClosedError", "Counters", "Error", "EvictReport", "Finding", "GcAction", "GcReport",
    "Holder", "ObjectInfo", "Partition",
    "PartitionInfo", "Reconciliation", "Store", "StoreInfo", "StoreUsage", "Ticket", "TierInfo",
    "Usage", "View", "Writer", "actors",
    "arbiter", "default_path", "dumps", "get_or_create", "loads", "pinned", "preempting",
    "profiling", "staging", "strerror", "version",
]


def __getattr__(name: str) -> object:
    """Imports rarely used names when they are asked for."""
    home = {"Cache": "caching", "get_or_create": "caching", "pinned": "pinning"}.get(name)
    if home is not None:
        return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """%load_ext shmstore: %share and %shared, variables between notebooks."""
    from . import notebook

    notebook.load(shell)
