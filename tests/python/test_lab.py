# SPDX-License-Identifier: Apache-2.0
"""The quickstart's laboratory: it removes the leftovers of a killed one, and nothing of one that
runs in another PID namespace."""
import fcntl
import os
import sys
from pathlib import Path

import pytest

BENCH = str(Path(__file__).parents[2] / "bench")
NO_PID = str(2**22 + 1)  # above the kernel's largest


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    measure = pytest.importorskip("dask_measure")
    places = tmp_path / "shm", tmp_path / "tmp"
    for place in places:
        (place / (measure.PREFIX + NO_PID)).mkdir(parents=True)
    monkeypatch.setattr(measure.Lab, "partition_places", staticmethod(lambda: (str(places[0]),)))
    monkeypatch.setattr(measure.Cgroup, "parents", staticmethod(lambda: ()))
    return measure.Lab(scratch_parent=str(places[1])), [place / (measure.PREFIX + NO_PID)
                                                        for place in places]


def test_leftovers_of_a_killed_one_go(lab):
    lab, left = lab
    lab.remove_stale()
    assert not any(path.exists() for path in left)


def test_one_of_another_pid_namespace_keeps_all(lab):
    lab, left = lab
    fd = os.open(left[1], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    lab.remove_stale()
    assert all(path.exists() for path in left)
    os.close(fd)
    lab.remove_stale()
    assert not any(path.exists() for path in left)


def test_one_that_runs_holds_its_lock(lab):
    lab, _ = lab
    with lab:
        fd = os.open(lab.scratch, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
    assert not os.path.exists(os.path.join(lab.scratch_parent, lab.name))
