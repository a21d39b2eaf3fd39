# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with several processes; see fixture.py."""
import pytest
from daemon import SHMSTORED, Daemon
from fixture import STORETOOL, Cluster, Place


@pytest.fixture
def make_cluster():
    """make_cluster(size=…, huge=…): a partition of its own. At the end of a test that passed, nothing may be left there."""
    assert STORETOOL.exists(), f"{STORETOOL}: not built (set SHMSTORE_BUILD)"
    clusters = []

    def make(**options):
        clusters.append(Cluster(Place(**options)))
        return clusters[-1]

    try:
        yield make
        for cluster in clusters:
            cluster.nothing_left()
    finally:
        for cluster in clusters:
            cluster.stop()
            cluster.place.remove()


@pytest.fixture(params=["never", "within_size"])
def cluster(request, make_cluster):
    """A partition on small pages and one on huge pages: the same must hold."""
    return make_cluster(huge=request.param)


@pytest.fixture
def plain_cluster(make_cluster):
    return make_cluster()


@pytest.fixture
def make_daemon():
    """make_daemon(partition…, config=…): a running shmstored, ended with the test; it must have ended in good order."""
    assert SHMSTORED.exists(), f"{SHMSTORED}: not built (set SHMSTORE_BUILD)"
    daemons = []

    def make(*partitions, **options):
        daemons.append(Daemon(*partitions, **options))
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
