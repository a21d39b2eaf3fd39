# SPDX-License-Identifier: Apache-2.0
"""What the library tells about partitions, stores and objects, as named tuples.

A field is read as an attribute or by its name (``usage.residual``, ``usage["residual"]``); ``dict(usage)`` works. The
C module fills them by position: a field's place here is its place there.
"""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple, Optional, Union


class _Fields:
    """Access by field name for a named tuple."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            if index not in self.keys():
                raise KeyError(index)
            return getattr(self, index)
        return tuple.__getitem__(self, index)  # type: ignore[call-overload]

    def keys(self) -> tuple[str, ...]:
        """The fields' names."""
        names: tuple[str, ...] = getattr(self, "_fields")
        return names


class _Usage(NamedTuple):
    size: int  #: bytes of the file system; 0 = no limit
    used: int  #: what statfs says
    linked: int  #: named objects, leases and the stores' own pages, each inode once: what du counts
    ghosts: int  #: deleted but still mapped or open (with full=True)
    pool: int  #: recycled files kept for the next put
    inflight: int  #: written but not yet published (with full=True)
    foreign: int  #: files on this file system that are not the partition's
    residual: int  #: what is left; 0 on a quiet partition with full=True and enough privilege
    n_stores: int
    n_objects: int  #: names, over all stores
    n_leases: int
    metadata: int  #: the part of linked that is the stores' own pages
    n_unreadable: int  #: directories and processes that we may not look into


class Usage(_Fields, _Usage):
    """`Partition.usage`: used = linked + ghosts + pool + inflight + foreign + residual, in bytes."""

    __slots__ = ()


class _StoreUsage(NamedTuple):
    linked: int  #: bytes of all objects it links
    pss: int  #: the same, each divided by its number of links
    uss: int  #: bytes of what has no link outside this store
    mapped: int  #: bytes of this handle's live views
    n_objects: int
    n_views: int


class StoreUsage(_Fields, _StoreUsage):
    """`Store.usage`, in bytes."""

    __slots__ = ()


class _ObjectInfo(NamedTuple):
    key: Union[str, bytes]
    name: str  #: its file name in the store's objects/
    header_size: int  #: bytes before the first buffer
    buffer_size: int  #: bytes from the first buffer to the end
    blocks: int  #: bytes of memory it takes
    inode: int
    links: int  #: of the inode, over all stores, leases included
    n_buffers: int
    generation: int
    mtime_ns: int
    checksum: bool  #: it carries a checksum of its buffers
    error: int  #: 0, or an errno where the file is no valid object
    raw_key: bytes  #: the key's bytes, whatever `key` is


class ObjectInfo(_Fields, _ObjectInfo):
    """One object of `Store.objects`."""

    __slots__ = ()


class _Counters(NamedTuple):
    put_n: int
    put_bytes: int
    get_n: int
    get_bytes: int
    delete_n: int
    delete_bytes: int
    handoff_n: int
    handoff_bytes: int
    adopt_n: int
    adopt_bytes: int
    alias_n: int
    alias_bytes: int
    recycled_n: int
    recycled_bytes: int
    linked_n: int
    linked_bytes: int
    mapped_n: int
    mapped_bytes: int
    reserved_n: int
    reserved_bytes: int
    pool_n: int
    pool_bytes: int
    demoted_n: int
    demoted_bytes: int
    evicted_n: int
    evicted_bytes: int
    linked_bytes_max: int
    mapped_bytes_max: int
    pool_bytes_max: int
    enospc_n: int


class Counters(_Fields, _Counters):
    """A store's ledger: what its owner says of itself."""

    __slots__ = ()


class _StoreInfo(NamedTuple):
    name: str
    path: str
    label: str
    address: str
    pid: int  #: of the owner, as it was when it opened the store
    uid: int
    alive: Optional[bool]  #: None where we may not look
    keep: bool
    readable: bool
    created_ns: int
    counters: Counters


class StoreInfo(_Fields, _StoreInfo):
    """One store of `Partition.stores`."""

    __slots__ = ()


class _PartitionInfo(NamedTuple):
    path: str
    mount: str
    uuid: str
    huge: str  #: the mount's huge= option
    version: int
    tmpfs: bool
    same_boot: bool
    bytes_size: int
    bytes_used: int
    bytes_available: int
    inodes_size: int
    inodes_used: int
    inodes_free: int
    device: int
    uid: int
    mode: int


class PartitionInfo(_Fields, _PartitionInfo):
    """`Partition.info`."""

    __slots__ = ()


class _Holder(NamedTuple):
    kind: str  #: "ghost" or "inflight"
    pid: int
    uid: int
    command: str
    inode: int
    bytes: int  #: blocks of the inode
    mapped: int
    n_fds: int
    path: str
    key: Union[str, builtins.bytes, None]
    first: bool  #: the first holder reported for this inode: sum `bytes` over these


class Holder(_Fields, _Holder):
    """One process that holds one inode without a name."""

    __slots__ = ()


class _Reconciliation(NamedTuple):
    usage: Usage
    holders: tuple[Holder, ...]


class Reconciliation(_Fields, _Reconciliation):
    """`Partition.reconcile`: the df equation with its witnesses."""

    __slots__ = ()


class _GcAction(NamedTuple):
    what: str  #: "store", "lease", "torn", "pool", "peer" or "kept"
    path: str
    bytes: int  #: that this frees
    n_objects: int
    evidence: str  #: why it may go, or why it stays
    error: int  #: 0, or the errno of the attempt


class GcAction(_Fields, _GcAction):
    """One step of a clean-up."""

    __slots__ = ()


class _GcReport(NamedTuple):
    n_stores: int
    n_leases: int
    n_objects: int
    freed: int
    actions: tuple[GcAction, ...]


class GcReport(_Fields, _GcReport):
    """`Partition.gc`: what went, or with dry_run what would go."""

    __slots__ = ()


class _Finding(NamedTuple):
    path: str
    error: int  #: 0 = fine, else an errno
    reason: str
    bytes: int  #: checked so far


class Finding(_Fields, _Finding):
    """One file that `Partition.verify` looked at."""

    __slots__ = ()
