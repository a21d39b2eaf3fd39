# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the library's calls. The extension has `failed`, `closed` and `refused` make
them, and raises what these return.

An Error is an OSError with the library's code as its errno and a message made of four parts: what
was tried, on which key and store or path, why it failed (the library's sentence), what to do.
"""

from __future__ import annotations

import errno


class Error(OSError):
    """A call into the library failed.

    errno is one of the codes that shmstore.h lists; the message says what was tried, on what, why
    it failed and what to do. detail is the library's sentence about it, and filename the file that
    it is about, a damaged tier file say.
    """

    detail = ""  #: the library's own sentence about it


class ClosedError(Error, ValueError):
    """The store was closed. errno is EBADF."""


class Outcome(Error):
    """The arbiter's answer instead of memory.

    Its errno is what a program that knows nothing of the arbiter makes most sense of: one that is
    told to begin again found the store full.
    """

    outcome = 0  #: the number that arbiter.h gives it
    why = ""  #: the daemon's sentence: who held what; "" where it had none
    _said = ""  # where the daemon said nothing
    _code = errno.ENOSPC


class Retry(Outcome):
    """Give back what this attempt reserved, call ready(), begin again. with_retry() does it."""

    _said = "give back what this attempt took and begin again"


class Split(Outcome):
    """The same, with less work at a time: it does not fit beside what others hold for good."""

    _said = "the work does not fit, less of it at a time may"


class NoMemory(Outcome, MemoryError):
    """It cannot be had; why says who held what. A MemoryError, too."""

    _said, _code = "the memory cannot be had", errno.ENOMEM


class TooBig(Outcome):
    """More than the pool's capacity: it can never be had, whoever waits."""

    _said = "it is more than the pool has in all"


class Again(Outcome):
    """It does not fit now, and the call was not to wait."""

    _said = "it does not fit now, and was not to wait"


class TimedOut(Outcome, TimeoutError):
    """The timeout, or the longest wait that the daemon allows, has passed. A TimeoutError, too."""

    _said, _code = "it did not fit within the time allowed", errno.ETIMEDOUT


class Canceled(Outcome):
    """Somebody ended the wait: cancel(), or the operator."""

    _said, _code = "the wait was canceled", errno.ECANCELED


class Removed(Outcome):
    """The context was unbound, or its task ended, while it waited."""

    _said, _code = "the task has ended meanwhile", errno.ECANCELED


class Down(Outcome):
    """The daemon went away, or shuts down. Nothing is reserved any more."""

    _said, _code = "the daemon went away", errno.ECANCELED


class Injected(Outcome):
    """A test's own: inject("error")."""

    _said, _code = "a test wanted it to fail", errno.EIO


_OUTCOMES: dict[int, type[Outcome]] = dict(enumerate(  # in the order of arbiter.h
    (Retry, Split, NoMemory, TooBig, Again, TimedOut, Canceled, Removed, Down, Injected), 2))
Error.__module__ = ClosedError.__module__ = "shmstore"
Outcome.__module__ = "shmstore.arbiter"
for _number, _kind in _OUTCOMES.items():
    _kind.outcome, _kind.__module__ = _number, "shmstore.arbiter"

# The remedy in Python's words, by the most frequent cause of the code in a call about partitions,
# stores and objects. None where it depends on the cause: the library's sentence has it then, and
# the daemon's for actors, tasks and stages.
_REMEDIES = {
    errno.EEXIST: "replace=True takes an object's place",
    errno.ENOSPC: "delete objects, call Partition.gc(), or enlarge the tmpfs",
    errno.EDQUOT: "delete objects, or ask the operator to raise the quota (shmstore-admin quota)",
    errno.ETIMEDOUT: "delete objects, wait longer, or see whether shmstored runs (shmstore-admin "
                     "status)",
    errno.EBADMSG: "put it again, or ask the donor again; Partition.verify() checks every object",
    errno.ESTALE: "ask the donor for a new ticket",
    errno.EXDEV: "let both processes see the partition through one and the same mount",
    errno.EMFILE: "raise ulimit -n",
    errno.ENOMEM: "drop views, or raise vm.max_map_count",
}
_ON_DISK = {  # of an error that is about a file of the disk tier
    errno.ENOSPC: "free room on that disk, raise the tier's limits with Partition.set_tier(), or "
                  "delete objects",
    errno.EBADMSG: "Partition.verify() and shmstore-admin verify --tier check the rest",
}
_OF_OTHERS = ("actor", "place", "order", "stage", "task", "profile")
_UNKNOWN = {  # without an arbiter the library's words for a code would lead astray
    errno.ENOTSUP: "no arbiter is behind this store; let shmstored run with its arbiter enabled "
                   "(shmstore-admin arb pools)",
    errno.EINVAL: "the task, pool or reservation is not known any more, or the context is bound in "
                  "another way or waits already",
}


def _remedy(code: int, operation: str, on_disk: bool) -> str | None:
    if any(word in operation for word in _OF_OTHERS):
        return None
    if code == errno.EEXIST and "partition" in operation:
        return "a new partition needs an empty or a missing directory"
    if code == errno.EBUSY and "open store" in operation:
        return "choose another name, or wait until its owner closes it or ends"
    return (on_disk and _ON_DISK.get(code)) or _REMEDIES.get(code)


def failed(code: int, operation: str, what: str, where: str | None, detail: str,
           path: str) -> Error:
    """Of a code of the library's. operation: the format of what, which was tried, or what itself;
    path: that of the file that it is about, or ""."""
    if where is not None:
        what += f" in {where}" if "%" in operation else f" {where}"
    # A sentence with a semicolon says itself what to do.
    todo = None if ";" in detail else _remedy(code, operation, path != "")
    message = f"{what}: {detail}{'; ' if todo else ''}{todo or ''}"
    error = Error(code, message, path) if path else Error(code, message)
    error.detail = detail
    return error


def closed(kind: str, name: str, how: str) -> Error:
    """Of a call of what is closed."""
    return ClosedError(errno.EBADF, f"{kind} {name!r} is closed; open it again with {how}")


def refused(r: int, what: str, where: str, why: str, said: str) -> Error:
    """Of an outcome of the arbiter (r > 0), or of a code of a call about it. said: the library's
    words for r."""
    kind = _OUTCOMES.get(r)
    if kind is None:
        said = why or _UNKNOWN.get(-r, said)
        return Error(-r if r < 0 else errno.EIO, f"{what} in {where}: {said}")
    error = kind(kind._code, f"{what} in {where}: {why or kind._said}")
    error.why = why
    return error
