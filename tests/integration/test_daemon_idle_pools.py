# SPDX-License-Identifier: Apache-2.0
"""Stores that put, delete and idle keep the files for their next put: not from somebody who puts most of the partition, with a daemon and
its limits either, and at the first try. The last sixteenth of the partition stays with them: open files, which are theirs to give
back when the daemon asks and they call. Without a daemon: tests/regress/test_pools_of_idle_stores.c.
"""
import os

import pytest
from fixture import ROOT

MIB = 1 << 20
STORES = 15
SIZE = 192 * MIB  # of the partition's 256


def idle(tools, size, n):
    for tool in tools:
        for i in range(n):
            tool("put", f"k{i}", size, i)
        for i in range(n):
            tool("delete", f"k{i}")


@pytest.mark.skipif(not ROOT, reason="needs a file system of its own")
@pytest.mark.parametrize("size, n", [(14 * MIB, 1), (MIB, 14)], ids=["large", "many"])
@pytest.mark.parametrize("limit", ["", 'user "{uid}" {{ limit = "216MiB" }}', 'limit = "216MiB"'], ids=["none", "user", "partition"])
@pytest.mark.parametrize("words", [[], ["daemon=off"]], ids=["registered", "alone"])
def test_a_sixteenth_puts_three_quarters(hosts, limit, size, n, words):
    cluster, _, tool = hosts(limit.format(uid=os.geteuid()), size="256m")
    tools = [tool(f"s{i}", *words) for i in range(STORES)]
    idle(tools, size, n)
    sixteenth = tool("sixteenth", *words)
    assert sixteenth.code("put", "k", SIZE, 99) == 0, f"{cluster.place.used() / MIB:.0f} MiB are used, by nobody's objects"
    assert sixteenth.same("k", SIZE, 99)
    sixteenth("delete", "k")
    # They go on as if nothing had been.
    for one in tools:
        one("put", "again", size, 3)
        assert one.same("again", size, 3)
        one("delete", "again")
    books = sixteenth.books()
    assert books["objects"] == 0 and books["residual"] == 0
