# SPDX-License-Identifier: Apache-2.0
"""get_or_create and Cache: one process builds, and what a kill, an error, another version
and a full partition do."""

import multiprocessing
import os
import pickle
import threading
import time

import doorjobs
import numpy
import pytest
from conftest import Place, wait_for

import shmstore
from shmstore import messages
from shmstore.caching import Cache, _encoded

N = 1 << 17


@pytest.fixture
def path(place):
    return place.path


@pytest.fixture
def cache(path):
    return Cache("test", partition=path)


def used(cache, key, seconds_ago):
    """As if the value had been used for the last time then."""
    at = time.time() - seconds_ago
    os.utime(os.path.join(cache._path, "stores", cache._name(key), ".store"), (at, at))


def filled(value, calls):
    def build():
        calls.append(value)
        return numpy.full(N, float(value))

    return build


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_of_many_builds(path, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    jobs = [context.Process(target=doorjobs.caches, args=(path, "model", 0.5, queue))
            for _ in range(5)]
    for job in jobs:
        job.start()
    got = [queue.get(timeout=60) for _ in jobs]
    for job in jobs:
        job.join()
    assert sorted(built for _, built in got) == [0, 0, 0, 0, 1]
    assert {total for total, _ in got} == {3.0 * N}
    calls = []
    assert (Cache("test", partition=path).get_or_create("model", filled(1, calls)).sum() == 3.0 *
            N and not calls)


def test_threads_build_once(cache):
    calls, got = [], []

    def slow():
        time.sleep(0.3)
        return filled(2, calls)()

    threads = [threading.Thread(target=lambda: got.append(cache.get_or_create("x", slow)))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and len(got) == 6 and all((value == 2).all() for value in got)


def test_the_next_one_builds_where_a_builder_was_killed(path, cache):
    event = multiprocessing.Event()
    job = multiprocessing.Process(target=doorjobs.builds_for_ever, args=(path, "x", event))
    job.start()
    event.wait()
    with pytest.raises(TimeoutError, match="another process builds 'x'"):
        cache.get_or_create("x", filled(1, []), timeout=0.2)
    got = []
    waiting = threading.Thread(target=lambda: got.append(cache.get_or_create("x", filled(4, []))))
    waiting.start()
    job.kill()
    job.join()
    waiting.join(60)
    assert got and (got[0] == 4).all()
    shmstore.Partition(path).gc()
    assert [store.name.split("-")[0] for store in shmstore.Partition(path).stores()] == ["cache"]


def test_an_exception_reaches_its_caller_and_the_next_one_tries(cache, path):
    with pytest.raises(ZeroDivisionError):
        cache.get_or_create("x", lambda: 1 // 0)
    assert "x" not in cache and shmstore.Partition(path).stores() == []
    assert cache.get_or_create("x", lambda: 5) == 5


def test_a_version_replaces_and_old_readers_keep_theirs(cache):
    calls = []
    old = cache.get_or_create("x", filled(1, calls), version=1)
    new = cache.get_or_create("x", filled(2, calls), version=(2, "b"))
    assert (old == 1).all() and (new == 2).all() and calls == [1, 2]
    assert (cache.get_or_create("x", filled(3, calls), version=(2, "b")) == 2).all()
    assert len(cache) == 1


def test_values_are_writable_and_nobody_sees_it(cache):
    value = cache.get_or_create("x", filled(1, []))
    value[:] = 7
    assert (cache["x"] == 1).all() and (value == 7).all()


def test_mapping(cache, path):
    for i, key in enumerate(["a", b"a", 1, (1, "a"), None, 2.5]):
        assert cache.get_or_create(key, lambda i=i: i) == i
    assert (sorted(map(repr, cache)) == sorted(map(repr, ["a", b"a", 1, (1, "a"), None, 2.5])) and
            len(cache) == 6)
    assert cache[1.0] == 2 and cache[True] == 2  # equal keys
    del cache["a"]
    assert "a" not in cache and not cache.invalidate("a")
    with pytest.raises(KeyError):
        cache["a"]
    with pytest.raises(KeyError):
        del cache["a"]
    with pytest.raises(TypeError, match="not of a list"):
        cache.get_or_create((1, [2]), lambda: 1)
    assert pickle.loads(pickle.dumps(cache))[b"a"] == 1
    assert (Cache("other", partition=path).get_or_create("a", lambda: "mine") == "mine" and
            b"a" in cache)
    assert Cache("test-b", partition=path).get_or_create("a", lambda: 1) == 1
    cache.clear()
    assert len(cache) == 0 and cache.nbytes == 0 and list(Cache("test-b", partition=path)) == ["a"]


def test_keys_that_differ_are_encoded_so():
    keys = ["1", b"1", 1, 1.5, (1,), ((1,),), ("1",), (1, 1), (11,), ("a", "b"), ("ab",),
            (("a",), "b"), None, (), "", b"", 1j]
    assert len({_encoded(key) for key in keys}) == len(keys)
    assert _encoded(1) == _encoded(True) == _encoded(1.0) == _encoded(1 + 0j)


def test_what_expired_is_built_again(path, monkeypatch):
    calls, real = [], time.time
    cache = Cache("short", ttl=60, partition=path)
    cache.get_or_create("x", filled(1, calls))
    assert "x" in cache
    monkeypatch.setattr(time, "time", lambda: real() + 61)
    assert "x" not in cache
    assert (cache.get_or_create("x", filled(2, calls)) == 2).all() and calls == [1, 2]


def test_what_was_used_longest_ago_goes_first(path):
    cache = Cache("small", max_bytes=3 * (8 * N + 8192), partition=path)
    for i in range(3):
        cache.get_or_create(i, filled(i, []))
        used(cache, i, 30 - i)
    cache._touched.clear()
    first = cache[0]  # used now
    cache.get_or_create(3, filled(3, []))
    assert sorted(cache) == [0, 2, 3] and cache.nbytes <= cache.max_bytes and (first == 0).all()


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system wants root")
def test_a_full_partition_evicts_and_then_does_without():
    small = Place(6 << 20)
    try:
        cache = Cache("full", partition=small.path)
        for i in range(8):
            assert (cache.get_or_create(i, filled(i, [])) == i).all()
            used(cache, i, 30 - i)
        assert 1 <= len(cache) < 8 and 7 in cache
        messages._warned = False
        with pytest.warns(RuntimeWarning, match="without shared memory"):
            assert cache.get_or_create("large", lambda: numpy.ones(N * 8)).nbytes == 64 * N
        assert "large" not in cache
    finally:
        messages._warned = False
        small.remove()


def test_a_builder_that_asks_for_itself(cache):
    with pytest.raises(RuntimeError, match="asks for 'x'"):
        cache.get_or_create("x", lambda: cache.get_or_create("x", lambda: 1))
    assert cache.get_or_create("y", lambda: cache.get_or_create("x", lambda: 1) + 1) == 2


def test_many_entries_need_few_descriptors(cache):
    for i in range(150):
        cache.get_or_create(i, lambda i=i: i)
    assert all(cache[i] == i for i in range(150)) and len(cache._handles) <= 64


def test_forked_children_read_and_build(cache):
    cache.get_or_create("x", filled(1, []))

    def child():
        ok = (cache["x"] == 1).all() and (cache.get_or_create("y", filled(2, [])) == 2).all()
        os._exit(0 if ok else 1)

    job = multiprocessing.get_context("fork").Process(target=child)
    job.start()
    job.join()
    assert job.exitcode == 0
    wait_for("the child's value", lambda: "y" in cache)


def test_get_builds_nothing(cache):
    assert cache.get("x") is None and cache.get("x", 7) == 7
    cache.get_or_create("x", lambda: "value", version=2)
    assert cache.get("x") is None and cache.get("x", version=2) == cache["x"] == "value"
