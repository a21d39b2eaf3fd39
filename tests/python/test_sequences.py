# SPDX-License-Identifier: Apache-2.0
"""SharedList and SharedDict: records in shared memory, which processes
index by the sequence's name."""

import gc
import multiprocessing
import os
import pickle

import doorjobs
import numpy
import pytest
from conftest import Place

import shmstore
from shmstore import messages, sequences
from shmstore.sequences import SharedDict, SharedList


def records(n):
    for i in range(n):
        yield {"array": numpy.full(i % 700, float(i)), "text": f"record {i}",
               "raw": b"x" * (i % 3000)}


@pytest.fixture
def small_objects(monkeypatch):
    monkeypatch.setattr(sequences, "_CHUNK", 64 << 10)


def test_records_are_what_was_put(place, small_objects):
    data = SharedList(records(2000), partition=place.path)
    assert len(data) == 2000
    for i, record in enumerate(records(2000)):
        found = data[i]
        assert (found["text"] == record["text"] and found["raw"] == record["raw"] and
                (found["array"] == record["array"]).all())
    assert (data[-1]["text"] == "record 1999" and [r["text"] for r in data[3:9:2]] == [
        "record 3", "record 5", "record 7"])
    for wrong in (2000, -2001):
        with pytest.raises(IndexError):
            data[wrong]
    assert [record["text"] for record in data][:2] == ["record 0", "record 1"]


def test_arrays_by_any_index(place, small_objects):
    """Of several dtypes and objects, among records that are none."""
    made = [numpy.arange(i % 300 + 1).astype(("u1", "f8", "i4")[i % 3]) if i % 7 else [i]
            for i in range(1000)]
    data = SharedList(iter(made), partition=place.path)
    assert all(numpy.array_equal(a, b) and getattr(a, "dtype", None) == getattr(b, "dtype", None)
               for a, b in zip(data, made))
    for i in (numpy.uint8(200), numpy.int64(-1), numpy.int32(999), True, -1000):
        assert numpy.array_equal(data[i], made[i])
    assert data[5:5] == [] and [len(a) for a in data[-3:]] == [len(a) for a in made[-3:]]
    for wrong in (numpy.int64(1000), -1001, 1 << 70):
        with pytest.raises(IndexError):
            data[wrong]
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            data[wrong]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_map_one_copy(place, method):
    array = numpy.arange(1 << 15, dtype=float)
    data = SharedList((array + i for i in range(64)), partition=place.path)
    assert data.nbytes < 1.05 * 64 * array.nbytes
    before = shmstore.Partition(place.path).usage().linked
    with multiprocessing.get_context(method).Pool(3) as pool:
        assert pool.starmap(doorjobs.item_sum, [(data, i) for i in range(64)]) == [
            float((array + i).sum()) for i in range(64)]
        assert shmstore.Partition(place.path).usage().linked == before
    assert not data[5].flags.writeable


def test_it_goes_when_it_is_closed_and_when_nobody_has_it(place):
    partition = shmstore.Partition(place.path, create=True)
    data = SharedList(records(100), partition=place.path)
    kept = data[99]["array"]
    data.close()
    assert partition.stores() == [] and kept[0] == 99
    data = SharedDict({"a": numpy.ones(1000), "b": 2}, partition=place.path)
    assert len(partition.stores()) == 1
    del data
    gc.collect()
    assert partition.stores() == []


def test_a_mapping(place):
    items = {("a", i): numpy.full(300, i) for i in range(500)}
    data = SharedDict(items, partition=place.path)
    again = pickle.loads(pickle.dumps(data))
    assert (list(again) == list(items) and ("a", 3) in again and "b" not in again and
            len(again) == 500)
    assert all((again[key] == value).all() for key, value in items.items())
    with pytest.raises(KeyError):
        again["b"]
    assert (SharedDict(iter(items.items()), partition=place.path)[("a", 7)] == 7).all()
    assert len(SharedList([], partition=place.path)) == 0


def test_a_record_may_be_made_in_the_memory_of_the_one_before(place):
    memory, small = numpy.zeros(1 << 16), numpy.zeros(10)

    def made():
        for i in range(20):
            memory[:], small[:] = i, i
            yield memory if i % 2 else {"large": memory, "small": small}

    for i, record in enumerate(SharedList(made(), partition=place.path)):
        found = [record] if i % 2 else [record["large"], record["small"]]
        assert all((array == i).all() for array in found)


def test_a_record_larger_than_an_object(place, small_objects):
    data = SharedList([1, numpy.arange(1 << 16), "two"], partition=place.path)
    assert data[0] == 1 and (data[1] == numpy.arange(1 << 16)).all() and data[2] == "two"


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system wants root")
@pytest.mark.parametrize("kind", [list, dict])
def test_without_room_it_is_pickled_whole(kind, small_objects):
    small = Place(1 << 20)
    made = [numpy.full(900, float(i)) if i % 3 else {"a": numpy.full(900, i), "text": str(i)}
            for i in range(500)]
    try:
        messages._warned = False
        with pytest.warns(RuntimeWarning, match="1 MiB") as said:
            data = (SharedList(iter(made), small.path) if kind is list
                    else SharedDict(enumerate(made), small.path))
        # beside them may be warnings of other tests' garbage
        assert (sum(w.category is RuntimeWarning for w in said) == 1 and data.nbytes > 3 << 20 and
                shmstore.Partition(small.path).stores() == [])
        for copy in (data, pickle.loads(pickle.dumps(data))):
            assert len(copy) == 500
            for i, record in enumerate(made):
                found = copy[i]
                assert ((found == record).all() if i % 3 else (found["text"] == record["text"] and (
                    found["a"] == record["a"]).all()))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(doorjobs.item_sum, (data, 1)) == 900
        data.close()
    finally:
        messages._warned = False
        small.remove()
