# SPDX-License-Identifier: Apache-2.0
"""For test_hooks.py: imports shmstore.dask on a Dask without one hook, for each hook in turn, and runs a job on it. One line of JSON each."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
from contextlib import contextmanager

import dask
import dask.array  # noqa: F401  what the job needs is there before anything is taken away
import distributed
from distributed import Client, LocalCluster


@contextmanager
def without(hook):
    """Within, Dask lacks it."""
    owner = importlib.import_module(hook.module)
    *way, name = hook.path.split(".")
    for part in way:
        owner = getattr(owner, part)
    owners = [owner]
    if not inspect.ismodule(owner):
        kind = owner if inspect.isclass(owner) else type(owner)
        owners = [base for base in kind.__mro__ if name in vars(base)]
    found = [vars(each)[name] for each in owners]
    for each in owners:
        delattr(each, name)
    try:
        yield
    finally:
        for each, value in zip(owners, found):
            setattr(each, name, value)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def again():
    """shmstore.dask, imported anew."""
    for name in [name for name in sys.modules if name.startswith("shmstore.dask")]:
        del sys.modules[name]
    return importlib.import_module("shmstore.dask")


@contextmanager
def cluster_of(worker_class):
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(worker_class=worker_class, **options) as cluster, Client(cluster) as client:
        yield cluster, client


def job(ours, cluster, client):
    """The result, and whether a worker shares. What can be called is called."""
    ours.register_splitter("no-such", lambda args, kwargs: None, sum)
    future = ours.scatter(client, list(range(10)), workers=None, hash=False)
    total = sum(ours.gather(client, future))
    total += int(dask.array.ones((64, 64), chunks=32).sum().compute())
    ours.report(client)
    for worker in cluster.workers.values():
        ours.dask_setup(worker)
    return total, any(getattr(worker, "_exchange", None) is not None for worker in cluster.workers.values())


def told(hook, ours, lines, total, shares):
    """One line for test_hooks.py."""
    name = None if hook is None else hook.name
    stock = ours.Worker is distributed.Worker
    print(json.dumps({"hook": name, "missing": ours.missing_hooks, "said": lines, "stock": stock, "total": total, "shares": shares}), flush=True)


def main():
    logger = logging.getLogger("distributed.worker.shared")
    probe = importlib.import_module("shmstore.dask.compat.probe")
    whole = next(way for way in probe.EITHER if all(hook.there() for hook in way))
    ours = again()
    with cluster_of(ours.Worker) as (cluster, client):
        told(None, ours, [], *job(ours, cluster, client))
    found = []
    for hook in (*probe.HOOKS, *whole):
        lines = Lines()
        logger.addHandler(lines)
        with without(hook):
            found.append((hook, again(), lines.lines))
        logger.removeHandler(lines)
    with cluster_of(distributed.Worker) as (cluster, client):  # one for all: what a Dask without a hook has is stock's class
        for hook, ours, lines in found:
            told(hook, ours, lines, *job(ours, cluster, client))


if __name__ == "__main__":
    main()
