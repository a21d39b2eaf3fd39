# SPDX-License-Identifier: Apache-2.0
"""Values of each library's types that are shared (docs/dask.md): the value is the same, and the
memory that it shows is the partition's."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from conftest import PREFIX
from together import together

N = 50_000
WORDS = [f"text {i}" for i in range(N)]
NUMBERS = np.random.default_rng(1).random(N)


def module(name):
    return pytest.importorskip(name)


def make(kind):
    """A value, in a task."""
    return KINDS[kind][0]()


def sparse(form):
    from scipy import sparse

    return getattr(sparse, form)(sparse.random(1000, 1000, 0.05, random_state=1))


def xarray(name):
    import xarray

    array = xarray.DataArray(NUMBERS.reshape(100, -1), dims=("x", "y"))
    return array if name == "DataArray" else xarray.Dataset({"v": array})


def model(name):
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor

    data = NUMBERS[:40_000].reshape(2000, 20)
    return {"Ridge": Ridge, "KNeighborsRegressor": KNeighborsRegressor}[name]().fit(
        data, data.sum(1))


def arrow(name):
    import pyarrow

    columns = {"text": WORDS, "number": NUMBERS}
    made = {"Table": pyarrow.table, "RecordBatch": pyarrow.record_batch}
    return made[name](columns) if name in made else pyarrow.array(NUMBERS)


def polars(name):
    import polars

    frame = polars.DataFrame({"number": NUMBERS, "text": WORDS, "kind": polars.Series(
        ["a", None] * (N // 2), dtype=polars.Categorical)})
    return frame if name == "DataFrame" else frame["number"]


def torch(*shape):
    import torch

    return torch.from_numpy(NUMBERS.copy()).reshape(*shape)


def buffers(array):
    """Addresses of an Arrow array's memory."""
    return [buffer.address for buffer in array.buffers() if buffer is not None and
            buffer.size > 4096]


def of_strings(frame):
    return [address for chunk in frame["text"].array.__arrow_array__().chunks
            for address in buffers(chunk)]


def here(array):
    return [array.__array_interface__["data"][0]]


# name: how it is made, addresses of its memory, whether two are the same, the modules that it
# needs.
KINDS = {
    "numpy.ndarray": (lambda: NUMBERS.copy(), here, np.array_equal, []),
    "numpy structured": (lambda: np.rec.fromarrays([NUMBERS, np.arange(N)], names="a,b"), here,
                         np.array_equal, []),
    "pandas numbers": (lambda: pd.DataFrame({"a": NUMBERS}), lambda v: here(v["a"].to_numpy()),
                       lambda a, b: a.equals(b), []),
    "pandas categories": (lambda: pd.DataFrame({"a": pd.Categorical(np.arange(N * 2) % 7)}),
                          lambda v: here(v["a"].array.codes), lambda a, b: a.equals(b), []),
    "pandas string[pyarrow]":
        (lambda: pd.DataFrame({"text": pd.Series(WORDS, dtype="string[pyarrow]")}), of_strings,
         lambda a, b: a.equals(b), ["pyarrow"]),
    "pandas double[pyarrow]": (
        lambda: pd.DataFrame({"text": pd.Series(NUMBERS).astype("double[pyarrow]")}), of_strings,
        lambda a, b: a.equals(b), ["pyarrow"]),
    "pyarrow.Table": (lambda: arrow("Table"), lambda v: [a for c in v.columns for chunk in c.chunks
                                                         for a in buffers(chunk)], lambda a,
                      b: a.equals(b), ["pyarrow"]),
    "pyarrow.RecordBatch": (lambda: arrow("RecordBatch"),
                            lambda v: [a for c in v.columns for a in buffers(c)], lambda a,
                            b: a.equals(b), ["pyarrow"]),
    "pyarrow.Array": (lambda: arrow("Array"), buffers, lambda a, b: a.equals(b), ["pyarrow"]),
    "polars.DataFrame": (lambda: polars("DataFrame"),
                         lambda v: here(v["number"].to_numpy(allow_copy=False)), lambda a,
                         b: a.equals(b) and a.schema == b.schema, ["polars", "pyarrow"]),
    "polars.Series": (lambda: polars("Series"), lambda v: here(v.to_numpy(allow_copy=False)),
                      lambda a, b: a.equals(b) and a.name == b.name, ["polars", "pyarrow"]),
    "scipy.sparse.csr_matrix": (lambda: sparse("csr_matrix"), lambda v: here(v.data) +
                                here(v.indices), lambda a, b: (a != b).nnz == 0, ["scipy"]),
    "scipy.sparse.coo_matrix": (lambda: sparse("coo_matrix"), lambda v: here(v.data), lambda a,
                                b: (a != b).nnz == 0, ["scipy"]),
    "scipy.sparse.csr_array": (lambda: sparse("csr_array"), lambda v: here(v.data), lambda a,
                               b: (a != b).nnz == 0, ["scipy"]),
    "xarray.DataArray": (lambda: xarray("DataArray"), lambda v: here(v.values), lambda a,
                         b: a.identical(b), ["xarray"]),
    "xarray.Dataset": (lambda: xarray("Dataset"), lambda v: here(v["v"].values), lambda a,
                       b: a.identical(b), ["xarray"]),
    "sklearn KNeighborsRegressor": (
        lambda: model("KNeighborsRegressor"), lambda v: here(v._fit_X), lambda a,
        b: np.array_equal(a._fit_X, b._fit_X), ["sklearn"]),
    "torch.Tensor": (lambda: torch(N), lambda v: here(v.numpy()), lambda a,
                     b: a.dtype == b.dtype and bool((a == b).all()), ["torch"]),
    "torch.Tensor transposed": (lambda: torch(100, -1).T, lambda v: here(v.numpy()), lambda a,
                                b: a.shape == b.shape and bool((a == b).all()), ["torch"]),
}


def mapped(address, directory):
    """Whether what is there lies in a file of the directory."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(number, 16) for number in line.split()[0].split("-"))
            if low <= address < high:
                return directory in line
    return False


READ_ONLY = ("numpy.ndarray", "pandas string[pyarrow]", "pyarrow.Table", "polars.DataFrame",
             "scipy.sparse.csr_matrix")


@pytest.mark.parametrize("kind, mode", [*((kind, "cow") for kind in KINDS),
                                        *((kind, "ro") for kind in READ_ONLY)])
def test_a_value_is_the_same_and_lies_in_the_partition(place, kind, mode):
    _, memory, same, needed = KINDS[kind]
    for name in needed:
        module(name)

    async def job(client, a, b):
        x = client.submit(make, kind, workers=[a.address], key="x")
        y = client.submit(lambda v: v, x, workers=[b.address], key="y")
        await y
        entry = b.data.shared["x"]
        value = b.data["x"]
        assert same(value, make(kind))
        places = memory(value)
        assert places and all(mapped(address, place.path) for address in places), (
            "its memory is a copy")
        assert entry.unpickled < 0.1 * entry.nbytes
        assert "y" in b.data.shared or "y" in b.data
        assert not any(b._exchange.fallbacks.counts.values())

    together(place, job, settings={f"{PREFIX}.map": mode})


def frame_of_objects():
    return pd.DataFrame({"text": pd.Series(WORDS, dtype=object)})


@pytest.mark.parametrize("kind", ["objects", "a slice of polars", "polars with objects",
                                  "a small tensor", "a tensor with a gradient"])
def test_other_values_go_as_on_stock_and_are_right(place, kind):
    def made(kind):
        if kind == "objects":
            return frame_of_objects()
        if "polars" in kind:
            import polars as pl

            return (polars("DataFrame").slice(5, 100) if "slice" in kind
                    else pl.DataFrame({"o": pl.Series([object()] * 3, dtype=pl.Object)}).height)
        return torch(N)[:10] if "small" in kind else torch(N).requires_grad_()

    for name in [name for name in ("polars", "torch") if name in kind or
                 (name == "torch" and "tensor" in kind)]:
        module(name)

    async def job(client, a, b):
        x = client.submit(made, kind, workers=[a.address], key="x")
        y = client.submit(lambda v: v, x, workers=[b.address], key="y")
        found, expected = await y, made(kind)
        equal = (found == expected if isinstance(expected, int)
                 else getattr(found, "equals", None) or getattr(found, "equal"))
        assert equal if isinstance(equal, bool) else equal(expected)
        assert "x" not in b.data.shared

    together(place, job)


def test_read_only_tensors_are_copies(place):
    """A write into one that showed read-only memory would end the process."""
    module("torch")

    async def job(client, a, b):
        x = client.submit(make, "torch.Tensor", workers=[a.address], key="x")
        first = await client.submit(lambda v: float(v.add_(1)[0]), x, workers=[b.address])
        assert first == NUMBERS[0] + 1 and re.match("torch", type(b.data["x"]).__module__)

    together(place, job, settings={f"{PREFIX}.map": "ro"})
