# SPDX-License-Identifier: Apache-2.0
"""shmstore.dagster: a job whose steps are processes, assets, partitions. Skipped where
Dagster is not installed."""

import os

import numpy
import pytest

import shmstore
from shmstore.caching import Cache

dagster = pytest.importorskip("dagster")
from shmstore.dagster import ShmIOManager  # noqa: E402

N = 1 << 17


@dagster.op
def made():
    return {"a": numpy.arange(N, dtype=float), "small": 5}


@dagster.op(out={"total": dagster.Out(), "pid": dagster.Out(), "cached": dagster.Out()})
def summed(value):
    value["a"][0] = 1  # nobody else sees it
    return float(value["a"].sum()), os.getpid(), len(Cache("dagster"))


@dagster.job(resource_defs={"io_manager": ShmIOManager()},
             executor_def=dagster.multiprocess_executor)
def steps():
    value = made()
    summed.alias("first")(value)
    summed.alias("second")(value)


@dagster.asset
def table():
    return numpy.ones(N)


@dagster.asset
def total(table):
    return float(table.sum())


@dagster.asset(partitions_def=dagster.StaticPartitionsDefinition(["x", "y"]))
def parts(context):
    return numpy.full(N, len(context.partition_key))


@pytest.fixture
def manager(place, tmp_path, monkeypatch):
    monkeypatch.setenv("SHMSTORE_PARTITION", place.path)
    return ShmIOManager(base_dir=str(tmp_path))


def test_steps_that_are_processes(manager, tmp_path, monkeypatch):
    # in the steps' processes Dagster takes the first directory for its own, and leaves it out
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "instance").mkdir()
    with dagster.DagsterInstance.local_temp(str(tmp_path / "instance"),
                                            overrides={"telemetry": {
                                                "enabled": False}}) as instance:
        with dagster.execute_job(dagster.reconstructable(steps), instance,
                                 raise_on_error=True) as result:
            assert result.success
            for step in ("first", "second"):
                assert result.output_for_node(step, "total") == float(numpy.arange(N).sum()) + 1
                assert result.output_for_node(step, "cached") == 1
            assert len({os.getpid(), result.output_for_node("first", "pid"),
                        result.output_for_node("second", "pid")}) == 3
    assert len(Cache("dagster")) == 1  # small values are in their files alone


def test_assets_are_read_from_their_files_where_memory_has_them_no_more(manager, tmp_path):
    resources = {"io_manager": manager}
    assert dagster.materialize([table, total], resources=resources).output_for_node("total") == N
    cache = Cache("dagster")
    before = (tmp_path / "table").stat()
    assert len(cache) == 1 and before.st_size > N * 8
    for _ in range(2):
        cache.clear()
        assert dagster.materialize([table, total], resources=resources,
                                   selection=[total]).output_for_node("total") == N
        assert len(cache) == 1
    dagster.materialize([table], resources=resources)
    assert len(cache) == 1 and (cache[str(tmp_path / "table")] == 1).all()


def test_partitions(manager, tmp_path):
    for key in ("x", "y"):
        assert dagster.materialize([parts], resources={"io_manager": manager},
                                   partition_key=key).success
    assert sorted(Cache("dagster")) == [str(tmp_path / "parts" / key) for key in ("x", "y")]


def test_no_room(tmp_path, own_mount, place):
    manager = ShmIOManager(base_dir=str(tmp_path), partition=place.path)
    with shmstore.Partition(place.path, create=True).open("hog") as hog:
        hog.put_buffers("all", b"", [bytes(shmstore.Partition(place.path).info().bytes_available -
                                           (1 << 20))])
        with pytest.warns(RuntimeWarning, match="without shared memory"):
            assert dagster.materialize([table, total],
                                       resources={"io_manager": manager}).output_for_node(
                                           "total") == N
