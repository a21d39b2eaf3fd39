# SPDX-License-Identifier: Apache-2.0
"""The pure parts of shmstore.dask.amm: who is one host, what is surplus, what
is under way. No cluster."""

from __future__ import annotations

import dask
import pytest
from conftest import PREFIX

from shmstore.dask.amm.conductor import Ledger
from shmstore.dask.hosts import Hosts
from shmstore.dask.amm.reduce import surplus
from shmstore.dask.config import ManagerSettings

MIB = 1 << 20


class FakeWorker:
    def __init__(self, address, partition=None, used=0, size=100 * MIB, memory=MIB, **more):
        self.address = address
        self.metrics = {"memory": memory}
        if partition is not None:
            self.metrics["shmstore"] = {"partition": partition, "used": used, "size": size,
                                        "min-size": 1000, **more}

    def __repr__(self):
        return self.address


class FakeTask:
    def __init__(self, key, who_has=(), nbytes=MIB, type="numpy.ndarray", state="memory"):
        self.key, self.who_has, self.nbytes, self.type, self.state = key, set(
            who_has), nbytes, type, state


def view(*workers, **watermarks):
    hosts = Hosts(**watermarks)
    hosts.update(workers)
    return hosts


def test_one_partition_is_one_host_and_who_shares_nothing_is_alone():
    a, b, c, d = FakeWorker("a", "P", used=10), FakeWorker(
        "b", "P", used=12, size=99 * MIB), FakeWorker("c", "Q"), FakeWorker("d")
    hosts = view(a, b, c, d)
    assert len(hosts) == 3 and set(hosts.of(a).workers) == {a, b} and hosts.of(d).workers == [d]
    assert (hosts.of(a) is hosts.of(b) and (hosts.of(a).used, hosts.of(a).size) == (
        12, 99 * MIB) and hosts.of(a).memory == 12 + 2 * MIB)
    assert not hosts.of(d).shared
    late = FakeWorker("late")
    assert hosts.of(late).workers == [late], "it came after the update"


def test_replicas_are_one_unit_only_where_they_are_links():
    a, b, d = FakeWorker("a", "P", **{"private-types": ["list"]}), FakeWorker("b", "P"), FakeWorker(
        "d")
    hosts = view(a, b, d)
    assert sorted(map(len, hosts.units(FakeTask("x"), [a, b, d]).values())) == [1, 2]
    for private in (FakeTask("x", nbytes=999), FakeTask("x", type="list")):
        assert len(hosts.units(private, [a, b, d])) == 3


def test_pressure_stays_until_the_lower_mark():
    hosts = Hosts(0.8, 0.5)
    seen = []
    for used in (79, 80, 60, 49, 60):
        hosts.update([FakeWorker("a", "P", used=used, size=100)])
        seen.append(next(iter(hosts)).pressed)
    assert seen == [False, True, True, False, False]


def cluster_of(*shape, pressed=()):
    """Workers of hosts: how many each has; a 0 is a worker that shares nothing."""
    workers = []
    for i, n in enumerate(shape):
        used = 95 * MIB if i in pressed else 10 * (i + 1) * MIB
        workers.append([FakeWorker(f"{i}.{j}", f"P{i}", used=used) for j in range(n)] or
                       [FakeWorker(f"{i}")])
    return workers, view(*sum(workers, []))


def go(shape, pressed=(), has=None, busy=(), stopped=(), **wanted):
    """The surplus' addresses, of a key that all have (or those named)."""
    workers, hosts = cluster_of(*shape, pressed=pressed)
    flat = sum(workers, [])
    task = FakeTask("x", [w for w in flat if has is None or w.address in has])
    running = {w for w in flat if w.address not in stopped}
    groups = surplus(hosts.units(task, task.who_has), running,
                     {w for w in flat if w.address in busy}, **wanted)
    assert (len(running & task.who_has) > len(running & set(sum(groups, []))) or
            not running & task.who_has), "never the last one"
    return sorted(sorted(w.address for w in group) for group in groups)


def test_links_of_one_host_stay_while_there_is_room():
    assert go([3]) == []
    assert len(go([3], pressed=[0])[0]) == 2, (
        "all but one: the tier's mover takes what has one link")
    assert go([3], pressed=[0], busy=["0.1"]) == [["0.0", "0.2"]]
    assert go([3], pressed=[0], busy=["0.0", "0.1", "0.2"]) == []
    assert len(go([3], pressed=[0], stores=2)[0]) == 1


def test_of_two_hosts_all_links_of_one_go():
    assert go([2, 3]) == [["1.0", "1.1", "1.2"]], "of the one that takes more memory"
    assert go([2, 3], busy=["1.1"]) == [["0.0", "0.1"]], (
        "one that is needed keeps the host's: dropping the rest would free nothing")
    assert go([2, 3], busy=["1.1", "0.0"]) == []
    assert go([2, 3], pressed=[0]) == [["0.0", "0.1"]], "the one that is short goes first"
    assert go([2, 3], hosts=2) == [] and go([2, 3], demand=2) == []
    assert go([2, 3], pressed=[0], demand=2) == [["0.0", "0.1"]], "demand yields to pressure"
    kept = go([2, 3], pressed=[0], hosts=2)
    assert len(kept) == 1 and len(kept[0]) == 1, "what must stay stays: one link"
    assert go([2, 3], stores=4) == []


def test_workers_that_share_nothing_are_as_on_stock():
    assert len(go([0, 0, 0])) == 2
    assert go([0, 2]) in ([["0"]], [["1.0", "1.1"]])


def test_what_is_about_to_go_counts_for_nothing():
    assert go([2, 2], stopped=["0.0", "0.1"]) == [["0.0", "0.1"]]
    assert go([2, 2], stopped=["0.0", "0.1"], busy=["0.0"]) == [], (
        "the only sure one is not dropped meanwhile")
    assert go([2], stopped=["0.0", "0.1"]) == []


def test_the_ledger_sees_what_became_of_requests():
    ledger, a, b = Ledger(in_flight=10), FakeWorker("a"), FakeWorker("b")
    x, y = FakeTask("x", [a]), FakeTask("y", [a])
    tasks, workers = {"x": x, "y": y}, {"a": a, "b": b}
    ledger.acquire(x, b, True, 0.0)
    ledger.acquire(y, b, False, 0.0)
    ledger.settle(tasks, workers, 5.0)
    assert ledger.coming("x") == {b} and len(ledger) == 2
    x.who_has.add(b)
    ledger.settle(tasks, workers, 6.0)
    assert (ledger.coming("x") == set() and (ledger.counters.links, ledger.counters.bytes_linked) ==
            (1, MIB))
    ledger.settle(tasks, workers, 11.0)
    assert len(ledger) == 0 and (ledger.counters.lost, ledger.counters.copies) == (1, 0)
    ledger.acquire(y, b, False, 20.0)
    del tasks["y"]
    ledger.settle(tasks, workers, 21.0)
    assert len(ledger) == 0 and ledger.counters.lost == 1, "a forgotten key was not lost"


def test_the_ledger_sees_refusals():
    ledger, a, b = Ledger(), FakeWorker("a"), FakeWorker("b")
    x, y = FakeTask("x", [a]), FakeTask("y", [a])
    for task in (x, y):
        ledger.remove(task, b, 0.0)
    x.who_has.add(b)  # it said that it keeps it
    ledger.settle({"x": x, "y": y}, {"a": a, "b": b}, 0.5)
    ledger.settle({"x": x, "y": y}, {"a": a, "b": b}, 2.0)
    y.who_has.add(b)  # much later: somebody acquired it anew
    ledger.settle({"x": x, "y": y}, {"a": a, "b": b}, 3.0)
    assert (ledger.counters.drops, ledger.counters.drops_refused) == (2, 1)


@pytest.mark.parametrize("key, value", [("high", 2), ("low", 0.9), ("slice", 0), ("in-flight", 0),
                                        ("delay", 0)])
def test_settings_that_make_no_sense(key, value):
    with dask.config.set({f"{PREFIX}.amm.{key}": value}), pytest.raises(ValueError, match=key):
        ManagerSettings()
