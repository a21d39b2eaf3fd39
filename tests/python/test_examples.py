# SPDX-License-Identifier: Apache-2.0
"""The examples run, on a partition of their own, and leave nothing."""

import pathlib
import subprocess
import sys

import pytest

import shmstore

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "libshmstore/python/examples").glob("*.py"))
SAYS = {
    "killed_group": ["5 groups killed", "left over: 0 bytes, 0 stores"],
    "share_array": ["worker-3: data 10000000, doubled 20000000", "80 MB for 5 processes", "left over: 0 objects"],
    "write_in_place": ["8000000 bytes, image[3, 7] = 21", "still reads 998001"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(place, path):
    done = subprocess.run([sys.executable, path, place.path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in SAYS[path.stem]:
        assert part in done.stdout
    assert shmstore.Partition(place.path).stores() == []


def test_all_are_here():
    assert {p.stem for p in EXAMPLES} == set(SAYS)
