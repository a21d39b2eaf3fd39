# SPDX-License-Identifier: Apache-2.0
"""shm:// for fsspec, and zarr's chunks in a cache. Skipped where these are not installed."""

import asyncio
import multiprocessing

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
    assert (fs.ls("shm://data", detail=False) == ["data/deep/er", "data/part-0"] and
            fs.ls("", detail=False) == ["data"])
    assert (fs.info("data/part-0")["size"] == 500_000 and fs.isdir("data") and
            fs.isdir("data/deep") and fs.exists("data/deep/er"))
    assert (fs.cat("data/part-0") == b"hello" * 100_000 and fs.cat_file("data/part-0", 5, 9) ==
            b"hell")
    assert (fs.glob("data/p*") == ["data/part-0"] and
            fs.find("data") == ["data/deep/er", "data/part-0"])
    with fs.open("data/part-0", "rb") as file:
        assert (file.read(3) == b"hel" and file.seek(-2, 2) == 499_998 and file.read() == b"lo" and
                file.read() == b"")
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
    pandas.DataFrame({"a": range(1000)}).to_parquet("shm://frames/p.parquet",
                                                    storage_options=options)
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
    assert ((zarr.open_array(CachedStore(source, cache), mode="r")[5:7] == array[5:7]).all() and
            len(cache) == entries)
    writer = zarr.open_array(CachedStore(source, cache), mode="r+")
    writer[0] = -1
    assert (zarr.open_array(CachedStore(source, cache), mode="r")[0] == -1).all()
    source = zarr.storage.MemoryStore(source._store_dict)
    assert (zarr.open_array(CachedStore(source, cache, version=2), mode="r")[1] == array[1]).all()


def chunk_sum(place, source, queue, name="chunks"):
    """Reads, in one process of several, an array that all want at once; queues its sum, and how
    often the source was asked for a chunk."""
    import zarr
    from shmstore.zarr import CachedStore

    asked = []

    class Slow(zarr.storage.LocalStore):
        async def get(self, key, *args, **options):
            if "/c/" in f"/{key}" and not args[1:] and not options.get("byte_range"):
                asked.append(key)
                await asyncio.sleep(0.2)
            return await super().get(key, *args, **options)

    array = zarr.open_array(CachedStore(Slow(source), shmstore.Cache(name, partition=place),
                                        version=3), mode="r")
    queue.put((float(array[:].sum()), len(asked)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_chunk_is_fetched_once(place, tmp_path, method):
    zarr = pytest.importorskip("zarr", "3")
    zarr.create_array(str(tmp_path / "a"), shape=(40, 1000), chunks=(2, 1000), dtype="f8")[:] = 1.5
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    # its threads are none of a forked child
    chunk_sum(place.path, str(tmp_path / "a"), queue, "before")
    assert queue.get(timeout=60) == (60_000.0, 20)
    processes = [context.Process(target=chunk_sum, args=(place.path, str(tmp_path / "a"), queue))
                 for _ in range(3)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert [total for total, _ in found] == [60_000.0] * 3 and sum(n for _, n in found) == 20, found
    cache = shmstore.Cache("chunks", partition=place.path)
    assert all(cache.get(key, version=3) is not None and cache.get(key, 5) == 5 and
               isinstance(cache[key], memoryview) for key in cache)
