# SPDX-License-Identifier: Apache-2.0
"""The workloads of bench/bench_workloads, small: the same results as on
stock Dask, byte for byte."""

from __future__ import annotations

import os
import sys

import dask
import distributed
import pytest
from conftest import HERE, Place, cluster, fallbacks

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench"))
import dask_workloads  # noqa: E402
from dask_jobs import Spec  # noqa: E402

# Workloads that stock Dask itself cannot run: in which version, and why.
_VERSION = dask.__version__.split("+")[0]  # without what a distribution adds
BROKEN = {("2024.12.1", "scikit-learn"): "a persisted array's to_delayed() gives names of values "
                                         "in place of the values"}
SPEC = {"size": 8 << 20, "chunk": 1 << 20, "workers": 2}


@pytest.fixture(scope="module")
def clients():
    place = Place()
    try:
        with cluster(place, 2, worker_class=distributed.Nanny) as stock, cluster(place, 2) as ours:
            yield stock, ours
            assert place.partition.usage(full=True).residual == 0
    finally:
        place.remove()


@pytest.mark.parametrize("name", dask_workloads.workloads)
def test_results_are_those_of_stock(clients, name):
    stock, ours = clients
    if (_VERSION, name) in BROKEN:
        pytest.skip(f"stock fails: {BROKEN[_VERSION, name]}")
    try:
        with stock.as_current():
            expected = dask_workloads.workloads[name](stock, Spec(name, **SPEC))
    except dask_workloads.Missing as missing:
        pytest.skip(str(missing))
    with ours.as_current():
        assert dask_workloads.workloads[name](ours, Spec(name, **SPEC)) == expected
    found = {reason for counts in fallbacks(ours).values() for reason in counts}
    assert not found, "nothing fell back"
