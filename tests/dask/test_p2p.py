# SPDX-License-Identifier: Apache-2.0
"""Dask's own P2P rechunk and shuffle, under workers that share: their results are right, and
nothing falls back to stock. How shards go: test_shards.py."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
from conftest import cluster, fallbacks

pytest.importorskip("dask._task_spec", reason="this Dask's P2P is another one")


def test_rechunk(place):
    import dask.array as da

    whole = np.arange(1024 * 1024, dtype=float).reshape(1024, 1024)
    with cluster(place, 2) as client, dask.config.set({"array.rechunk.method": "p2p"}):
        rows = da.from_array(whole, chunks=(128, 1024)).rechunk((1024, 128))
        assert any("p2p" in str(key) for key in rows.__dask_graph__()), "it is P2P"
        assert np.array_equal(client.compute(rows).result(), whole)
        assert not any(fallbacks(client).values())


def test_shuffle_of_arrow_strings(place):
    pytest.importorskip("pyarrow")
    import dask.dataframe as dd

    n = 40_000
    whole = pd.DataFrame({"key": np.arange(n) * 7 % 1000,
                          "text": pd.Series([f"text {i}" for i in range(n)],
                                            dtype="string[pyarrow]")})
    with cluster(place, 2) as client, dask.config.set({"dataframe.shuffle.method": "p2p"}):
        parts = client.compute(dd.from_pandas(whole, npartitions=8).shuffle("key").to_delayed(),
                               sync=True)
        assert sum(part.key.nunique() for part in parts) == 1000, "a key is in one partition"
        found = pd.concat(parts).sort_index()
        assert found.text.dtype == whole.text.dtype and found.equals(whole)
        assert not any(fallbacks(client).values())
