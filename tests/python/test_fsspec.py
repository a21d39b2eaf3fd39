# SPDX-License-Identifier: Apache-2.0
"""shm:// for fsspec, and zarr's chunks in a cache. Skipped where these are not installed."""

import numpy
import pytest

import shmstore

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def fs(place):
    from shmstore.fsspec import ShmFileSystem

    made = ShmFileSystem(partition=place.path, skip_instance_cache=True)
    yield made
    if made._writing is not None:
        made._writing.close()


def test_files(fs, partition):
    with fs.open("shm://data/part-0", "wb") as file:
        file.write(b"hello" * 100_000)
    with fs.open("data/deep/er", "wb") as file:
        file.write(b"x")
    with pytest.raises(ZeroDivisionError), fs.open("data/torn", "wb") as file:
        file.write(b"y")
        1 // 0  # noqa: B018
    assert fs.ls("shm://data", detail=False) == ["data/deep/er", "data/part-0"] and fs.ls("", detail=False) == ["data"]
    assert fs.info("data/part-0")["size"] == 500_000 and fs.isdir("data") and fs.isdir("data/deep") and fs.exists("data/deep/er")
    assert fs.cat("data/part-0") == b"hello" * 100_000 and fs.cat_file("data/part-0", 5, 9) == b"hell"
    assert fs.glob("data/p*") == ["data/part-0"] and fs.find("data") == ["data/deep/er", "data/part-0"]
    with fs.open("data/part-0", "rb") as file:
        assert file.read(3) == b"hel" and file.seek(-2, 2) == 499_998 and file.read() == b"lo" and file.read() == b""
    with partition.open("data", readonly=True) as reader:
        assert bytes(reader.view("deep/er")) == b"x"  # an object as any other
    for path in ("data/none", "none/x"):
        assert not fs.exists(path)
        with pytest.raises(FileNotFoundError):
            fs.open(path, "rb")
    with pytest.raises(ValueError, match="read .rb. or written whole"):
        fs.open("data/part-0", "ab")
    fs.rm("data/part-0")
    assert fs.find("data") == ["data/deep/er"]
    fs.rm("data", recursive=True)
    assert partition.stores() == []


def test_another_owner_is_said(fs, partition):
    with partition.open("busy") as store:
        store.put_buffers("x", b"", [b"abc"])
        assert fs.cat("busy/x") == b"abc"
        with pytest.raises(shmstore.Error, match="live|busy"):
            fs.pipe("busy/y", b"1")


def test_pandas_by_url(place):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    fsspec.register_implementation("shm", "shmstore.fsspec.ShmFileSystem", clobber=True)
    options = {"partition": place.path}
    pandas.DataFrame({"a": range(1000)}).to_parquet("shm://frames/p.parquet", storage_options=options)
    assert pandas.read_parquet("shm://frames/p.parquet", storage_options=options).a.sum() == 499_500


def test_chunks_of_zarr(place):
    zarr = pytest.importorskip("zarr", "3")
    from shmstore.zarr import CachedStore

    source, cache = zarr.storage.MemoryStore(), shmstore.Cache("chunks", partition=place.path)
    array = zarr.create_array(source, shape=(1000, 1000), chunks=(100, 1000), dtype="f8")
    array[:] = numpy.arange(1e6).reshape(1000, 1000)
    assert (zarr.open_array(CachedStore(source, cache), mode="r")[:] == array[:]).all()
    entries = len(cache)
    assert entries >= 10
    assert (zarr.open_array(CachedStore(source, cache), mode="r")[5:7] == array[5:7]).all() and len(cache) == entries
    writer = zarr.open_array(CachedStore(source, cache), mode="r+")
    writer[0] = -1
    assert (zarr.open_array(CachedStore(source, cache), mode="r")[0] == -1).all()
    source = zarr.storage.MemoryStore(source._store_dict)
    assert (zarr.open_array(CachedStore(source, cache, version=2), mode="r")[1] == array[1]).all()
