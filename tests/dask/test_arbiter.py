# SPDX-License-Identifier: Apache-2.0
"""Workers under the memory arbiter of a real daemon: each way in which a key gets its memory,
and that each was really taken.

A worker's handling of each outcome is tested by test_admission.py, without a cluster. Here one
cluster serves all tests, in their order: it starts without the daemon, finds it, and loses it in
the end.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
import tempfile

import numpy as np
import pytest
from arbtasks import MIB, blob, chunk, join, join_behind, weigh, weigh_behind, weigh_list
from conftest import PREFIX, Place, cluster, on_workers, wait_until, workers
from distributed import Future, wait

from shmstore.dask.claim import fold_priority

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from daemon import Daemon  # noqa: E402

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")

SIZE = 64 * MIB  # of the partition
LIMIT = 64 * MIB  # of a worker, of which values and what runs get 38.4 MiB
CHUNK = 2 * MIB
BLOB = 4 * MIB
BLOB_SIZEOF = sys.getsizeof(blob(1, BLOB))
SETTINGS = {
    f"{PREFIX}.share": "eager",
    # what is compressed has to come back; all else is used on disk and asks
    # for no room (test_inputs.py)
    f"{PREFIX}.tier.level": 1,
    # Memory that the process takes beside its values is left out (forget_process): no worker
    # is ended or paused for the memory that Python itself takes.
    **{f"distributed.worker.memory.{key}": False for key in ("spill", "pause", "terminate")},
}


class Host:
    """A partition with its daemon, which does not run at first, workers one and two, and
    what fills the partition."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="shmstore-arbiter-")
        self.place = Place(SIZE)
        self.daemon = Daemon(config=f'arbiter {{ }}\npartition "{self.place.path}" {{ }}',
                             http=False, start=False)
        self.client = None
        self.one = self.two = ""
        self._hog = None
        self._views: list = []
        self._seen = 0

    def close(self) -> None:
        try:
            self.release()
            self.daemon.close()
        finally:
            self.place.remove()
            self.directory.cleanup()

    # -- the daemon's side

    def document(self, what: str = "arbiter") -> dict:
        with self.daemon.wire() as wire:
            return wire.query(what)["partitions"][0]

    def tasks(self) -> dict[str, dict]:
        """Those of keys, by key. Each has one context, which is under "context"."""
        document = self.document()
        contexts = {context["task"]: context for context in document["contexts"] if context["task"]}
        return {task["label"]: {**task, "context": contexts.get(task["id"])}
                for task in document["tasks"]}

    def state(self, key: str) -> str | None:
        task = self.tasks().get(key)
        return task["context"]["state"] if task and task["context"] else None

    def outcomes(self) -> set[str]:
        """Of the steps since `forget`."""
        return {step["outcome"] for step in self.document("arb_log")["log"]
                if step["number"] > self._seen}

    def forget(self) -> None:
        self._seen = max((step["number"] for step in self.document("arb_log")["log"]), default=0)

    # -- the workers' side

    def active(self) -> bool:
        return all(on_workers(self.client, active).values())

    def of(self, worker: str, function, *arguments):
        return self.client.run(of_worker, function, *arguments, workers=[worker])[worker]

    def counts(self, worker: str) -> dict[str, int]:
        """How its keys got their memory since this was asked last."""
        return self.of(worker, take_counts)

    # -- the partition

    def fill(self, nbytes: int) -> None:
        """Somebody else has so much of it mapped: nobody can move that out."""
        self.release()
        self._hog = self.place.partition.open("hog", daemon="off")
        for i in range(nbytes // (4 * MIB)):
            self._hog.put_buffers(f"hog-{i}", b"", [np.ones(4 * MIB, "u1")], evict=True)
            self._views.append(self._hog.view(f"hog-{i}"))

    def release(self) -> None:
        self._views.clear()
        if self._hog is not None:
            self._hog.close()
            self._hog = None

    # -- what keys wait for

    def gate(self, name: str) -> str:
        return os.path.join(self.directory.name, name)

    def open_gate(self, name: str) -> None:
        with open(self.gate(name), "x"):
            pass


@pytest.fixture(scope="module")
def module_host():
    host = Host()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHMSTORE_SOCKET", host.daemon.socket)
        try:
            with cluster(host.place, 2, memory_limit=LIMIT, settings=SETTINGS) as client:
                host.client = client
                host.one, host.two = workers(client)
                on_workers(client, forget_process)
                yield host
        finally:
            host.close()


@pytest.fixture
def host(module_host):
    if module_host.daemon.process is None or module_host.daemon.process.poll() is not None:
        module_host.daemon.restart()
    wait_until(module_host.active, "the workers find the arbiter")
    wait_until(lambda: not any(on_workers(module_host.client, n_values).values()),
               "the test before has left nothing")
    module_host.forget()
    on_workers(module_host.client, take_counts)
    yield module_host
    module_host.release()
    client = module_host.client
    # a test that failed keeps them in its frames
    client.cancel([Future(key, client) for key in list(client.futures)], force=True)


def of_worker(function, *arguments, dask_worker):
    return function(dask_worker, *arguments)


def forget_process(worker):
    worker.monitor.get_process_memory = lambda: 0
    worker._arbitration.budget.unmanaged = 0


def active(worker):
    return worker._arbitration.active


def n_values(worker):
    return len(worker.data)


def take_counts(worker):
    counts = dict(worker._arbitration.admission.counts)
    worker._arbitration.admission.counts.clear()
    return counts


def fallback_counts(worker):
    return dict(worker._exchange.fallbacks.counts)


def lent(worker):
    return worker._arbitration.admission.slots.lent


def spilled_keys(worker):
    return sorted(worker.data.slow)


def priority_of(worker, key):
    return tuple(worker.state.tasks[key].priority)


def has_mapped(worker, keys):
    entries = [worker.data.entry(key) for key in keys]
    return all(entry is not None and entry.value is not None for entry in entries)


def make_blobs(host, n):
    """On the first worker. Of more than 9 some are spilled."""
    blobs = [host.client.submit(blob, i, BLOB, key=f"blob-{i}", workers=host.one) for i in range(n)]
    wait(blobs)
    return blobs


def make_chunks(host, worker, numbers):
    """They lie in the partition, and in the disk tier where it has no room."""
    chunks = [host.client.submit(chunk, i, CHUNK, key=f"chunk-{i}", workers=worker)
              for i in numbers]
    wait(chunks)
    return chunks


def total(numbers):
    return CHUNK // 8 * sum(numbers)


def test_without_a_daemon_keys_run_as_before(module_host):
    host, client = module_host, module_host.client
    chunks = make_chunks(host, host.one, range(40))
    assert client.submit(weigh, *chunks, key="unasked", workers=host.one).result() == total(
        range(40))
    assert not host.active() and host.counts(host.one) == {}


# -- private memory


def test_a_key_is_a_task_that_reserves_what_it_brings_back_and_what_it_makes(host):
    client = host.client
    blobs = make_blobs(host, 14)
    joined = client.submit(join, *blobs[:2], key="join-1", workers=host.one)
    wait(joined)  # of the next one it is known what it makes
    spilled = [key for key in host.of(host.one, spilled_keys) if key.startswith("blob")][:2]
    inputs = [blobs[int(key.split("-")[1])] for key in spilled]
    future = client.submit(join_behind, host.gate("joined"), *inputs, key="join-2",
                           workers=host.one, priority=7)
    wait_until(lambda: host.tasks().get("join-2", {}).get("held"), "it is given what it needs")
    task = host.tasks()["join-2"]
    # The result in both pools: it is made in private memory, and eager
    # results go on into the partition.
    assert task["held"] == 2 * BLOB_SIZEOF + 2 * sys.getsizeof(blob(1, 2 * BLOB))
    assert task["priority"] == fold_priority(host.of(host.one, priority_of, "join-2"))
    assert task["context"]["kind"] == "dedicated" and task["context"]["state"] == "RUNNING"
    host.open_gate("joined")
    assert client.submit(weigh, future).result() == 2 * BLOB * int(spilled[0].split("-")[1])
    wait_until(lambda: not host.tasks(), "its task ends with it")


def test_what_never_fits_runs_alone_or_is_handed_back_and_fails_alone(host):
    client = host.client
    blobs = make_blobs(host, 17)
    for i in (1, 2):  # of the second one it is known that it makes more than the pool has
        host.counts(host.one)
        large = client.submit(join, *[blobs[1]] * 10, key=f"large-{i}", workers=host.one)
        assert client.submit(len, large).result() == 10 * BLOB
        del large
    assert host.counts(host.one)["alone"] >= 1  # so does who only looks at it
    heavy = client.submit(weigh, *blobs, key="heavy", workers=host.one)
    light = client.submit(weigh, blobs[3], key="light", workers=host.one)
    with pytest.raises(MemoryError) as caught:
        heavy.result()
    assert light.result() == 3 * BLOB
    text = str(caught.value)
    needs = re.match(r"'heavy' needs ([0-9.]+) MiB of private memory \(\1 MiB for inputs that were "
                     r"spilled", text)
    # light's input may be in memory, or be brought back for it
    assert needs and 56 <= float(needs[1]) <= 68, text
    for part in ("of its limit of 64.0 MiB", "MiB private values", "register_splitter"):
        assert part in text, text
    counts = host.counts(host.one)
    assert counts["handed-back"] == 1 and counts["no-memory"] == 1
    assert client.submit(weigh_list, blobs, key="in-pieces",
                         workers=host.one).result() == BLOB * sum(range(17))
    assert host.counts(host.one)["pieces"] == 1
    wait_until(lambda: not host.tasks(), "all tasks end")


# -- the partition


def test_keys_that_do_not_fit_wait_and_others_run_meanwhile(host):
    client, one, two = host.client, host.one, host.two
    host.fill(32 * MIB)
    others = make_chunks(host, two, range(8, 32))
    chunks = make_chunks(host, one, range(8)) + others
    first = client.submit(weigh_behind, host.gate("waited"), *chunks[:8], key="first", workers=one)
    wait_until(lambda: host.of(one, has_mapped, [future.key for future in chunks[:8]]),
               "the first one has its inputs")
    # Neither fits beside what is mapped; who has it runs.
    second = client.submit(weigh, *chunks[8:20], key="second", workers=two)
    third = client.submit(weigh, *chunks[20:32], key="third", workers=two)
    wait_until(lambda: host.state("second") == host.state("third") == "BLOCKED", "both wait")
    # a moment after the daemon has them waiting
    wait_until(lambda: host.of(two, lent), "they lend their slots")
    assert client.submit(weigh, [7], workers=two, key="small").result() == 7
    assert not second.done() and not third.done()
    host.open_gate("waited")
    assert first.result() == total(range(8))
    assert second.result() == total(range(8, 20)) and third.result() == total(range(20, 32))
    assert not host.of(two, lent)


def test_a_split_is_fewer_inputs_then_pieces_then_none(host):
    client, one = host.client, host.one
    host.fill(40 * MIB)
    chunks = make_chunks(host, one, range(40))
    host.counts(one)
    assert client.submit(weigh, *chunks[:14], key="fewer", workers=one).result() == total(range(14))
    counts = host.counts(one)
    assert counts["retry"] >= 1 and counts["again"] == counts["fewer"] == 1, counts
    assert {"RETRY", "SPLIT"} <= host.outcomes()
    assert client.submit(weigh_list, chunks, key="pieces", workers=one).result() == total(range(40))
    assert host.counts(one)["pieces"] == 1
    assert client.submit(weigh, *chunks[:26], key="none", workers=one).result() == total(range(26))
    assert host.counts(one)["aside"] == 1


# -- no daemon any more


def test_keys_that_wait_run_when_the_daemon_dies_and_it_is_found_again(host):
    client, one, two = host.client, host.one, host.two
    host.fill(32 * MIB)
    others = make_chunks(host, two, range(8, 32))
    chunks = make_chunks(host, one, range(8)) + others
    lost = host.of(two, fallback_counts).get("arbiter-lost", 0)
    first = client.submit(weigh_behind, host.gate("died"), *chunks[:8], key="first", workers=one)
    wait_until(lambda: host.of(one, has_mapped, [future.key for future in chunks[:8]]),
               "the first one has its inputs")
    second = client.submit(weigh, *chunks[8:20], key="second", workers=two)
    third = client.submit(weigh, *chunks[20:32], key="third", workers=two)
    wait_until(lambda: host.state("second") == host.state("third") == "BLOCKED", "both wait")
    host.daemon.kill()
    assert second.result() == total(range(8, 20)) and third.result() == total(range(20, 32))
    wait_until(lambda: not any(on_workers(client, active).values()), "the workers note it")
    assert host.of(two, fallback_counts)["arbiter-lost"] == lost + 1
    host.open_gate("died")
    assert first.result() == total(range(8))
    assert client.submit(weigh, *chunks, key="after", workers=one).result() == total(range(32))
    host.daemon.restart()
    wait_until(host.active, "the workers find it again")
    assert client.submit(weigh, *chunks[:12], key="found", workers=one).result() == total(range(12))
