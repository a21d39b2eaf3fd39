# SPDX-License-Identifier: Apache-2.0
"""report(client) and the performance report: what is in shared memory is
not called spilled to disk."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import distributed
import numpy as np
import pytest
import tasks
from ammclusters import amm
from conftest import PREFIX, cluster, wait_until, workers

import shmstore.dask
from shmstore.dask.client import Report, WorkerReport, add_to

MIB = 1 << 20


def test_shared_memory_is_told_from_spill_files(place):
    with cluster(place, 2, settings={**amm("HostReduceReplicas", start=True),
                                     f"{PREFIX}.share": "eager"}) as client:
        futures = client.map(tasks.make, range(4))
        client.gather(client.map(tasks.total, futures))
        wait_until(lambda: sum(w.partition for w in shmstore.dask.report(client)) >= 4 * tasks.make(
            0).nbytes, "it is told of")
        found = shmstore.dask.report(client)
        assert ([w.worker for w in found] == workers(client) and
                all(w.shares and w.private > 0 for w in found))
        # Dask calls all of it spilled; nothing of it is in spill files.
        assert sum(w.spill for w in found) == 0 and sum(w.tier for w in found) == 0
        text, html = str(found), found._repr_html_()
        for part in (*workers(client), "shared memory", "spill files", "all"):
            assert part in text and part in html
        shown = command(client.scheduler.address)
        assert (shown.returncode == 0 and
                all(part in shown.stdout for part in (*workers(client), "shared memory",
                                                      "policy HostReduceReplicas(linger=10.0)")))
        read = json.loads(command(client.scheduler.address, "--json").stdout)
        assert ([worker["worker"] for worker in read["workers"]] == workers(client) and
                sum(worker["partition"] for worker in read["workers"]) > 0)
        assert [policy["policy"] for policy in read["policies"]] == [
            "HostReduceReplicas(linger=10.0)"] and read["figures"]["drops"] == 0


def test_it_says_why_values_were_not_shared(place):
    with cluster(place, 2) as client:
        assert len(client.submit(lambda: ["some text"] * 1_000_000,
                                 key="text").result()) == 1_000_000
        client.submit(lambda: np.array([object] * 100_000), key="objects").result()
        wait_until(lambda: len(shmstore.dask.report(client).not_shared) >= 2, "it is told of")
        found = shmstore.dask.report(client)
        shown = str(found)
        reasons = {why.partition(":")[0]: counts for why, counts in found.not_shared.items()}
        assert (reasons["numpy.ndarray"] == (1, 800_000) and reasons["list"][0] >= 1 and
                reasons["list"][1] > MIB)
        assert ("its elements are Python objects" in shown and "in its pickle" in shown and
                "not shared: 1 values, " in shown)


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "shmstore.dask", *arguments], capture_output=True,
                          text=True, check=False)


def test_the_command_says_that_a_scheduler_does_not_answer():
    shown = command("tcp://127.0.0.1:1", "--timeout", "0.5")
    assert (shown.returncode == 1 and
            shown.stderr.startswith("shmstore.dask: tcp://127.0.0.1:1 does not answer: "))


def test_a_performance_report_has_it(tmp_path):
    found = Report([WorkerReport("tcp://<a>:1", True, 1, 2 * MIB, 0, 0)])
    page = tmp_path / "r.html"
    page.write_text("<html><body class='x'><p>Dask's own</p></body></html>")
    add_to(str(page), found)
    text = page.read_text()
    assert text.index("<body class='x'>") < text.index("shmstore.dask") < text.index("Dask's own")
    assert "2.0 MiB" in text and "<a>" not in text


def test_in_a_run(place, tmp_path):
    pytest.importorskip("bokeh")
    with cluster(place, 1) as client:
        page = tmp_path / "run.html"
        with shmstore.dask.performance_report(filename=str(page)):
            client.submit(tasks.total, client.submit(tasks.make, 1)).result()
        assert "shmstore.dask" in page.read_text() and workers(client)[0] in page.read_text()


def test_a_report_that_cannot_be_had_takes_nothing_from_dasks_own(monkeypatch, tmp_path):
    page = tmp_path / "r.html"

    async def write(self, *arguments):
        page.write_text("<html><body><p>Dask's own</p></body></html>")

    async def none(client):
        raise OSError("the scheduler has gone")

    monkeypatch.setattr(distributed.performance_report, "__aexit__", write)
    monkeypatch.setattr(distributed, "get_client", lambda: None)
    monkeypatch.setattr(shmstore.dask.client, "_report", none)
    asyncio.run(shmstore.dask.performance_report(filename=str(page)).__aexit__(None, None, None))
    assert "Dask's own" in page.read_text()
