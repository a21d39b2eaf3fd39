# SPDX-License-Identifier: Apache-2.0
"""The policies' page on the scheduler's HTTP server, and their metrics among Dask's."""

from __future__ import annotations

import os
import re
from collections import Counter
from urllib.request import urlopen

import pytest
import tasks
from ammclusters import MIB, amm
from conftest import HERE, cluster, wait_until
from distributed import wait

from shmstore.dask.amm import serving
from shmstore.dask.compat.scheduler import add_page

DESCRIBED = {
    "policies": [{"policy": "Insurance(<b>)", "rank": 20, "state": "idle", "period": 1.0, "runs": 3,
                  "accepted": 2, "failures": 1, "took": 0.0015}],
    "stock": ["RetireWorker('tcp://<a>:1')"],
    "figures": {"links": 4, "bytes_linked": 3 * MIB, "drops_refused": 5, "retired": 1,
                "retire_seconds_sum": 0.25, "retire_seconds": [0.25]},
    "hosts": [
        {"host": "h&1", "shared": True, "workers": 2, "replicas": 7, "used": 2 * MIB,
         "size": 8 * MIB, "private": MIB, "pressed": True},
        {"host": "tcp://b:1", "shared": False, "workers": 1, "replicas": 1, "used": 0, "size": 0,
         "private": MIB, "pressed": False},
    ],
}

#: Of all there may be, as Prometheus has them.
METRICS = {
    *(f"shmstore_amm_{name}" + "_total" * counts
      for name, counts, _ in serving._FIGURE_METRICS.values()),
    *(f"shmstore_amm_host_{name}" for name, _ in serving._HOST_METRICS.values()),
    *(f"shmstore_amm_policy_{name}" + "_total" * counts
      for name, counts, _ in serving._POLICY_METRICS.values()),
}


def samples(described):
    return {(family.name, labels): value for family in serving.families(described)
            for labels, value in family.samples}


def test_a_page_of_what_was_found():
    text = serving.page(DESCRIBED)
    parts = ("Insurance(&lt;b&gt;)", "RetireWorker(&#x27;tcp://&lt;a&gt;:1&#x27;)", "3.0 MiB</td>",
             "<td>0.250 s</td>", "<td>h&amp;1</td>", "<td>1.5 ms</td>")
    for part in parts:
        assert part in text, part
    assert text.count("short of room") == 1 and text.count("shares nothing") == 1
    assert "<b>" not in text and "<a>" not in text
    assert "<tbody></tbody>" in serving.page({"policies": [], "stock": [], "figures": {},
                                              "hosts": []}), "where nothing runs"


def test_metrics_of_what_was_found():
    found = samples(DESCRIBED)
    assert (found["shmstore_amm_links", ()] == 4 and found["shmstore_amm_linked_bytes", ()] == 3 *
            MIB)
    assert (found["shmstore_amm_drops_refused", ()] == 5 and
            found["shmstore_amm_retire_seconds", ()] == 0.25)
    assert (found["shmstore_amm_host_replicas", ("h&1",)] == 7 and
            found["shmstore_amm_host_pressed", ("h&1",)] == 1)
    assert found["shmstore_amm_policy_failures", ("Insurance(<b>)",)] == 1
    assert samples({"policies": [], "stock": [], "figures": {}, "hosts": []}) == {}
    twice = {**DESCRIBED, "policies": DESCRIBED["policies"] * 2}
    counts = Counter((family.name, labels) for family in serving.families(twice)
                     for labels, _ in family.samples)
    assert set(counts.values()) == {1}, "Prometheus takes no series twice"


def test_the_documentation_lists_all_metrics():
    with open(os.path.join(HERE, "..", "..", "docs", "dask.md"), encoding="utf-8") as file:
        told = set(re.findall(r"`(shmstore_amm_\w+)`", file.read()))
    assert told == METRICS


def test_without_a_server_there_is_no_page():
    add_page(object(), "shmstore", lambda scheduler: "", lambda scheduler: ())


def get(client, path):
    with urlopen(f"http://127.0.0.1:{client.cluster.scheduler.http_server.port}{path}",
                 timeout=10) as answer:
        return answer.read().decode()


def test_in_a_cluster(place):
    with cluster(place, 3, settings=amm("HostReduceReplicas", "Retire", "Insurance", start=True,
                                        interval="200ms")) as client:
        chunks = [client.submit(tasks.make, i, 4 * MIB, key=f"x-{i}") for i in range(4)]
        wait(chunks)
        wait_until(lambda: client.shmstore.figures().get("links", 0) >= 4, "each is insured")
        client.retire_workers([sorted(client.scheduler_info()["workers"])[0]])
        wait_until(lambda: client.shmstore.figures()["retired"] == 1, "it is counted")
        text = get(client, "/shmstore")
        for part in ("Insurance", "HostReduceReplicas", "<td>links</td>", "<td>bytes linked</td>",
                     "<td>retire seconds</td>", "<td>drops refused</td>"):
            assert part in text, part
        assert "<h1>shmstore.dask.amm</h1>" in get(client, "/some/prefix/shmstore")
        pytest.importorskip("prometheus_client")
        told = dict(line.rsplit(" ", 1) for line in get(client, "/metrics").splitlines()
                    if line.startswith("shmstore_amm_"))
        assert (float(told["shmstore_amm_links_total"]) >= 4 and
                float(told["shmstore_amm_linked_bytes_total"]) >= 16 * MIB)
        assert (float(told["shmstore_amm_retired_total"]) == 1 and
                float(told["shmstore_amm_retire_seconds_total"]) > 0)
        assert any(name.startswith("shmstore_amm_host_replicas{") for name in told)
        assert {name.partition("{")[0] for name in told} == METRICS


def test_metrics_that_fail_leave_dasks_own(place, monkeypatch):
    pytest.importorskip("prometheus_client")

    def fails(described):
        raise RuntimeError("for a test")

    with cluster(place, 1, settings=amm("HostReduceReplicas", start=True,
                                        interval="200ms")) as client:
        wait_until(lambda: client.shmstore.policies()[0].runs, "the first run")
        monkeypatch.setattr(serving, "families", fails)
        text = get(client, "/metrics")
        assert "dask_scheduler_workers" in text and "shmstore_amm_" not in text
