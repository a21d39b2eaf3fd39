# SPDX-License-Identifier: Apache-2.0
"""The shards of one input of a P2P rechunk or shuffle as ranges of memory: what is read there is
what stock would have cut out."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("distributed.shuffle._rechunk", reason="this Dask has no P2P of this kind")

from dask.array.rechunk import old_to_new  # noqa: E402
from distributed.shuffle import _rechunk  # noqa: E402

from shmstore.dask.compat.p2p import array_shards, pack_array, pack_frame, streams  # noqa: E402

OLD, NEW = ((5, 7), (8, 8)), ((3, 9), (4, 6, 6))
WORKER_FOR = {(i, j): f"w{(i + j) % 2}" for i in range(2) for j in range(3)}


def filled(packed):
    """(index, memory) of it, and that nothing is written beside it."""
    memory = bytearray(packed.nbytes + 64)
    frames = []
    sys.setprofile(lambda frame, event, arg: frames.append(frame))  # as Dask's profiler has them
    try:
        with memoryview(memory)[: packed.nbytes] as room:
            packed.write(room)
    finally:
        sys.setprofile(None)
    assert len(frames) > 1
    assert not any(memory[packed.nbytes :])
    ends = sorted((each.offset, each.offset + each.nbytes) for each in packed.index)
    assert (all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:])) and
            ends[-1][1] <= packed.nbytes)
    return packed.index, memoryview(memory)


@pytest.mark.parametrize("dtype", ["f8", "u1", "M8[s]", "i4,f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype, order):
    whole = np.arange(12 * 16).reshape(12, 16).astype(dtype)
    splits = _rechunk.split_axes(OLD, NEW)
    assert old_to_new(OLD, NEW)
    came = {}
    for i in range(2):
        for j in range(2):
            rows, columns = sum(OLD[0][:i]), sum(OLD[1][:j])
            chunk = np.asarray(whole[rows : rows + OLD[0][i], columns : columns + OLD[1][j]],
                               order=order)
            packed = pack_array(chunk, [splits[0][i], splits[1][j]], WORKER_FOR)
            for worker, part in packed.items():
                for id, (at, shard) in array_shards(*filled(part)):
                    assert WORKER_FOR[id] == worker
                    came.setdefault(id, []).append((at, shard))
    for (i, j), shards in came.items():
        rows, columns = sum(NEW[0][:i]), sum(NEW[1][:j])
        assert np.array_equal(_rechunk.convert_chunk([shards]),
                              whole[rows : rows + NEW[0][i], columns : columns + NEW[1][j]])
    assert set(came) == set(WORKER_FOR)


@pytest.mark.parametrize("data", [np.array([[None] * 16] * 5), np.ma.ones((5, 8)), np.ones((5, 8))],
                         ids=["objects", "masked", "small"])
def test_arrays_that_are_left_to_stock(data):
    assert pack_array(data, [axis[0] for axis in _rechunk.split_axes(OLD, NEW)], WORKER_FOR,
                      at_least=1000) is None


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("missing", [[], [1]], ids=["all", "culled"])
def test_frames(drop, missing):
    pa = pytest.importorskip("pyarrow")
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "x": rng.random(500), "text": pd.Series([f"text {i}" if i % 7 else None for i in range(
                500)], dtype="string[pyarrow]"),
            "kind": pd.Categorical(rng.choice(["a", "b"], 500)), "to": rng.integers(0, 4, 500),
        },
        index=rng.permutation(500),
    )
    worker_for = {id: f"w{id % 2}" for id in range(5) if id not in missing}  # nothing goes to 4
    came = {}
    for worker, part in pack_frame(frame, "to", drop, worker_for).items():
        for id, stream in streams(*filled(part)):
            assert worker_for[id] == worker and id not in came
            came[id] = pa.ipc.open_stream(stream).read_all().to_pandas(types_mapper={
                pa.large_string(): frame.text.dtype, pa.string(): frame.text.dtype}.get)
    assert set(came) == set(range(4)) - set(missing)
    for id, got in came.items():
        want = frame[frame.to == id]
        pd.testing.assert_frame_equal(got, want.drop(columns="to") if drop else want)


def test_frames_that_are_left_to_stock():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"to": [0, 1], "far": [0, 1 << 40], "real": [0.0, 1.0]})
    for column in ("far", "real"):
        assert pack_frame(frame, column, True, {0: "a", 1: "b"}) is None
    assert pack_frame(frame, "to", True, {0: "a", 1: "b"}, at_least=1000) is None
    assert pack_frame(frame.iloc[:0], "to", True, {0: "a"}) is None
    assert set(pack_frame(frame, "to", True, {0: "a", 1: "b"})) == {"a", "b"}
