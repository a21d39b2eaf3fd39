# SPDX-License-Identifier: Apache-2.0
"""Arrow's tables in objects, and views for other libraries: without a copy. Skipped where
pyarrow is not installed."""

import gc

import numpy
import pytest
from conftest import maps_of

import shmstore

pyarrow = pytest.importorskip("pyarrow")
N = 200_000


@pytest.fixture
def table():
    words = [None if i % 7 == 0 else f"word {i % 100}" for i in range(N)]
    return pyarrow.table({"n": numpy.arange(N), "x": numpy.random.default_rng(1).random(N),
                          "words": words,
                          "category": pyarrow.array(words).dictionary_encode(),
                          "list": [[i, i] for i in range(N)]})


def addresses(table):
    return [buffer.address for column in table.columns for chunk in column.chunks
            for buffer in chunk.buffers() if buffer is not None and buffer.size]


def within_maps(place, found):
    ranges = [tuple(int(n, 16) for n in line.split()[0].split("-")) for line in maps_of(place.path)]
    return all(any(low <= address < high for low, high in ranges) for address in found)


def test_a_table_is_read_in_place(place, store, table):
    store.put_arrow("t", table)
    found = store.get_arrow("t")
    assert found.equals(table) and within_maps(place, addresses(found))
    with pytest.raises(shmstore.Error, match="EEXIST|exists|held"):
        store.put_arrow("t", table)
    store.put_arrow("t", table.slice(5, 10), replace=True)
    assert store.get_arrow("t").equals(table.slice(5, 10)) and store.view("t").nbytes < 20_000
    assert found.equals(table)  # it keeps its memory
    store["pickled"] = 1
    with pytest.raises(shmstore.Error, match="holds no Arrow table"):
        store.get_arrow("pickled")
    del found
    gc.collect()


def test_batches_and_empty_tables(store, table):
    for name, data in (("batch", table.slice(0, 100).to_batches()[0]), ("empty", table.slice(0, 0)),
                       ("dict", {"a": [1, 2]})):
        store.put_arrow(name, data)
        assert store.get_arrow(name).num_rows == (len(data) if name != "dict" else 2)
        schema, array = store.view(name).__arrow_c_array__()
        assert schema is not None and array is not None
        assert pyarrow.record_batch(store.view(name)).num_rows == store.get_arrow(name).num_rows


def test_other_processes_and_libraries_read_it(place, partition, store, table):
    store.put_arrow("t", table)
    with partition.open("main", readonly=True) as reader:
        assert pyarrow.table(reader.view("t")).equals(table)
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(store.view("t"))
    assert (frame.height == N and frame["n"].sum() == N * (N - 1) // 2 and
            frame["words"].null_count() == len(range(0, N, 7)))
    store.put_arrow("p", frame.select("n", "x"))
    assert store.get_arrow("p").num_rows == N


def test_duckdb_queries_a_view(store, table):
    duckdb = pytest.importorskip("duckdb")
    store.put_arrow("t", table)
    view = store.view("t")
    assert duckdb.sql("select sum(n), count(words) from view").fetchall()[0] == (
        N * (N - 1) // 2, N - len(range(0, N, 7)))
    del view


def test_dlpack(store):
    store["bytes"] = b"x" * 100_000
    view = store.view("bytes", cow=True)
    array = numpy.from_dlpack(view)
    assert (array.nbytes == view.nbytes and array.dtype == numpy.uint8 and
            view.__dlpack_device__() == (1, 0))
    del view
    assert array[50_000] == ord("x")
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(store.view("bytes", cow=True)).numel() == 100_000
