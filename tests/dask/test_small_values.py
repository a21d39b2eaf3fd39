# SPDX-License-Identifier: Apache-2.0
"""Jobs of many small values: they have no use for the partition, so they ask it nothing."""

from __future__ import annotations

import functools
from collections import Counter

import dask
from conftest import cluster, on_workers

from shmstore.dask import exchange as exchange_module
from shmstore.dask.config import Settings
from shmstore.dask.exchange import Exchange

N = 100


class CountedPartition:
    """A partition, whose looks for peers are counted."""

    def __init__(self, partition, counts):
        self._partition, self._counts = partition, counts

    def __getattr__(self, name):
        return getattr(self._partition, name)

    def find_peer(self, address):
        self._counts["find_peer"] += 1
        return self._partition.find_peer(address)


def _count(worker):
    """From here on, calls that make system calls; those by time (heartbeats, the
    tier's thread) are left out."""
    counts = worker.counted = Counter()
    exchange_module._PEER = 1e9  # a loaded machine is no reason for another look
    worker._exchange.partition = CountedPartition(worker._exchange.partition, counts)
    for name in ("at_ease", "grew"):
        function = getattr(worker._tier, name)

        def counted(*args, name=name, function=function):
            counts[name] += 1
            return function(*args)

        setattr(worker._tier, name, functools.wraps(function)(counted))


def _counts(worker):
    return dict(worker.counted)


def _add(a, b):
    return a + b


def test_tasks_with_small_values_ask_nothing_of_the_partition(place):
    with cluster(place) as client:
        on_workers(client, _count)
        there_and_back = sorted(client.scheduler_info()["workers"])
        value = 0
        for i in range(N):  # each from one worker to the other
            value = client.submit(_add, value, 1, pure=False, workers=[there_and_back[i % 2]])
        assert value.result() == N
        for counts in on_workers(client, _counts).values():
            assert counts.keys() <= {"find_peer"}, counts
            assert counts["find_peer"] <= 2, "one look for each peer"


def test_a_peer_is_found_again_soon_after_it_came(place, monkeypatch):
    """An answer holds for a moment only, also the answer that there is none."""
    monkeypatch.setattr(exchange_module, "_PEER", 0.0)
    with dask.config.set({"distributed.worker.memory.shared.partition": place.path}):
        one, other = (Exchange(Settings(), "dask-worker") for _ in range(2))
    try:
        assert not one.is_peer("tcp://127.0.0.1:1")
        other.set_address("tcp://127.0.0.1:1")
        assert one.is_peer("tcp://127.0.0.1:1")
        other.close()
        assert not one.is_peer("tcp://127.0.0.1:1")
    finally:
        one.close()
