# SPDX-License-Identifier: Apache-2.0
"""Dask over shared memory: workers of one host hold one copy of their data and hand it on by hard link.

Three ways to turn it on, each enough:

    dask-worker --worker-class shmstore.dask.Worker …
    LocalCluster(worker_class=shmstore.dask.Nanny)               # or Worker, with processes=False or one's own nanny
    dask-worker --preload shmstore.dask …                         # or distributed.worker.preload: [shmstore.dask]

Workers with and without it, and of several hosts, work together in one cluster. The keys of the configuration are those of
`distributed.worker.memory.shared`, see shmstore.yaml beside this file.
"""

from typing import TYPE_CHECKING

from . import config as _config  # the defaults, before anything reads them
from .compat import probe as _probe

#: Hooks that this Dask lacks: if there are any, all below is stock Dask's.
missing_hooks = _probe.missing()

if TYPE_CHECKING or not missing_hooks:
    from . import amm as _amm  # clients' attribute `shmstore`
    from .client import attach as _attach
    from .client import gather, scatter
    from .compat.worker import register_sizes as _register_sizes
    from .inputs import Input, register_splitter
    from .nanny import Nanny
    from .preload import dask_setup
    from .report import performance_report, report
    from .worker import Worker

    _config.preload()
    _attach()
    _register_sizes()
else:
    from .compat.probe import Input, Nanny, Worker, dask_setup, gather, performance_report, register_splitter, report, scatter

    _probe.say_stock(missing_hooks)

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
