# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with several processes; see fixture.py."""
import os

import pytest
from daemon import SHMSTORED, Daemon
from fixture import STORETOOL, Cluster, Place, clusters
from gatehost import gated, library, small

os.environ.pop("SHMSTORE_PACK_MAX", None)  # only files() sets it

__all__ = ["gated", "library", "small"]


@pytest.fixture
def make_cluster():
    """make_cluster(size=…, huge=…): a partition of its own. At the end of a test that passed,
    nothing may be left there."""
    assert STORETOOL.exists(), f"{STORETOOL}: not built (set SHMSTORE_BUILD)"
    with clusters(lambda **options: Cluster(Place(**options))) as make:
        yield make


@pytest.fixture(params=["never", "within_size"])
def cluster(request, make_cluster):
    """A partition on small pages and one on huge pages: the same must hold."""
    return make_cluster(huge=request.param)


@pytest.fixture
def files(monkeypatch):
    """Each object is a file, where a test looks at an object's own file or at its lease."""
    monkeypatch.setenv("SHMSTORE_PACK_MAX", "0")


@pytest.fixture
def plain_cluster(make_cluster):
    return make_cluster()


@pytest.fixture
def place_size():
    return "64m"


@pytest.fixture
def place(place_size):
    """A place for the partition of a daemon under test; a file that wants another size has a
    place_size() of its own."""
    place = Place(size=place_size)
    try:
        yield place
    finally:
        place.remove()


@pytest.fixture
def program():
    """The daemon under test; a file about actors has a program() of its own."""
    return SHMSTORED


@pytest.fixture
def make_daemon(program):
    """make_daemon(partition…, config=…): a running daemon, ended with the test; it must
    have ended in good order."""
    assert SHMSTORED.exists(), f"{SHMSTORED}: not built (set SHMSTORE_BUILD)"
    daemons = []

    def make(*partitions, **options):
        daemons.append(Daemon(*partitions, **{"program": program, **options}))
        return daemons[-1]

    errors = []
    try:
        yield make
    finally:
        for daemon in daemons:
            try:
                daemon.close()
            except Exception as error:  # the others must be ended too
                errors.append(error)
    for error in errors:
        raise error


@pytest.fixture
def hosts(make_cluster, make_daemon):
    """hosts(keys of the partition, text before it, size=…): a partition, its daemon, and a function
    that starts a tool under it."""

    def make(body="", text="", **options):
        cluster = make_cluster(**options)
        cluster.tool().end()  # makes the partition
        daemon = make_daemon(config=f'{text}\npartition "{cluster.place.path}" {{\n{body}\n}}',
                             http=False)
        # A survey tells the bytes of users and labels: one that runs beside puts counts some
        # of them twice, until the next.
        with daemon.wire() as wire:
            wire.query("reconcile")

        def tool(store=None, *words):
            return cluster.tool(store, *words, prefix=("env", f"SHMSTORE_SOCKET={daemon.socket}"))

        return cluster, daemon, tool

    return make
