# SPDX-License-Identifier: Apache-2.0
"""The examples run, on a partition of their own, and leave nothing."""

import base64
import os
import pathlib
import random
import shutil
import subprocess
import sys
import zlib

import pytest

import shmstore

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "cache": ["stock: 4 loads", "shmstore: 1 loads", "sum 131073"],
    "chunks": ["sum 4194304", "by URL: 131072 of 1048704 bytes"],
    "data_set": ["a list:", "SharedList:",
                 "SharedList's memory, once: 8 MiB, for 8 MiB of records"],
    "fit": ["loky:", "shmstore:", "the results are the same"],
    "pool": ["stock: 1 MiB there and back", "shmstore: 1 MiB there and back",
             "the sums are the same"],
    "table": ["stock:", "shmstore:", "the sum 49999500"],
    "killed_group": ["5 groups killed", "left over: 0 bytes, 0 stores"],
    "share_array": ["worker-3: data 10000000, doubled 20000000", "80 MB for 5 processes",
                    "left over: 0 objects"],
    "write_in_place": ["8000000 bytes, image[3, 7] = 21", "still reads 998001"],
}
# the second argument
SIZES = {"cache": 1, "chunks": 4, "data_set": 1000, "fit": 4, "pool": 1, "table": 100_000}
WANTS = {"chunks": ("fsspec", "zarr"), "fit": ("joblib",), "table": ("pyarrow",)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(place, path):
    for module in WANTS.get(path.stem, ()):
        pytest.importorskip(module, "3" if module == "zarr" else None)
    size = [str(SIZES[path.stem])] if path.stem in SIZES else []
    done = subprocess.run([sys.executable, path, place.path, *size], capture_output=True, text=True,
                          timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in SAYS[path.stem]:
        assert part in done.stdout
    assert shmstore.Partition(place.path).stores() == []


def test_all_are_here():
    assert {p.stem for p in EXAMPLES} == set(SAYS)


# A stream as pyarrow 26 writes it, in two batches: id [1, 2, None, 4], price [0.5, 1.5, 2.5, None],
# name ["a", None, "ccc", "dd"].
STREAM = zlib.decompress(base64.b85decode(
    b"c-oCpJ5Izf5Pf!>j}{}PSfLaYlsN!Bl$0ESRk9LWEJ9Qqf@5$Xj<Cnr&OAF4;f#o2r1A3`&y2?}2_b|N"
    b"fELj<@TgFt;f`h;ImjBWPFA3xzteApf3gRY%h=;u"
    b"Vi0`U9rx4TCH^(#7CN`2zrG!YJ@0SmRf<~9wN1QEle99YvAW*U4`ZCw)9W;AOuUzKUK`HDt#FSkd8tpG"
    b"Q8;vjXUw)C_vzJ9ix1JLz>n40-U!OQxDo8Jv|gP*"
    b"sQO32R`5x%%6b&p943oF<>coVid&WM7VLC4;aSklGU8Ib*+}hf7>05Dzs~(1I-3=pwKWQj(r=D;s;*o4"
    b"URG&nRGnGD-*sGC>>V|l|Hp{mM^G&J"))
READ = ("id: 4 rows, 1 null, sum 7\nprice: 4 rows, 1 null, sum 4.5\nname: 4 rows, 1 null, 6 bytes "
        "of text\n")


@pytest.fixture(scope="module")
def arrow(tmp_path_factory):
    """examples/arrow.c, compiled, as a function of a partition, a store and a key."""
    build = os.environ.get("SHMSTORE_BUILD")
    if not build or not shutil.which("cc"):
        pytest.skip("wants a compiler, and SHMSTORE_BUILD")
    program = tmp_path_factory.mktemp("arrow") / "arrow"
    subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror",
                    "-O1", "-o", program, ROOT / "examples/arrow.c",
                    f"-I{ROOT}/libshmstore/include", f"-L{build}/libshmstore", "-lshmstore"],
                   check=True)
    return lambda path, key: subprocess.run([program, "main", key],
                                            env={**os.environ, "SHMSTORE_PARTITION": path},
                                            capture_output=True, text=True,
                                            errors="replace", timeout=60, check=False)


def test_c_reads_an_arrow_table(place, store, arrow):
    store.put_buffers("t", b"application/vnd.apache.arrow.stream", [STREAM])
    done = arrow(place.path, "t")
    assert (done.returncode, done.stdout, done.stderr) == (0, READ, "")
    store["pickled"] = 1
    assert "holds no Arrow table" in arrow(place.path, "pickled").stderr


def test_c_reads_what_put_arrow_puts(place, store, arrow):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.ipc.open_stream(STREAM).read_all()
    store.put_arrow("t", table)
    assert arrow(place.path, "t").stdout == READ
    store.put_arrow("empty", table.slice(0, 0))
    assert "id: 0 rows, 0 null, sum 0" in arrow(place.path, "empty").stdout
    store.put_arrow("others", {"a": [True]})
    assert "this example reads columns of" in arrow(place.path, "others").stderr


def test_c_says_that_a_stream_is_damaged(place, store, arrow):
    rng = random.Random(1)
    for _ in range(60):
        damaged = bytearray(STREAM[: rng.choice((len(STREAM), rng.randrange(len(STREAM))))])
        for _ in range(min(len(damaged), rng.randrange(1, 4))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        store.put_buffers("t", b"application/vnd.apache.arrow.stream", [damaged], replace=True)
        done = arrow(place.path, "t")
        assert done.returncode in (0, 1) and bool(done.stderr) == bool(done.returncode), done
