# SPDX-License-Identifier: Apache-2.0
"""The disk tier on a disk of 64 MiB that fills up, gets read-only, fails and disappears.

In all of it: what is in memory stays there and can be got; a call that needs the disk says which
disk and why; nothing is left half-made on it; and when the disk is well again, all goes on.
"""
import os
from errno import EEXIST, EIO, ENOSPC

import pytest
from fixture import Cluster, Place, ToolError, clusters
from loopdisk import LoopDisk

MB = 1 << 20
SIZE = 4 * MB


class Small(Cluster):
    """A partition of some size whose tier is a disk of 64 MiB. Nothing is compressed:
    noise would not be anyway."""

    def __init__(self, size="256m", **tier):
        self.disk = LoopDisk()
        super().__init__(Place(size=size))
        self.tool()("tier", self.disk.path, "level=0",
                    *(f"{name}={value}" if value is not True else name
                      for name, value in tier.items()))
        self.empty = self.disk.used()

    def fill(self, tool, n, first=0):
        for i in range(first, first + n):
            tool("put", f"k{i}", SIZE, i + 1)
        return [f"k{i}" for i in range(first, first + n)]

    def all_same(self, tool, keys):
        for key in keys:
            assert tool.same(key, SIZE, int(key[1:]) + 1), key

    def nothing_left(self):
        super().nothing_left()
        assert self.disk.files() == []
        assert self.disk.used() <= self.empty + 64 * 1024  # directories

    def remove(self):
        super().remove()
        self.disk.remove()


@pytest.fixture
def make_small():
    with clusters(Small) as make:
        yield make


def refused(tool, *words):
    """The errno and the text of a refusal."""
    with pytest.raises(ToolError) as info:
        tool(*words)
    return info.value.errno, info.value.strerror


def demote_until_full(tool, keys):
    """Keys that went, and what the next one was told."""
    for i, key in enumerate(keys):
        try:
            tool("demote", key)
        except ToolError as error:
            return keys[:i], error
    raise AssertionError("the disk never filled")


# -- it fills


def test_a_full_disk_keeps_objects_in_memory_and_says_so(make_small):
    small = make_small()
    tool = small.tool("s")
    keys = small.fill(tool, 20)
    gone, error = demote_until_full(tool, keys)
    assert error.errno == ENOSPC
    assert ("disk full" in error.strerror and small.disk.path in error.strerror and
            "free" in error.strerror), error.strerror
    assert 10 <= len(gone) <= 15  # 64 MiB less what ext4 needs
    stays = keys[len(gone)]
    assert tool("locate", stays) == ["memory"] and tool.same(stays, SIZE, len(gone) + 1)
    assert len(small.disk.files()) == len(gone), "no half-made file is left"
    used, demoted, clean, orphans, n_demoted, _ = map(int, tool("tier_info"))
    assert (used, demoted, clean, orphans, n_demoted) == (demoted, used, 0, 0, len(gone))
    small.all_same(tool, keys)
    assert small.books_close()["objects"] == len(keys)


def test_a_deletion_makes_room_on_the_disk_at_once(make_small):
    small = make_small()
    tool = small.tool("s")
    keys = small.fill(tool, 20)
    gone, _ = demote_until_full(tool, keys)
    tool("delete", gone[0])
    tool("demote", keys[len(gone)])
    assert tool("locate", keys[len(gone)]) == ["tier"]
    small.all_same(tool, keys[1:])


def test_clean_copies_give_way_before_the_disk_is_full(make_small):
    small = make_small()
    tool = small.tool("s")
    keys = small.fill(tool, 20)
    gone, _ = demote_until_full(tool, keys)
    small.all_same(tool, gone)  # all are in memory again, and clean
    code = tool.code("demote", keys[len(gone)])
    tool("demote", gone[0])  # and can go again without a byte of disk
    assert code in (0, ENOSPC)
    assert tool("locate", gone[0]) == ["tier"]
    small.all_same(tool, keys)


def test_a_put_that_finds_both_full_is_refused_and_changes_nothing(make_small):
    small = make_small(size="80m")
    tool = small.tool("s", "norecycle")
    n = 0
    while tool.code("put", f"k{n}", SIZE, n + 1) == 0:
        n += 1
        assert n < 60
    assert 25 <= n <= 35, "memory and disk together"
    code, text = refused(tool, "put", f"k{n}", SIZE, n + 1)
    assert code == ENOSPC and "disk full" in text and small.disk.path in text, text
    keys = [f"k{i}" for i in range(n)]
    small.all_same(tool, keys)
    assert len(tool.list()) >= n
    code, text = refused(tool, "evict", 64 * MB)
    assert code == ENOSPC and "disk full" in text, text
    for key in keys[:n // 2]:
        tool("delete", key)
    tool("put", f"k{n}", SIZE, n + 1)
    small.all_same(tool, keys[n // 2:] + [f"k{n}"])


@pytest.mark.parametrize("limit", [{"max": 10 * MB}, {"min_free": 45 * MB}],
                         ids=["max", "min_free"])
def test_the_limit_holds_and_is_named(make_small, limit):
    small = make_small(**limit)
    tool = small.tool("s")
    keys = small.fill(tool, 8)
    gone, error = demote_until_full(tool, keys)
    name, value = next(iter(limit.items()))
    assert (error.errno == ENOSPC and "disk full" in error.strerror and
            str(value) in error.strerror), error.strerror
    assert name.replace("_", "-") in error.strerror, error.strerror
    assert 1 <= len(gone) <= 3
    if name == "max":
        assert int(tool("tier_info")[0]) <= value
    else:
        assert int(tool("tier_info")[5]) >= value
    small.all_same(tool, keys)


# -- it gets read-only


def test_a_read_only_disk_is_read(make_small):
    small = make_small()
    tool = small.tool("s", "keep")
    keys = small.fill(tool, 6)
    for key in keys[:4]:
        tool("demote", key)
    assert tool.same(keys[3], SIZE, 4)  # clean
    small.disk.read_only(True)
    code, text = refused(tool, "demote", keys[4])
    assert code == ENOSPC and "read-only" in text and small.disk.path in text, text
    assert tool("locate", keys[4]) == ["memory"]
    assert tool.same(keys[0], SIZE, 1) and tool("locate", keys[0]) == ["memory"]
    tool("demote", keys[3])  # nothing is to be written
    assert tool("locate", keys[3]) == ["tier"]
    tool("delete", keys[1])
    tool.kill()
    again = small.tool("s", "adopt")  # a process that knows the disk only as it is now
    small.all_same(again, [key for key in keys if key != keys[1]])
    code, text = refused(again, "evict", 4 * SIZE) if again.code("evict", 4 * SIZE) else (0, "")
    assert code in (0, ENOSPC) and (code == 0 or "read-only" in text), text
    small.disk.read_only(False)
    again("gc")
    used, demoted, clean, orphans, _, _ = map(int, again("tier_info"))
    assert orphans == 0 and used == demoted + clean
    again("demote", keys[4])
    small.all_same(again, [key for key in keys if key != keys[1]])


# -- it fails


@pytest.mark.parametrize("through", [False, True], ids=["", "fsync"])
def test_a_write_error_loses_nothing(make_small, through):
    small = make_small(**({"fsync": True} if through else {}))
    tool = small.tool("s")
    keys = small.fill(tool, 4)
    tool("demote", keys[0])
    os.sync()
    small.disk.fail_writes(True)
    code, text = refused(tool, "demote", keys[1])
    assert code == EIO and small.disk.path in text, text
    assert tool("locate", keys[1]) == ["memory"]
    assert tool.code("evict", 64 * MB) in (EIO, ENOSPC)
    small.all_same(tool, keys)
    assert len(small.disk.files()) == 1, "no half-made file is left"
    tool("put", "k9", SIZE, 10)  # what needs no disk goes on
    small.disk.fail_writes(False)
    tool("demote", keys[1])
    small.all_same(tool, keys + ["k9"])


def test_a_read_error_is_said_and_is_no_damage(make_small):
    small = make_small()
    tool, other = small.tool("s"), small.tool("o")
    keys = small.fill(tool, 4)
    ticket, = tool("handoff", keys[0], 60000)
    other("adopt", keys[0], ticket)
    for key in keys[:2]:
        tool("demote", key)
    file = small.disk.files()
    small.disk.fail_reads(True)
    for who, key in ((tool, keys[0]), (other, keys[0]), (tool, keys[1])):
        code, text = refused(who, "get", key, SIZE, 1)
        assert code == EIO and any(name in text for name in file), text
        assert who("locate", key) == ["tier"] and who.code("put", key, 10, 1) == EEXIST
    small.all_same(tool, keys[2:])
    assert tool("prefetch", 0, keys[0], keys[2]) == ["1", str(-EIO), "0"]
    small.disk.fail_reads(False)
    small.all_same(tool, keys)
    assert other.same(keys[0], SIZE, 1)


def test_a_disk_that_is_not_mounted_takes_nothing(make_small):
    small = make_small()
    tool = small.tool("s", "keep")
    keys = small.fill(tool, 3)
    tool("demote", keys[0])
    tool.kill()
    small.disk.unmount()
    again = small.tool("s", "adopt")
    code, text = refused(again, "get", keys[0], SIZE, 1)
    assert code == EIO and small.disk.path in text and "mounted" in text, text
    assert again("locate", keys[0]) == ["tier"]
    code, text = refused(again, "demote", keys[1])
    assert small.disk.path in text and "mounted" in text, text
    assert os.listdir(small.disk.path) == [], "nothing is written below the mount point"
    small.all_same(again, keys[1:])
    small.disk.mount()
    small.all_same(again, keys)
    again("demote", keys[1])
    small.all_same(again, keys)


# -- and all go on


def test_stores_that_die_on_a_full_disk_leave_nothing(make_small):
    small = make_small(size="48m")
    tools = [small.tool(f"s{i}") for i in range(3)]
    for i, tool in enumerate(tools):
        for k in range(9):
            tool.code("put", f"k{k}", SIZE, 100 * i + k + 1)
    for tool in tools:
        tool.send("churn", 1500, 7, "tier")
    tools[0].kill()
    for tool in tools[1:]:
        _, _, n_other, n_wrong = map(int, tool.receive())
        assert (n_other, n_wrong) == (0, 0)
    for i, tool in enumerate(tools[1:], 1):
        for k in range(9):
            if tool("contains", f"k{k}") == ["1"]:
                assert tool.same(f"k{k}", SIZE, 100 * i + k + 1)
    small.tool()("gc")
    assert small.books_close()
    assert int(tools[1]("tier_info")[3]) == 0
