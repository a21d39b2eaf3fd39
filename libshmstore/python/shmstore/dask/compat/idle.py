# SPDX-License-Identifier: Apache-2.0
"""shmstore.dask.amm on a Dask whose manager lacks a hook: the same policies, which do nothing."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, NamedTuple

import distributed

try:
    from distributed.active_memory_manager import ActiveMemoryManagerPolicy
except ImportError:
    ActiveMemoryManagerPolicy = object

logger = logging.getLogger("distributed.scheduler.shmstore")


def say(missing: list[str]) -> None:
    """Once, at import."""
    logger.warning(
        "shmstore: distributed %s lacks what shmstore.dask.amm needs of it: %s. Its policies do nothing", distributed.__version__, "; ".join(missing)
    )


class PolicyState(NamedTuple):
    """Of none."""

    policy: str


class Policy(ActiveMemoryManagerPolicy):  # type: ignore[misc]
    """Takes any argument, suggests nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def run(self) -> Generator[Any, Any, None]:
        """Nothing. A generator, as the manager sends it what came of each suggestion."""
        yield from ()


Cycle = HostReduceReplicas = InDemand = Insurance = Newcomers = Offload = Retire = Wishes = Policy
