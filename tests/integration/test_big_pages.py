# SPDX-License-Identifier: Apache-2.0
"""A host of pages of 64 KiB, as support/bigpages.c makes one: what a page of 4 KiB let pass is
refused, and files take whole pages.

Every process of ours lives there, but for who mounts the file system.
"""
import os
import subprocess
from pathlib import Path

import pytest
from admin_tiered import disk  # noqa: F401
from daemon import Daemon, wait_for
from fixture import BUILD, SANITIZED, Cluster, Place

PAGE, MIB = 1 << 16, 1 << 20
PRELOAD = BUILD / "tests" / "libbigpages.so"
pytestmark = [pytest.mark.skipif(SANITIZED, reason="a sanitizer wants to be loaded before"),
              pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a tmpfs, and to look at "
                                                           "others' files")]


@pytest.fixture
def big():
    cluster = Cluster(Place(size="128m"))
    try:
        yield cluster
        for tool in cluster.tools:
            tool.end()
    finally:
        cluster.remove()


def preload(cluster):
    return {"LD_PRELOAD": str(PRELOAD), "BIG_PAGES_OF": cluster.place.base}


def start(cluster, store=None, *words, socket="/nonexistent"):
    return cluster.tool(store, *words,
                        prefix=("env", *(f"{name}={value}" for name, value in preload(
                            cluster).items()), f"SHMSTORE_SOCKET={socket}"))


def books(cluster, tool):
    """Once all files have whole pages, which the first look sees to. They close, and
    are the file system's own."""
    tool.books()
    found = tool.books()
    assert (found["residual"] == 0 and found["foreign"] == 0 and
            found["used"] == cluster.place.used()), found
    assert all(value % PAGE == 0 for value in (found["used"], found["linked"] +
                                               found["pool"])), found
    return found


def test_objects_are_packed_and_books_are_exact(big):
    a, b = start(big, "a", "pack=300000"), start(big, "b", "pack=300000")
    before = books(big, a)
    for i in range(120):
        a("put", f"small{i}", 3000 + i * 37, i)
    for i in range(30):
        a("put", f"large{i}", 70000 + i * 777, i)
    assert (list(Path(big.place.path).rglob("segments/*")) and
            not list(Path(big.place.path).rglob("objects/*"))), "all are packed"
    assert books(big, b)["objects"] == 150
    for i in range(0, 150, 3):
        ticket, = a("handoff", f"small{i}" if i < 120 else f"large{i - 120}", 60000)
        b("adopt", f"of-a-{i}", ticket)
    assert (all(a.same(f"large{i}", 70000 + i * 777, i) for i in range(30)) and
            b.same("of-a-0", 3000, 0))
    pid = big.fork(b)
    books(big, a)
    big.kill_child(pid)
    a.kill()
    big.tools.remove(a)
    b("gc")
    assert books(big, b)["objects"] == 50 and b.same("of-a-0", 3000, 0)
    for i in range(0, 150, 3):
        b("delete", f"of-a-{i}")
    b("close")
    c = start(big, "c")
    c("gc")
    assert books(big, c)["used"] == before["used"] - PAGE, "a's page and b's went, c's came"


def test_memory_that_goes_goes_by_whole_pages(big):
    """A store that needs its own memory for another object punches holes where packed ones
    were: none within a page."""
    a = start(big, "a", "pack=300000")
    for i in range(1000):
        a("put", f"k{i}", 40000, i)
    full = books(big, a)
    assert full["used"] > 1000 * 40000
    for i in range(1000):
        if i % 10:
            a("delete", f"k{i}")
    a("put", "one", 100 * MIB, 1)
    left = books(big, a)
    assert left["used"] <= 128 * MIB and left["objects"] == 101
    assert (all(a.same(f"k{i}", 40000, i) for i in range(0, 1000, 10)) and
            a.same("one", 100 * MIB, 1))


@pytest.mark.parametrize("packed", [[], ["pack=300000"]])
def test_a_limit_holds_and_what_is_promised_is_taken(big, packed):
    start(big).end()
    with Daemon(config=f'partition "{big.place.path}" {{ limit = "24MiB" }}', http=False,
                environment=preload(big)) as daemon:
        tools = [start(big, f"s{i}", *packed, socket=daemon.socket) for i in range(3)]
        most = 0
        for turn in range(4):
            for i, tool in enumerate(tools):
                tool("churn", 150, 10 * turn + i)
            most = max(most, books(big, tools[0])["used"])
            for tool in tools:
                for n in range(60):
                    tool.code("put", f"f{turn}-{n}", 100000, n)
                most = max(most, books(big, tools[0])["used"])
        assert 16 * MIB < most <= 24 * MIB


def test_every_store_is_attached(big):
    """The pages of all lie in one range of addresses of the daemon, a page apart."""
    start(big).end()
    with Daemon(big.place.path, http=False, environment=preload(big)) as daemon:
        tools = [start(big, f"s{i}", socket=daemon.socket) for i in range(20)]
        for i, tool in enumerate(tools):
            tool("put", "k", 1000 + i, i)
        with daemon.wire() as wire:
            wait_for("all are registered", lambda: _live(wire) == sorted(f"s{i}" for i in range(
                20)))


def _live(wire):
    return sorted(store["name"] for partition in wire.query("workers")["partitions"]
                  for store in partition["workers"] if store["registered"])


@pytest.mark.parametrize("program", ["segment", "ops", "views", "tier", "forks"])
def test_races_end_well(program):
    environment = {**os.environ, "LD_PRELOAD": str(PRELOAD), "BIG_PAGES_OF": "/mnt",
                   "SHMSTORE_SOCKET": "/nonexistent"}
    done = subprocess.run([BUILD / "tests" / f"race_{program}"], env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 77), done.stdout + done.stderr


def test_what_lies_in_the_disk_tier_comes_back_and_is_mapped_there(big, disk):
    a = start(big, "a")
    a("tier", disk, "level=0")
    for i in range(12):
        a("put", f"k{i}", 8 * MIB, i)
        a("demote", f"k{i}")
    assert books(big, a)["used"] < 8 * MIB
    a("promote", "k1")
    assert all(a.same(f"k{i}", 8 * MIB, i) for i in range(2))
    for i in range(1, 12):
        a.code("promote", f"k{i}")
    a("put", "full", 20 * MIB, 99)
    assert all(a.same(f"k{i}", 8 * MIB, i) for i in range(12)), (
        "also those that are mapped from the disk")
    books(big, a)
