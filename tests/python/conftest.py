# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of the Python package: a partition of their own, and
what a process has open."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

try:
    import shmstore
except ImportError as error:  # pragma: no cover
    raise pytest.UsageError(f"{error}: set PYTHONPATH to <build>/python") from error



def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes that run tests side by side must find the same ones: no name
    may have an address in it."""
    names = [item.nodeid for item in items if re.search(r"\b0x[0-9a-f]{6,}", item.nodeid)]
    if names:
        raise pytest.UsageError(f"these names differ from process to process: {' '.join(names)}")


SIZE = 768 << 20
PREFIX = "shmstore-py-"


class Place:
    """A directory for a partition. mounted: on a tmpfs of its own, so that its
    books hold nothing else."""

    def __init__(self, size: int = SIZE) -> None:
        self.path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/dev/shm")
        self.mounted = False
        if os.geteuid() == 0:
            for huge in (",huge=within_size", ""):
                command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700{huge}",
                           "shmstore-py", self.path]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    self.mounted = True
                    break

    def remove(self) -> None:
        remove(self.path)


def remove(path: str) -> None:
    if os.path.ismount(path):
        subprocess.run(["umount", "-l", path], check=True)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _sweep():
    """Removes the files that a killed run left behind."""
    for path in pathlib.Path("/dev/shm").glob(f"{PREFIX}*-*"):
        pid = path.name[len(PREFIX) :].split("-")[0]
        if not os.path.exists(f"/proc/{pid}") and path.stat().st_uid == os.geteuid():
            remove(str(path))


@pytest.fixture
def place():
    place = Place()
    yield place
    place.remove()


@pytest.fixture
def files(monkeypatch):
    """Each object is a file, where a test looks at an object's own file, inode or links."""
    monkeypatch.setenv("SHMSTORE_PACK_MAX", "0")


@pytest.fixture
def partition(place):
    return shmstore.Partition(place.path, create=True)


@pytest.fixture
def store(partition):
    with partition.open("main") as store:
        yield store


@pytest.fixture
def other(partition):
    with partition.open("other") as store:
        yield store


@pytest.fixture
def own_mount(place):
    if not place.mounted:
        pytest.skip("needs a tmpfs of its own, hence root")


def n_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def maps_of(path: str) -> list[str]:
    """The lines of /proc/self/maps that show files under path."""
    return [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
            if path in line]


def wait_for(what, condition, timeout: float = 120.0) -> None:
    """Polls condition() until it is true; fails after timeout seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.001)


def run_child(code: str, *arguments: str, timeout: float = 60.0) -> str:
    """Runs Python code in another process; its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout,
        check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
