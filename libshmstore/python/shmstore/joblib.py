# SPDX-License-Identifier: Apache-2.0
"""A backend for joblib whose workers get their arguments, and give their results, by handoff.

>>> import joblib, shmstore.joblib
>>> shmstore.joblib.register()
>>> with joblib.parallel_config("shmstore", n_jobs=8):
...     model.fit(x, y)                      # scikit-learn's n_jobs, and every joblib.Parallel

It is joblib's own backend, loky, but for what travels: arrays of 64 KiB and more are mapped
from shared memory, writable, copy-on-write, where loky writes inputs of 1 MiB and more to files
and pickles all results. As with loky, a call writes such an input once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import LokyBackend
except ImportError as error:
    raise ImportError("shmstore.joblib is a backend of joblib: pip install joblib") from error

from .messages import MIN_SIZE, Parcel, Way, begin, forget


def register(min_size: int = MIN_SIZE, partition: str | None = None,
             make_default: bool = False) -> None:
    """Makes the backend known to joblib as "shmstore". min_size, partition: as
    `shmstore.multiprocessing.install` has them."""
    Backend.min_size, Backend.partition = min_size, partition
    register_parallel_backend("shmstore", Backend, make_default=make_default)


class Backend(LokyBackend):  # type: ignore[misc]
    """Is made by joblib."""

    min_size, partition = MIN_SIZE, None  # type: int, str | None

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.way = begin(self.partition, self.min_size)._replace(by_value=True)

    def configure(self, *args: object, **options: object) -> int:
        """As loky's, without its own files of arrays."""
        options["max_nbytes"] = None
        return int(super().configure(*args, **options))

    def start_call(self) -> None:
        """Inputs are sent once in a call, as loky's."""
        super().start_call()
        forget(self.way)

    def stop_call(self) -> None:
        """They leave the partition."""
        super().stop_call()
        forget(self.way)

    def submit(self, func: Callable[[], object], callback: Callable[[object], None] |
               None = None) -> object:
        """As loky's."""
        return super().submit(_Batch(func, self.way), callback)

    def apply_async(self, func: Callable[[], object], callback: Callable[[object], None] |
                    None = None) -> object:
        """As loky's, before joblib 1.5."""
        return super().apply_async(_Batch(func, self.way), callback)


class _Batch:
    """Calls of joblib's, which travel in one message, and their results in another one."""

    def __init__(self, func: Callable[[], object], way: Way) -> None:
        self._func, self._way = func, way

    def __call__(self) -> Parcel:
        return Parcel(self._func(), self._way)

    def __reduce__(self) -> tuple[object, ...]:
        return _batch, (Parcel(self._func, self._way._replace(fixed=True)), *self._way)


def _batch(func: Callable[[], object], *way: Any) -> _Batch:
    return _Batch(func, Way(*way))
