# SPDX-License-Identifier: Apache-2.0
"""The workloads of bench_workloads: what people do with Dask, each with a digest
of its results, byte for byte.

``workloads`` maps a name to a function (client, Spec) -> str. Data come from seeds: two
runs on the same side give the same digest unless the workload itself depends on the
order in which things happen.
"""
import hashlib
import math

MIB = 1 << 20


class Missing(Exception):
    """A library that the workload needs is not installed."""


def digest(*values):
    """Of arrays, frames and numbers."""
    import numpy
    import pandas

    total = hashlib.sha256()
    for value in values:
        if isinstance(value, (pandas.DataFrame, pandas.Series)):
            total.update(pandas.util.hash_pandas_object(value).to_numpy().tobytes())
        elif isinstance(value, numpy.ma.MaskedArray):
            total.update(value.filled(0).tobytes() + numpy.ma.getmaskarray(value).tobytes())
        else:
            total.update(numpy.ascontiguousarray(value).tobytes())
    return total.hexdigest()[:16]


def square(spec):
    """A random matrix of the size of the data, in chunks of rows and columns."""
    import dask.array

    side = math.isqrt(spec.size // 8)
    chunk = math.isqrt(spec.chunk // 8)
    return dask.array.random.RandomState(1).random_sample((side, side), chunks=chunk)


def rows(spec):
    """A random matrix of 64 columns, in chunks of rows."""
    import dask.array

    return dask.array.random.RandomState(2).random_sample((spec.size // 512, 64), chunks=(
        spec.chunk // 512, 64))


def table(spec, text=False):
    import dask.dataframe
    from dask import delayed

    n = spec.chunk // (96 if text else 24)
    meta = make_table(0, 0, text)
    parts = [delayed(make_table, pure=False)(i, n, text) for i in range(spec.n_chunks)]
    return dask.dataframe.from_delayed(parts, meta=meta, verify_meta=False)


# ---- what tasks do -------------------------------------------------------------------------------


def make_table(i, n, text):
    import numpy
    import pandas

    rng = numpy.random.default_rng(i)
    frame = pandas.DataFrame({"key": rng.integers(0, 1000, n), "a": rng.integers(0, 1 << 30, n),
                              "b": rng.random(n)})
    return frame.assign(text=pandas.Series([f"text {value}" for value in frame.a % 5000],
                                           dtype=object)) if text else frame


def make_array(i, n):
    import numpy

    return numpy.random.default_rng(i).random(n)


def smooth(block):
    import numpy

    return (block + numpy.roll(block, 1, 0) + numpy.roll(block, -1, 0) +
            numpy.roll(block, 1, 1)) / 4


def add(a, b):
    return a + b


def halve(a):
    return a[: len(a) // 2] * 0.5


def words(i):
    import random

    rng = random.Random(i)
    return [f"w{rng.randrange(500)}" for _ in range(20_000)]


def learn(block):
    import numpy
    from sklearn.linear_model import Ridge

    x = numpy.asarray(block)
    return Ridge(alpha=1.0, solver="cholesky").fit(x[:, :-1], x[:, -1])


def predict(model, block):
    return model.predict(block[:, :-1])


# ---- the workloads -------------------------------------------------------------------------------


def svd(client, spec):
    import dask.array

    _, s, v = dask.array.linalg.svd(rows(spec))
    return digest(*client.gather(client.compute([s, v])))


def rechunk(client, spec):
    x = square(spec)
    n = x.shape[0]
    return digest(client.compute(x.rechunk((n, max(1, spec.chunk // 8 // n))).sum(axis=0)).result())


def map_overlap(client, spec):
    return digest(client.compute(square(spec).map_overlap(smooth, depth=1, boundary="reflect").max(
        axis=0)).result())


def fft(client, spec):
    import dask.array

    x = square(spec)
    return digest(client.compute(abs(dask.array.fft.fft(
        x.rechunk({0: -1, 1: "auto"}, block_size_limit=spec.chunk), axis=0)).max(axis=0)).result())


def stack(client, spec):
    import dask.array

    n = spec.chunk // 8
    arrays = [dask.array.from_delayed(_delayed(make_array, i, n), (n,), float)
              for i in range(spec.n_chunks)]
    return digest(client.compute(dask.array.stack(arrays).max(axis=0)).result())


def groupby(client, spec):
    result = client.compute(table(spec).groupby("key").agg(
        {"a": ["sum", "max"], "b": "min"})).result()
    return digest(result.sort_index())


def merge(client, spec):
    import dask

    with dask.config.set(shuffle="tasks"):
        left = table(spec)
        right = left.groupby("key").a.max(split_out=spec.n_chunks).to_frame().reset_index().rename(
            columns={"a": "top"})
        joined = left.merge(right, on="key")
        return digest(*client.gather(client.compute([(joined.a % 7).sum(), joined.top.max(),
                                                     joined.b.max()])))


def set_index(client, spec):
    import dask

    with dask.config.set(shuffle="tasks"):
        divisions = list(range(0, 1000, max(1, 1000 // spec.n_chunks))) + [1000]
        index = table(spec).set_index("key", divisions=divisions)
        return digest(client.compute(index.a.groupby("key").sum()).result().sort_index())


def bag(client, spec):
    import dask.bag

    counts = dask.bag.from_sequence(range(spec.n_chunks * 2), npartitions=spec.n_chunks).map(
        words).flatten().frequencies()
    return digest(repr(sorted(client.compute(counts).result())).encode())


def incremental(client, spec):
    total = _delayed(make_array, 0, spec.chunk // 8)
    for i in range(1, spec.n_chunks):
        total = _delayed(add, total, _delayed(make_array, i, spec.chunk // 8))
    return digest(client.compute(total).result())


def masked(client, spec):
    import dask.array

    x = dask.array.ma.masked_greater(square(spec), 0.5)
    return digest(*client.gather(
        client.compute([x.max(axis=0), x.rechunk((x.chunks[0], (x.shape[1],))).min(axis=1)])))


def strings(client, spec):
    import dask

    with dask.config.set(shuffle="tasks"):
        frame = table(spec, text=True)
        counts = frame.groupby("text").a.max()
        index = frame.set_index("key", divisions=[0, 250, 500, 750, 1000])
        return digest(client.compute(counts).result().sort_index(),
                      client.compute(index.text.str.len().sum()).result())


def load_sklearn():
    """Before there are models: CPython takes a task that imports the package while a model of it is
    unpickled for a deadlock."""
    import sklearn.linear_model  # noqa: F401


def scikit(client, spec):
    _need("sklearn")
    client.run(load_sklearn)
    x = client.persist(rows(spec))
    blocks = list(x.to_delayed().ravel())
    models = [_delayed(learn, block) for block in blocks]
    predicted = [_delayed(predict, models[i - 1], block) for i, block in enumerate(blocks)]
    return digest(*client.gather(client.compute([_delayed(max, p) for p in predicted])))


def xarray(client, spec):
    xarray = _need("xarray")
    import numpy

    x = square(spec)
    array = xarray.DataArray(x, dims=("t", "x"),
                             coords={"month": ("t", numpy.arange(x.shape[0]) % 12)})
    return digest(client.compute(array.groupby("month").max("t").data).result())


def scatter_gather(client, spec):
    import numpy

    data = [make_array(i, spec.chunk // 8) for i in range(spec.n_chunks)]
    futures = client.scatter(data)
    result = client.gather(client.map(numpy.sort, futures))
    return digest(*(part[::1000] for part in result))


def futures(client, spec):
    from distributed import as_completed

    found = {}
    values = client.map(make_array, range(spec.n_chunks), [spec.chunk // 8] * spec.n_chunks)
    for step in range(3):
        values = client.map(halve, values, pure=False)
        tops = client.map(max, [client.submit(_first, value, pure=False) for value in values],
                          pure=False)
        names = {future.key: i for i, future in enumerate(tops)}
        for future in as_completed(tops):
            found[step, names[future.key]] = future.result()
    return digest(*(found[key] for key in sorted(found)))


def _first(a):
    return a[:100]


def _delayed(function, *args):
    from dask import delayed

    return delayed(function, pure=False)(*args)


def _need(name):
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{name} is not installed") from error


workloads = {
    "svd": svd, "rechunk": rechunk, "map_overlap": map_overlap, "fft": fft, "stack": stack,
    "groupby": groupby, "merge": merge,
    "set_index": set_index, "bag": bag, "incremental sums": incremental, "masked arrays": masked,
    "string frames": strings,
    "scikit-learn": scikit, "xarray": xarray, "scatter/gather": scatter_gather,
    "futures in loops": futures,
}
