# SPDX-License-Identifier: Apache-2.0
"""Dask over shared memory: workers of one host hold one copy of their data
and hand it on by hard link.

Three ways to turn it on, each enough:

    dask-worker --worker-class shmstore.dask.Worker …
    LocalCluster(worker_class=shmstore.dask.Nanny)    # or Worker, with processes=False or one's own
    dask-worker --preload shmstore.dask …             # or distributed.worker.preload, with that

Workers with and without it, and of several hosts, work together in one cluster. The keys of the
configuration are those of `distributed.worker.memory.shared`, see shmstore.yaml beside this file.

    worker     a worker's messages, and its tasks    preload   nannies, and workers that exist
    residence  where its values live                 tier      the disk tier: what frees memory
    values     which values can be shared            inputs    values that tasks are about to need
    exchange   puts, maps and gives them             claim     a key waits for memory, by steps
    handle     from worker to worker                 arbiter   the host's ledger of memory
    p2p        shuffles and rechunks                 pressure  the host's gate, and its wishes
    client     scatter, gather, report               memory    bounds, turns, the private budget
    hosts      who shares a partition; the queue     config    settings, the log, the guard
    amm        policies of the memory manager        compat    hooks that Dask does not promise
"""

from typing import TYPE_CHECKING

from . import config as _config  # the defaults, before anything reads them
from .compat import probe as _probe
from .compat.probe import gather, scatter

#: Hooks that this Dask lacks: if there are any, all below is stock Dask's.
missing_hooks = _probe.missing()

if TYPE_CHECKING or not missing_hooks:
    from . import amm as _amm  # clients' attribute `shmstore`
    from .client import attach as _attach
    from .client import performance_report, report
    from .compat.worker import register_sizes as _register_sizes
    from .inputs import Input, register_splitter
    from .preload import Nanny, dask_setup
    from .worker import Worker

    _config.preload()
    _attach()
    _register_sizes()
else:
    from .compat.probe import (Input, Nanny, Worker, dask_setup, performance_report,
                               register_splitter, report)

    _works = "distributed 2022.12.1 and 2024.12 to 2026.8 are known to work"
    _probe.say(missing_hooks, __name__, f"Nothing is shared, workers are stock Dask's; {_works}",
               "distributed.worker.shared")

__all__ = [
    "Input",
    "Nanny",
    "Worker",
    "dask_setup",
    "gather",
    "missing_hooks",
    "performance_report",
    "register_splitter",
    "report",
    "scatter",
]
del _config, _probe, TYPE_CHECKING
