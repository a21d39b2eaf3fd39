# SPDX-License-Identifier: Apache-2.0
"""pytest plug-in for Dask's own test files as Debian installs them, which
come without their conftest.

It gives them the options, markers and fixtures they ask for. With SHMSTORE_UPSTREAM=ours in the
environment it puts our Worker and Nanny where Dask has its own, before anything of Dask has bound
those names. With SHMSTORE_UPSTREAM_AMM=1 schedulers run our policies by default; tests that name
policies of their own have those.

Each outcome is a line of the file SHMSTORE_UPSTREAM_OUTCOMES as soon as there is one: a test that
takes too long, or an error in pytest, ends it without a report. Tests that began according to that
file are left out.
"""
import contextlib
import os

import pytest

if os.environ.get("SHMSTORE_UPSTREAM") == "ours":
    import distributed
    import distributed.nanny
    import distributed.worker

    import shmstore.dask
    import shmstore.dask.worker

    _set_up = shmstore.dask.worker.Worker._share
    _workers = {True: 0, False: 0}

    def _count(worker):
        _set_up(worker)
        _workers[worker._exchange is not None] += 1

    shmstore.dask.worker.Worker._share = _count

    def pytest_terminal_summary(terminalreporter):
        if os.environ.get("SHMSTORE_UPSTREAM_AMM"):
            terminalreporter.write_line(f"runs of our policies: {_runs[0]}")
        terminalreporter.write_line(f"workers that shared: {_workers[True]}, that did not: "
                                    f"{_workers[False]}")

    if os.environ.get("SHMSTORE_UPSTREAM_AMM"):
        import dask

        import shmstore.dask.amm.conductor

        _policies = ["HostReduceReplicas", "Retire", "Insurance", "InDemand", "Newcomers",
                     "Offload", "Cycle"]
        dask.config.set({"distributed.scheduler.active-memory-manager.policies":
                             [{"class": f"shmstore.dask.amm.{name}"} for name in _policies]})
        _begin = shmstore.dask.amm.conductor.Conductor._begin
        _runs = [0]

        def _counted(conductor):
            _runs[0] += 1
            _begin(conductor)

        shmstore.dask.amm.conductor.Conductor._begin = _counted

    distributed.Worker = distributed.worker.Worker = distributed.nanny.Worker = shmstore.dask.Worker
    distributed.Nanny = distributed.nanny.Nanny = shmstore.dask.Nanny

from distributed.utils_test import *  # noqa: E402, F401, F403: the fixtures

pytest_plugins = ["distributed.pytest_resourceleaks"]


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run the tests marked slow, too")


def pytest_configure(config):
    for marker in ("avoid_ci", "extra_packages", "flaky", "gpu", "ipython", "slow"):
        config.addinivalue_line("markers", f"{marker}: used by Dask's tests")


def _write(outcome, place="", node=""):
    with open(os.environ["SHMSTORE_UPSTREAM_OUTCOMES"], "a") as file:
        file.write(f"{outcome}\t{place}\t{node}\n")


def pytest_runtest_logstart(nodeid, location):
    _write("begun", location[0], nodeid)


def pytest_runtest_logreport(report):
    if report.failed or report.skipped or (report.passed and report.when == "call"):
        xfailed = report.skipped and hasattr(report, "wasxfail")
        _write("xfailed" if xfailed else report.outcome, report.location[0], report.nodeid)


def pytest_sessionfinish(exitstatus):
    if exitstatus != pytest.ExitCode.INTERNAL_ERROR:
        _write("ended")


def pytest_collection_modifyitems(config, items):
    with contextlib.suppress(FileNotFoundError), open(os.environ[
            "SHMSTORE_UPSTREAM_OUTCOMES"]) as file:
        begun = {line.rstrip("\n").rpartition("\t")[2] for line in file}
        items[:] = [item for item in items if item.nodeid not in begun]
    skip = {"avoid_ci": pytest.mark.skip(reason="not for CI")}
    if not config.getoption("--runslow"):
        skip["slow"] = pytest.mark.skip(reason="needs --runslow")
    for item in items:
        for name, mark in skip.items():
            if name in item.keywords:
                item.add_marker(mark)
