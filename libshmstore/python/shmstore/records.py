# SPDX-License-Identifier: Apache-2.0
"""The facts that the library tells about partitions, stores and objects, as named tuples.

A field is read as an attribute or by its name (``usage.residual``, ``usage["residual"]``);
``dict(usage)`` works. The extension fills them by position: records.def has the same order.
"""

from __future__ import annotations

import builtins
from typing import NamedTuple, Optional, SupportsIndex, TypeVar, Union

Record = TypeVar("Record", bound="type[tuple[object, ...]]")


def record(kind: Record) -> Record:
    """A class of named tuples whose fields are read by their names, too."""
    setattr(kind, "__getitem__", _item)
    setattr(kind, "keys", _keys)
    return kind


def _item(self: tuple[object, ...], index: str | SupportsIndex | slice) -> object:
    if not isinstance(index, str):
        return tuple.__getitem__(self, index)
    if index not in _keys(self):
        raise KeyError(index)
    return getattr(self, index)


def _keys(self: tuple[object, ...]) -> tuple[str, ...]:
    """The fields' names."""
    names: tuple[str, ...] = getattr(self, "_fields")
    return names


@record
class Usage(NamedTuple):
    """`Partition.usage`: used = linked + ghosts + pool + inflight +
    foreign + residual, in bytes."""

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
    tier: int  #: blocks of tier files, on disk: = tier_demoted + tier_clean + tier_orphans
    tier_demoted: int  #: of objects that are there only
    tier_clean: int  #: of objects that are in memory as well
    tier_orphans: int  #: of none; `Partition.gc` removes them
    n_demoted: int  #: names of demoted objects; part of n_objects
    stranded: int  #: the part of pool in pages of which packed objects have the rest


@record
class StoreUsage(NamedTuple):
    """`Store.usage`, in bytes."""

    linked: int  #: bytes of all objects it links
    pss: int  #: the same, each divided by its number of links
    uss: int  #: bytes of what has no link outside this store
    mapped: int  #: bytes of this handle's live views
    n_objects: int
    n_views: int


@record
class ObjectInfo(NamedTuple):
    """One object of `Store.objects`."""

    key: Union[str, bytes]
    name: str  #: its file name in the store's objects/
    header_size: int  #: bytes before the first buffer
    buffer_size: int  #: bytes from the first buffer to the end
    blocks: int  #: bytes of memory it takes
    inode: int
    links: int  #: of the inode, over all stores, leases included
    n_buffers: int
    generation: int
    mtime_ns: int  #: 0 of a packed object
    checksum: bool  #: it carries a checksum of its buffers
    error: int  #: 0, or an errno where the file is no valid object
    raw_key: bytes  #: the key's bytes, whatever `key` is
    demoted: bool  #: in the disk tier: blocks and n_buffers are 0
    pinned: bool  #: never moved there
    packed: bool  #: one of many in a segment (`Partition.open`: pack_max), whose inode it has


@record
class Counters(NamedTuple):
    """A store's ledger: what its owner says of itself."""

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


@record
class StoreInfo(NamedTuple):
    """One store of `Partition.stores`."""

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


@record
class PartitionInfo(NamedTuple):
    """`Partition.info`."""

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


@record
class Holder(NamedTuple):
    """One process that holds one inode without a name."""

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


@record
class Reconciliation(NamedTuple):
    """`Partition.reconcile`: the df equation with its witnesses."""

    usage: Usage
    holders: tuple[Holder, ...]


@record
class GcAction(NamedTuple):
    """One step of a clean-up; one that failed has its errno in `error`, and the others went on."""

    #: "store", "lease", "torn", "pool", "peer", "kept"; of the disk tier
    # "tier", "anchor" or "tier-of"
    what: str
    path: str
    bytes: int  #: that this frees
    n_objects: int
    evidence: str  #: why it may go, or why it stays
    error: int  #: 0, or the errno of the attempt


@record
class GcReport(NamedTuple):
    """`Partition.gc`: what went, or with dry_run what would go."""

    n_stores: int
    n_leases: int
    n_objects: int
    freed: int
    actions: tuple[GcAction, ...]


@record
class Finding(NamedTuple):
    """One file that `Partition.verify` looked at."""

    path: str
    error: int  #: 0 = fine, else an errno
    reason: str
    bytes: int  #: checked so far


@record
class TierInfo(NamedTuple):
    """`Partition.tier`: the disk tier and what lies in it, in bytes."""

    directory: str  #: what the tier was set to
    path: str  #: where the tier files are, below it
    max: int  #: bytes of tier files at most; 0 = no limit
    min_free: int  #: bytes that stay free on that file system
    level: int  #: of zstd; 0 = nothing is compressed
    fsync: bool
    high: int  #: percent of the partition above which eviction begins
    low: int  #: and at which it ends
    disk_size: int  #: bytes of that file system
    disk_free: int
    used: int  #: blocks of tier files: = demoted + clean + orphans
    demoted: int  #: of it: objects that are in the tier only
    #: of it: objects that are in memory as well, and can be demoted again without a write
    clean: int
    orphans: int  #: of it: left by killed processes; `Partition.gc` removes them
    n_demoted: int
    n_clean: int
    n_orphans: int
    original: int  #: bytes that the demoted ones take in memory when they come back
    n_raw: int  #: tier files that are stored as they are
    n_zstd: int  #: and compressed


@record
class EvictReport(NamedTuple):
    """`Partition.evict`: what was demoted, in bytes."""

    #: what was asked for was reached; False: there was nothing to do, it goes on, or was ended
    done: bool
    n_objects: int  #: demoted
    freed: int  #: bytes of memory that are free now
    held: int  #: bytes of demoted objects that are not free before their last view is gone
    original: int  #: bytes copied out, as they were in memory
    written: int  #: bytes written to the disk for them
    n_clean: int  #: objects that needed no write
    n_skipped: int  #: objects that changed, or were locked, meanwhile
    disk_full: bool  #: it ended for want of disk
    error: int  #: 0, or the errno of the last object that failed
    duration_ns: int


@record
class PoolState(NamedTuple):
    """`arbiter.Pool.state`, in bytes."""

    capacity: int  #: bytes that may be reserved now
    used: int  #: reserved, and what is taken in it
    reclaimable: int  #: the part of used that would be evicted for others
    spilled: int  #: evicted and not freed yet
    max_used: int
    n_waiting: int
    level: int  #: 0 nobody waits, 1 somebody does, 2 somebody was rolled back lately


@record
class ContextState(NamedTuple):
    """`arbiter.Context.state`."""

    state: str  #: "RUNNING", "BLOCKED", "BUFN", ...; "UNKNOWN": not bound
    since: float  #: seconds in this state
    held: int  #: bytes that its tasks hold in the pool
    need: int  #: bytes that its attempt needs


@record
class TaskStats(NamedTuple):
    """`arbiter.Task.stats`."""

    n_retries: int
    n_splits: int
    n_grants: int
    blocked: float  #: seconds of waiting
    lost: float  #: seconds of attempts that were rolled back
    blocked_or_lost: float  #: both, a wait in progress included; never reset
    current: int  #: bytes reserved now
    max: int  #: most of them at once
    footprint: int  #: the same outside `arbiter.Context.spilling`
    need: int  #: bytes that its attempt needs
