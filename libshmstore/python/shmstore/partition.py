# SPDX-License-Identifier: Apache-2.0
"""The partition: the directory on a tmpfs in which the stores of a host's processes live."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from . import _shmstore
from .errors import Error
from .records import (Counters, EvictReport, Finding, GcAction, GcReport, Holder, PartitionInfo,
                      Reconciliation, StoreInfo, TierInfo, Usage)
from .richtext import size, table
from .store import Store

_unnamed = itertools.count(1)
_LOOK = 0.01  # seconds between two looks for a store that is waited for


class Partition(_shmstore.Partition, AbstractContextManager["Partition", None]):
    """A partition.

    Partition(path=None, create=False, allow_disk=False, shared=False)

    path        a directory on a tmpfs; None: $SHMSTORE_PARTITION, else the one
                chosen when the library was built.
    create      make the directory (one level) and its marker where they are missing.
    allow_disk  with create: accept a file system that is not a tmpfs.
    shared      with create: for several users, mode 1777.

    It need not be closed; `close`, or leaving it as a context manager, gives its descriptors back
    at once. Stores stay open. May be used by many threads, in forked children, and sent to other
    processes of the host (it is pickled as its path).
    """

    def open(
        self,
        name: str | None = None,
        keep: bool = False,
        label: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        recycle_max: int | None = None,
        readonly: bool = False,
        adopt: bool = False,
        fresh: bool = False,
        daemon: str = "auto",
        wait: float | None = None,
        arbitrate: bool = False,
        any_user: bool = False,
        pack_max: int | None = None,
        timeout: float | None = None,
        leases_with: str | None = None,
    ) -> Store:
        """Opens (makes) the store called name and holds it until it is closed or this process dies.

        name         None: one that no other process and no other call takes, python-<pid>-<number>;
                     for those who only put, adopt and hand off.
        keep         the store and its objects stay when it is closed or
                     its owner dies; gc leaves them.
        label        free text shown to operators.
        directory    where the store lives: a path in the partition; its parent
                     must exist. None: stores/<name>.
        recycle_max  bytes of deleted objects kept for the next put; 0 = off,
                     None = the library's default.
        readonly     look at a store of one's own user, live or dead.
        any_user     with readonly: whoever's store it is. Values in it are pickles, which run
                     what they say: see `Store.get`.
        adopt        take over the objects of a dead owner's store even if it was not kept.
        fresh        drop the objects of a dead owner's store even if it was kept.
        daemon       "auto": register with shmstored where it runs, go on alone where it does not;
                     "required": Error ETIMEDOUT where it does not; "off": never look for it.
                     $SHMSTORE_DAEMON says what "auto" is.
        wait         seconds that a put waits for room under a quota, then Error
                     ETIMEDOUT; None: it fails at once.
        arbitrate    what threads bound to a task of the arbiter put, create and promote is
                     reserved first: that may wait, or raise an `arbiter.Outcome`. Without
                     a daemon it changes nothing.
        pack_max     objects of up to so many bytes go into segments, many to a file: a put, a get,
                     a handoff and a delete of them take no system call. 0: each object is a file;
                     None: $SHMSTORE_PACK_MAX, else 1 MiB. Objects that only files can be (an empty
                     key, more than 64 buffers, a handoff to another user) are files all the same.
        leases_with  the name of a store: once nobody has that one open, tickets of this one are
                     over for gc, whatever their lease. For a job's
                     processes: what they sent each other is nobody's after
                     it. Its own name: after itself.
        timeout      with readonly: seconds that a store of that name is waited for, then
                     TimeoutError; None: not at all.

        Raises Error: EBUSY where a live owner holds the name, EINVAL, EPERM, ENOENT
        (readonly), ENOSPC, ETIMEDOUT (daemon).
        """
        if name is None:
            if readonly or adopt or keep:
                raise ValueError("a store that is there, or is to stay, needs a name: "
                                 "Partition.stores() lists those that there are")
            name = f"python-{os.getpid()}-{next(_unnamed)}"
        if timeout is not None and not readonly:
            raise ValueError("timeout: how long a store is waited for that another process makes: "
                             "it goes with readonly")
        end = time.monotonic() + (timeout or 0)
        while True:
            try:
                return Store(self, name, keep, label, directory, recycle_max, readonly, adopt,
                             fresh, daemon, wait, arbitrate, any_user, pack_max, leases_with)
            except Error as error:
                if timeout is None or error.errno != errno.ENOENT:
                    raise
                if time.monotonic() >= end:
                    raise TimeoutError(
                        f"no store {name!r} in {self.path!r} within {timeout:g} s") from error
                time.sleep(_LOOK)

    def _repr_html_(self) -> str:
        """For notebooks: the partition and its stores."""
        info = self.info()
        rows = [
            (s.name, s.label, "unknown" if s.alive is None else s.pid if s.alive else "kept"
             if s.keep else "dead",
             s.counters.linked_n, size(s.counters.linked_bytes))
            for s in self.stores()
        ]
        return table(
            f"Partition {self.path}: {size(info.bytes_used)} of {size(info.bytes_size)} used",
            ("store", "label", "owner", "objects", "size"),
            rows,
        )

    def usage(self, full: bool = False) -> Usage:
        """Where the bytes of the file system are. full also asks /proc who holds deleted files."""
        return Usage._make(self._usage(full))

    def gc(self, dry_run: bool = False) -> GcReport:
        """Removes what nobody owns: dead stores, expired leases, torn leftovers. With dry_run
        only says what would go."""
        counts, actions = self._gc(dry_run)
        return GcReport._make((*counts, tuple(map(GcAction._make, actions))))

    def stores(self) -> list[StoreInfo]:
        """Every store of the partition, live or dead."""
        return [StoreInfo._make((*fields, Counters._make(counters)))
                for *fields, counters in self._stores()]

    def reconcile(self) -> Reconciliation:
        """`usage(full=True)`, and each process that holds memory which has no name."""
        usage, holders = self._reconcile()
        return Reconciliation(Usage._make(usage), tuple(map(Holder._make, holders)))

    def verify(self) -> list[Finding]:
        """Checks the marker, every store's page, every object's header, table and
        checksum. One finding per file."""
        return list(map(Finding._make, self._verify()))

    def info(self) -> PartitionInfo:
        """Path, mount, uuid, sizes, as the file system says."""
        return PartitionInfo._make(self._info())

    # -- the disk tier

    def set_tier(
        self,
        path: str | os.PathLike[str] | None,
        max: int = 0,
        min_free: int = 0,
        level: int = 1,
        fsync: bool = False,
        high: int = 85,
        low: int = 75,
    ) -> None:
        """Gives the partition its disk tier, or changes its limits; None takes it away.

        path      an absolute directory on a file system that is not memory.
        max       bytes of tier files at most; 0 = no limit.
        min_free  bytes that stay free on that file system.
        level     of zstd, 1 to 19; 0: nothing is compressed.
        fsync     a tier file is on the disk before its object leaves memory.
        high, low percent of the partition between which `evict(watermarks=True)` works.

        Raises Error: EBUSY (another path, or None, while the tier holds objects), ENOENT, ENOTSUP
        (the directory is in memory), EPERM, EINVAL.
        """
        self._set_tier(path, max, min_free, level, fsync, high, low)

    def tier(self) -> TierInfo | None:
        """The disk tier and what lies in it; None where the partition has none."""
        fields = self._tier()
        return None if fields is None else TierInfo._make(fields)

    def evict(
        self,
        bytes: int = 0,
        to: int | None = None,
        watermarks: bool = False,
        threads: int = 0,
        background: bool = False,
        wait: bool = False,
        progress: Callable[[EvictReport], object] | None = None,
        user: int | None = None,
    ) -> EvictReport:
        """Moves what is used least to the disk tier until enough memory is free. Any process may,
        at any time; one at a time does.

        bytes       to free at least; or
        to          down to so many bytes used of it; 0: all leaves, and ENOSPC is raised; or
        watermarks  nothing below the tier's high watermark; above it, down to the low one.
        threads     that it may start, and ends before it returns. background: at idle priority.
        wait        for another eviction that runs; else a report with done False comes at once.
        progress    called with an EvictReport now and then; a true result ends the eviction.
        user        root: whose objects, by user id; None: everybody's.

        Raises Error: ENOSPC (all was tried and did not suffice, or the disk is full: detail says
        so), ENOENT (no tier), EPERM. Its `report` is an EvictReport of what was done all the same.
        """
        callback = None if progress is None else lambda fields: progress(EvictReport._make(fields))
        done: list[tuple[object, ...]] = []
        try:
            self._evict(bytes, 0 if to is None else max(1, to), watermarks, threads, background,
                        wait, callback, user, done)
        except Error as error:
            if done:
                error.report = EvictReport._make(done[0])  # type: ignore[attr-defined]
            raise
        return EvictReport._make(done[0])

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shmstore.Partition {self.path!r}{' (closed)' if self.closed else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)
