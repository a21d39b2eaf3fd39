# SPDX-License-Identifier: Apache-2.0
"""The scene of test_arbiter.py and test_arbiter_loops.py: a store with a
real daemon and its arbiter."""

from __future__ import annotations

import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import shmstore
from conftest import Place, wait_for
from shmstore.arbiter import Arbiter, Context, Pool

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from daemon import Daemon  # noqa: E402

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place(SIZE)
    try:
        if not place.mounted:
            pytest.skip("needs a tmpfs of its own, hence root")
        yield place
    finally:
        place.remove()


@pytest.fixture
def daemon(partition: shmstore.Partition, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with Daemon(partition.path, http=False) as d:
        monkeypatch.setenv("SHMSTORE_SOCKET", d.socket)
        yield d


@pytest.fixture
def store(partition: shmstore.Partition, daemon: Daemon) -> Iterator[shmstore.Store]:
    with partition.open("main", daemon="required", arbitrate=True) as store:
        yield store


@pytest.fixture
def arbiter(store: shmstore.Store) -> Arbiter:
    assert store.arbiter is not None
    return store.arbiter


@pytest.fixture
def pool(arbiter: Arbiter) -> Pool:
    """A private pool: exact, nobody leases from it but us."""
    return arbiter.pool("budget", 100 * MIB)


class Thread(threading.Thread):
    """Runs fn; result() is what it returned, or raises what it raised."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.fn, self.value, self.error = fn, None, None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.fn()
        except BaseException as error:
            self.error = error

    def result(self) -> Any:
        self.join(30)
        assert not self.is_alive(), "it still waits"
        if self.error:
            raise self.error
        return self.value


def until_state(context: Context, state: str) -> None:
    wait_for(f"the state {state}", lambda: context.state().state == state)
