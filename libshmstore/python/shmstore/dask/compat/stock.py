# SPDX-License-Identifier: Apache-2.0
"""The package on a Dask that lacks a hook: the same names, which do as stock Dask does."""

from __future__ import annotations

import logging
from typing import Any

import distributed
from distributed import Client, Worker, performance_report

__all__ = ["Input", "Nanny", "Worker", "dask_setup", "gather", "performance_report", "register_splitter", "report", "scatter", "say"]

logger = logging.getLogger("distributed.worker.shared")


def say(missing: list[str]) -> None:
    """Once, at import."""
    logger.warning(
        "shmstore: distributed %s lacks what shmstore.dask needs of it: %s. Nothing is shared, workers are stock Dask's; "
        "distributed 2022.12.1 and 2024.12 to 2026.8 are known to work",
        distributed.__version__,
        "; ".join(missing),
    )


class Nanny(distributed.Nanny):
    """distributed.Nanny."""


class Input:
    """Stands for nothing here: no key is done in pieces."""


def dask_setup(server: Any) -> None:
    """A worker or nanny that preloads this package stays as it is."""


def scatter(client: Client, data: Any, *args: Any, **kwargs: Any) -> Any:
    return client.scatter(data, *args, **kwargs)


def gather(client: Client, futures: Any, *args: Any, **kwargs: Any) -> Any:
    return client.gather(futures, *args, **kwargs)


def report(client: Client) -> tuple[()]:
    """No worker shares anything."""
    return ()


def register_splitter(func_or_prefix: Any, split: Any, combine: Any) -> None:
    """No key is done in pieces."""
