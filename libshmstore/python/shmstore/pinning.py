# SPDX-License-Identifier: Apache-2.0
"""A view's memory pinned for the copies of a GPU: `pinned`."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import functools
import os
from collections.abc import Iterator

from ._shmstore import View
from .errors import Error
from .parts import address_of


@functools.lru_cache(maxsize=None)
def _runtime() -> ctypes.CDLL:
    """The CUDA runtime that the process has loaded, or one that can be found."""
    for name in (os.environ.get("SHMSTORE_CUDART"), "libcudart.so.13", "libcudart.so.12",
                 "libcudart.so.11.0", ctypes.util.find_library("cudart")):
        with contextlib.suppress(OSError):
            if name:
                return ctypes.CDLL(name)
    raise Error(errno.ENOSYS, "pinned: there is no CUDA runtime (libcudart.so); install one, or "
                              "set SHMSTORE_CUDART to its path")


def _call(name: str, *args: object) -> None:
    error = getattr(_runtime(), name)(*args)
    if error:
        raise Error(errno.EIO, f"pinned: {name} answers {error} (cudaError_t); pages that are "
                               f"pinned already answer 712")


@contextlib.contextmanager
def pinned(view: View) -> Iterator[View]:
    """Within the block the view's buffers are page-locked for CUDA
    (cudaHostRegister), all of them as one range.

    Copies to and from the device must be over before the block ends: it keeps the view, and
    what comes after it does not.
    """
    buffers = [buffer for buffer in view.buffers if buffer.nbytes]
    if not buffers:
        yield view
        return
    begin, end = address_of(buffers[0]), address_of(buffers[-1]) + buffers[-1].nbytes
    # cudaHostRegisterReadOnly, CUDA 11.1: of a map that cannot be written to
    read_only = 0 if view.cow else 8
    _call("cudaHostRegister", ctypes.c_void_p(begin), ctypes.c_size_t(end - begin),
          ctypes.c_uint(read_only))
    try:
        yield view
    finally:
        _call("cudaHostUnregister", ctypes.c_void_p(begin))
