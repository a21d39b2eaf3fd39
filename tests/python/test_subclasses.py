# SPDX-License-Identifier: Apache-2.0
"""NumPy's subclasses of an array are shared as arrays are: their bytes are buffers of the
object, not part of the pickle."""

import pickle

import numpy as np
import pytest

import shmstore

N = 100_000


def values(tmp_path):
    mapped = np.memmap(tmp_path / "m", dtype="f8", mode="w+", shape=(N,))
    mapped[:] = np.arange(N)
    record = np.rec.array([(i, i / 2) for i in range(N // 10)], dtype=[("a", "i8"), ("b", "f8")])
    masked = np.ma.masked_array(np.arange(N, dtype="f8"), mask=np.arange(N) % 3 == 0,
                                fill_value=-1.0)
    plain = np.ma.masked_array(np.arange(N, dtype="i4"))
    hard = np.ma.masked_array(np.arange(N).reshape(-1, 10), mask=np.arange(N).reshape(-1, 10) > 5,
                              hard_mask=True)
    return {"memmap": mapped, "recarray": record,
            "matrix": np.matrix(np.arange(N).reshape(100, -1)),
            "masked": masked, "no mask": plain, "hard mask": hard, "slice": masked[::2],
            "dates": np.ma.masked_array(np.arange(N).astype("M8[s]"))}


@pytest.mark.parametrize("name", ["memmap", "recarray", "matrix", "masked", "no mask", "hard mask",
                                  "slice", "dates"])
def test_shared_and_the_same(store, tmp_path, name):
    value = values(tmp_path)[name]
    header, buffers = shmstore.dumps(value)
    assert len(header) < 2000 and sum(b.raw().nbytes for b in buffers) >= value.nbytes
    store["x"] = {"deep": [value]}
    for again in (store["x"]["deep"][0], pickle.loads(header, buffers=buffers)):
        assert (type(again) is type(value) and again.dtype == value.dtype and
                again.shape == value.shape)
        if isinstance(value, np.ma.MaskedArray):
            assert (again.filled() == value.filled()).all()
            assert (np.ma.getmaskarray(again) == np.ma.getmaskarray(value)).all()
            assert (again.mask is np.ma.nomask) == (value.mask is np.ma.nomask)
            assert (repr(again.fill_value) == repr(value.fill_value) and
                    again.hardmask == value.hardmask)
        else:
            assert (np.asarray(again) == np.asarray(value)).all()


def test_columns_of_records_have_their_names(store, tmp_path):
    store["x"] = values(tmp_path)["recarray"]
    assert store["x"].b[3] == 1.5 and store["x"][2].a == 2


def test_copy_on_write_of_masked_arrays(store, tmp_path):
    store["x"] = values(tmp_path)["masked"]
    mine = store.get("x", cow=True)
    mine[1] = 7
    mine[2] = np.ma.masked
    assert mine[1] == 7 and store["x"][1] == 1 and store["x"][2] == 2


def test_objects_inside_are_pickled_as_ever(store):
    store["x"] = np.ma.masked_array(np.array([1, "a", None], dtype=object), mask=[0, 1, 0])
    assert store["x"].filled("?").tolist() == [1, "?", None]
