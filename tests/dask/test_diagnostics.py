# SPDX-License-Identifier: Apache-2.0
"""Dask's own reports on workers that share: memory by kind, Prometheus,
dumps of the cluster's state."""

from __future__ import annotations

import re
import urllib.request

import pytest
import tasks
import yaml
from conftest import PREFIX, cluster, wait_until, workers

MIB = 1 << 20
N, SIZE = 6, 8 * MIB


@pytest.fixture(scope="module")
def client():
    """Of two workers, the one of which has made values that both have, in the partition."""
    from conftest import Place

    place = Place()
    try:
        with cluster(place, 2, settings={f"{PREFIX}.share": "eager"}) as client:
            a, b = workers(client)
            client.values = [client.submit(tasks.make, i, SIZE, workers=[a], key=f"x{i}")
                             for i in range(N)]
            client.submit(tasks.total, *client.values, workers=[b]).result()
            yield client
    finally:
        place.remove()


def _memory(dask_scheduler):
    found = {}
    for address, ws in dask_scheduler.workers.items():
        told = ws.memory
        old = hasattr(told, "managed_in_memory")  # 2022.12 has other names
        here, spilled = ((told.managed_in_memory, told.managed_spilled) if old
                         else (told.managed, told.spilled))
        found[address] = {"process": told.process, "managed": here, "spilled": spilled}
    return found


def test_memory_by_kind(client):
    """Data in the partition is told as spilled, once for all workers of
    the host, and in no process."""

    def told():
        kinds = client.run_on_scheduler(_memory).values()
        halves = all(found["spilled"] == pytest.approx(N * SIZE / 2, rel=0.01) for found in kinds)
        return halves and all(found["managed"] < MIB < found["process"] for found in kinds)

    wait_until(told, "heartbeats have told the scheduler")
    shares = [info["metrics"]["shmstore"] for info in client.scheduler_info()["workers"].values()]
    assert sum(share["memory"] for share in shares) == pytest.approx(N * SIZE, rel=0.01)
    assert sum(info["metrics"]["spilled_bytes"]["disk"]
               for info in client.scheduler_info()["workers"].values()) == pytest.approx(
                   N * SIZE, rel=0.01)


def test_prometheus(client):
    pytest.importorskip("prometheus_client")
    ports = client.run(lambda dask_worker: dask_worker.http_server.port).values()

    def told():
        return all(_is_told(port) for port in ports)

    wait_until(told, "each worker's page has it")


def _is_told(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    states = dict(re.findall(r'^dask_worker_tasks\{state="(\w+)"\} ([\d.e+]+)', text, re.M))
    sizes = dict(re.findall(r'^dask_worker_memory_bytes\{type="(\w+)"\} ([\d.e+]+)', text, re.M))
    # none in 2022.12
    right = (not sizes or (float(sizes["spilled"]) == pytest.approx(N * SIZE / 2, rel=0.01) and
                           float(sizes["managed"]) < MIB))
    return float(states["memory"] if "memory" in states else states["stored"]) >= N and right


def test_spans(client):
    """A span tells of its tasks what it tells on stock: how many, how large,
    and where their time went."""
    pytest.importorskip("distributed.spans", reason="this Dask knows no spans")
    from distributed import span

    a, b = workers(client)
    with span("whole"):
        with span("make"):
            values = [client.submit(tasks.make, i, SIZE, workers=[a], key=f"span-{i}")
                      for i in range(2)]
        with span("add"):
            total = client.submit(tasks.total, *values, workers=[b], key="span-total")
    expected = sum(float(tasks.make(i, SIZE).sum()) for i in range(2))
    assert total.result() == pytest.approx(expected)

    def told():
        made, added = client.run_on_scheduler(_measured, "make"), client.run_on_scheduler(
            _measured, "add")
        return all(any(of[:2] == ("execute", name) for of in found)
                   for found, name in ((made, "span"), (added, "span-total")))

    wait_until(told, "heartbeats have told the scheduler")
    assert client.run_on_scheduler(_span, "make") == (2, pytest.approx(2 * SIZE, rel=0.01))
    assert (client.run_on_scheduler(_span, "add")[0] == 1 and
            client.run_on_scheduler(_span, "whole")[0] == 3)
    for name in ("make", "add"):
        activities = {activity for _, _, activity, unit in client.run_on_scheduler(_measured, name)
                      if unit == "seconds"}
        assert {"thread-cpu", "thread-noncpu", "executor", "other"} <= activities, activities


def _found(scheduler, name):
    (found,) = (each for each in scheduler.extensions["spans"].spans.values()
                if each.name[-1] == name)
    return found


def _span(name, dask_scheduler):
    found = _found(dask_scheduler, name)
    return sum(found.states.values()), found.nbytes_total


def _measured(name, dask_scheduler):
    return [of for of in _found(dask_scheduler, name).cumulative_worker_metrics if of[1] != "N/A"]


def test_dump_cluster_state(client, tmp_path):
    path = str(tmp_path / "state")
    client.dump_cluster_state(path, format="yaml")
    with open(path + ".yaml") as file:
        text = file.read()
    state = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert (set(state["workers"]) == set(workers(client)) and {f"x{i}" for i in range(N)} <= set(
        state["scheduler"]["tasks"]))
    for worker in state["workers"].values():
        assert {key: task["state"] for key, task in worker["tasks"].items()
                if key.startswith("x")} == {f"x{i}": "memory" for i in range(N)}
