# SPDX-License-Identifier: Apache-2.0
"""Dask over shared memory: workers of one host hold one copy of their data and hand it on by hard link.

Three ways to turn it on, each enough:

    dask-worker --worker-class shmstore.dask.Worker …
    LocalCluster(worker_class=shmstore.dask.Nanny)               # or Worker, with processes=False or one's own nanny
    dask-worker --preload shmstore.dask …                         # or distributed.worker.preload: [shmstore.dask]

Workers with and without it, and of several hosts, work together in one cluster. The keys of the configuration are those of
`distributed.worker.memory.shared`, see shmstore.yaml beside this file.
"""

from . import config as _config  # the defaults, before anything reads them
from .client import gather, scatter
from .nanny import Nanny
from .preload import dask_setup
from .report import performance_report, report
from .splitters import Input, register_splitter
from .worker import Worker

__all__ = ["Input", "Nanny", "Worker", "dask_setup", "gather", "performance_report", "register_splitter", "report", "scatter"]
_config.preload()
del _config
