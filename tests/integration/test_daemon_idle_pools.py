# SPDX-License-Identifier: Apache-2.0
"""Stores that put, delete and idle keep the files for their next put: not from somebody who puts
most of the partition, with a daemon and its limits either, and at the first try. The last sixteenth
of the partition, or of a limit that is less, stays with them: open files, which are theirs to give
back when the daemon asks and they call. Without a daemon:
tests/regress/test_pools_of_idle_stores.c.
"""
import os

import pytest
from fixture import ROOT

MIB = 1 << 20
STORES = 15
SIZE = 192 * MIB  # of the partition's 256, and of a limit's 216
USER = 'user "{uid}" {{ limit = "216MiB" }}'
PARTITION = 'limit = "216MiB"'


def idle(tools, size, n):
    for tool in tools:
        for i in range(n):
            tool("put", f"k{i}", size, i)
        for i in range(n):
            tool("delete", f"k{i}")


@pytest.mark.skipif(not ROOT, reason="needs a file system of its own")
@pytest.mark.parametrize("size, n", [(14 * MIB, 1), (MIB, 14)], ids=["large", "many"])
@pytest.mark.parametrize("limit", ["", USER, PARTITION], ids=["none", "user", "partition"])
@pytest.mark.parametrize("words", [[], ["daemon=off"]], ids=["registered", "alone"])
def test_a_sixteenth_puts_three_quarters(hosts, limit, size, n, words):
    puts_and_goes_on(*hosts(limit.format(uid=os.geteuid()), size="256m"), size, n, words)


@pytest.mark.skipif(not ROOT, reason="needs a file system of its own")
@pytest.mark.parametrize("limit", [USER, PARTITION], ids=["user", "partition"])
def test_a_limit_far_below_the_partition(hosts, limit):
    """A sixteenth of the partition would be a third of the limit."""
    puts_and_goes_on(*hosts(limit.format(uid=os.geteuid()), size="1g"), MIB, 14, [])


def puts_and_goes_on(cluster, _, tool, size, n, words):
    tools = [tool(f"s{i}", *words) for i in range(STORES)]
    idle(tools, size, n)
    sixteenth = tool("sixteenth", *words)
    assert sixteenth.code("put", "k", SIZE, 99) == 0, (
        f"{cluster.place.used() / MIB:.0f} MiB are used, by nobody's objects")
    assert sixteenth.same("k", SIZE, 99)
    sixteenth("delete", "k")
    # They go on as if nothing had been.
    for one in tools:
        one("put", "again", size, 3)
        assert one.same("again", size, 3)
        one("delete", "again")
    books = sixteenth.books()
    assert books["objects"] == 0 and books["residual"] == 0
