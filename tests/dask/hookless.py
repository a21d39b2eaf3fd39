# SPDX-License-Identifier: Apache-2.0
"""For test_hooks.py: imports shmstore.dask on a Dask without one hook, for each hook in turn, and
runs a job on it. One line of JSON each.

With the argument "manager": the hooks of the scheduler's Active Memory Manager; the job's scheduler
has every policy of shmstore.dask.amm.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
import time
from contextlib import contextmanager, nullcontext

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
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False,
               "dashboard_address": ":0"}
    with LocalCluster(worker_class=worker_class, **options) as cluster, Client(cluster) as client:
        yield cluster, client


def job(ours, cluster, client):
    """The result, and whether a worker shares. Calls all that can be called."""
    ours.register_splitter("no-such", lambda args, kwargs: None, sum)
    future = ours.scatter(client, list(range(10)), workers=None, hash=False)
    total = sum(ours.gather(client, future))
    total += int(dask.array.ones((64, 64), chunks=32).sum().compute())
    ours.report(client)
    for worker in cluster.workers.values():
        ours.dask_setup(worker)
    return total, any(getattr(worker, "_exchange", None) is not None
                      for worker in cluster.workers.values())


def told(hook, ours, lines, total, shares):
    """One line for test_hooks.py."""
    name = None if hook is None else hook.name
    stock = ours.Worker is distributed.Worker
    print(json.dumps({"hook": name, "missing": ours.missing_hooks, "said": lines, "stock": stock,
                      "total": total, "shares": shares}), flush=True)


POLICIES = ("HostReduceReplicas", "Retire", "Insurance", "InDemand", "Newcomers", "Offload",
            "Cycle", "Wishes")


def managed_job(ours):
    """The result of a job while the manager runs every policy, whether a worker shares, and whether
    the manager keeps the policies."""
    policies = [{"class": f"shmstore.dask.amm.{name}"} for name in POLICIES]
    manager = "distributed.scheduler.active-memory-manager"
    with dask.config.set({f"{manager}.policies": policies, f"{manager}.start": True,
                          f"{manager}.interval": "10ms"}):
        with cluster_of(ours.Worker) as (cluster, client):
            total, shares = job(ours, cluster, client)
            # replicas, about which a manager could do something
            numbers = client.scatter(list(range(10)), broadcast=True)
            client.amm.run_once()
            time.sleep(0.05)
            assert client.gather(numbers) == list(range(10)) and client.amm.running()
            return total, shares, len(cluster.scheduler.extensions["amm"].policies) == len(POLICIES)


def manager():
    """As main, of the manager's hooks: one cluster each, as each has policies of another import."""
    logger = logging.getLogger("distributed.scheduler.shmstore")
    probe = importlib.import_module("shmstore.dask.compat.probe")
    for hook in (None, *probe.MANAGER):
        lines = Lines()
        logger.addHandler(lines)
        with without(hook) if hook is not None else nullcontext():
            ours = again()
        logger.removeHandler(lines)
        amm = sys.modules["shmstore.dask.amm"]
        total, shares, kept = managed_job(ours)
        found = {"hook": None if hook is None else hook.name, "missing": amm.missing_hooks,
                 "workers miss": ours.missing_hooks, "said": lines.lines}
        idle = amm.HostReduceReplicas.__module__ == "shmstore.dask.compat.probe"
        print(json.dumps({**found, "idle": idle, "total": total, "shares": shares, "kept": kept}),
              flush=True)


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
    # one for all: what a Dask without a hook has is stock's class
    with cluster_of(distributed.Worker) as (cluster, client):
        for hook, ours, lines in found:
            told(hook, ours, lines, *job(ours, cluster, client))


if __name__ == "__main__":
    manager() if sys.argv[1:] == ["manager"] else main()
