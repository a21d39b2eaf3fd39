# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of shmstore.dask: a partition of their own, clusters of real processes,
waiting with a deadline."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

try:
    import shmstore
    import shmstore.dask
except ImportError as error:  # pragma: no cover
    raise pytest.UsageError(
        f"{error}: set PYTHONPATH to <build>/python, and use /usr/bin/python3") from error

import dask
from distributed import Client, LocalCluster

# else caplog sees nothing of it where no other handler was there first
logging.getLogger("distributed").propagate = True
# Frames of Dask 2024.12 and later hold strings in Arrow's memory, and shuffle
# by it. Debian has no pyarrow.
needs_arrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None and
                                 int(dask.__version__.split(".")[0]) >= 2024,
                                 reason="pyarrow is not installed")
HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = "distributed.worker.memory.shared"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("SHMSTORE_")}


_AT_FIRST = _environment()


def _start_method() -> str:
    """Workers are forked off a process that has imported Dask, as for most tests it makes no
    difference how they are started, and each spawned one takes a second of a processor. They have
    its environment: where a test has changed ours, they are spawned."""
    return "forkserver" if _environment() == _AT_FIRST else "spawn"


class Place:
    """A directory for a partition; where root runs the tests a tmpfs of its own, so that its
    books hold nothing else."""

    def __init__(self, size: int = 1 << 30) -> None:
        self.path = tempfile.mkdtemp(prefix="shmstore-dask-", dir="/dev/shm")
        self.mounted = False
        if os.geteuid() == 0:
            for huge in (",huge=within_size", ""):
                options = f"size={size},mode=0700{huge}"
                command = ["mount", "-t", "tmpfs", "-o", options, "shmstore-dask", self.path]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    self.mounted = True
                    break
        self.partition = shmstore.Partition(self.path, create=True)

    def resize(self, size: int) -> None:
        """As an operator does it. Skips where it is no tmpfs of its own."""
        if not self.mounted:
            pytest.skip("needs a tmpfs of its own")
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], check=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def stores(self, label: str = "dask-worker") -> list[shmstore.StoreInfo]:
        return [store for store in self.partition.stores() if store.label == label]


@pytest.fixture
def place():
    place = Place()
    yield place
    place.remove()


def wait_until(condition, what: str, timeout: float = 60.0) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def cluster(place, n: int = 2, worker_class=shmstore.dask.Nanny, memory_limit="1 GiB",
            settings=None, **options):
    """A client of a cluster of n worker processes of one thread each, over the place's
    partition."""
    config = {
        f"{PREFIX}.partition": place.path,
        "temporary-directory": tempfile.gettempdir(),
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.worker.multiprocessing-method": _start_method(),
        **(settings or {}),
    }
    with dask.config.set(config), LocalCluster(
        n_workers=n,
        threads_per_worker=1,
        processes=True,
        memory_limit=memory_limit,
        worker_class=worker_class,
        dashboard_address=None,
        **options,
    ) as local, Client(local) as client:
        if n:
            client.wait_for_workers(n, timeout=60)
        yield client


@contextlib.contextmanager
def dask_worker(scheduler: str, *arguments: str, config=None,
                program=("distributed.cli.dask_worker",)):
    """A dask-worker of the command line, with configuration in its environment. program: a module,
    and what comes before the rest."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *sys.path])}
    for key, value in (config or {}).items():
        env["DASK_" + key.upper().replace(".", "__").replace("-", "_")] = str(value)
    command = [sys.executable, "-m", *program, scheduler, "--nthreads", "1", "--no-dashboard"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*command, *arguments], env=env, stdout=log, stderr=log)
        process.log = log
        try:
            yield process
        finally:
            process.terminate()
            try:
                # of a message that SIGTERM cancels stock waits 30 s for the end
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def workers(client) -> list[str]:
    return sorted(client.scheduler_info()["workers"])


def on_workers(client, function, *arguments):
    """{address: function(worker, …)}."""
    return client.run(_call, function, *arguments)


def _call(function, *arguments, dask_worker):
    return function(dask_worker, *arguments)


def fallbacks(client) -> dict[str, dict[str, int]]:
    """{address: {reason: how often}}."""
    return on_workers(client, _fallbacks)


def _fallbacks(worker):
    return (dict(worker._exchange.fallbacks.counts) if worker._exchange is not None
            else {"no-store": 1})


@pytest.fixture(params=["1 GiB", 0], ids=["spilling", "no-limit"])
def memory_limit(request):
    """With a limit a worker's data is a SpillBuffer, without one it is a dict."""
    return request.param
