# SPDX-License-Identifier: Apache-2.0
"""The disk tier between processes: one object with names in several stores is demoted for all and
promoted once for all; deaths at any time; handles that only look; a host without a daemon.

Objects in the tier are seen here by their file names. Every test ends with a partition and
a disk that are empty again.
"""
import os
import signal
import time
from errno import EIO, ENOENT, ENOSPC, EPERM
from random import Random

import pytest
from fixture import clusters
from tiered import Tiered, give, inode, read_from_disk, share, where

MB = 1 << 20


@pytest.fixture
def make_tiered():
    with clusters(Tiered) as make:
        yield make


@pytest.fixture
def tiered(make_tiered):
    return make_tiered()


# -- one object of several stores


def test_demoted_for_all_and_promoted_once_for_all(tiered):
    tools = [tiered.tool(f"s{i}") for i in range(5)]
    share(tools, "k", 16 * MB, 1)
    tools[3]("demote", "k")
    assert where(tools, "k") == ["tier"] * 5
    assert len(tiered.disk.files()) == 1 and len(tiered.anchors()) == 1
    if tiered.place.mounted:
        assert tiered.place.used() < MB
    before = read_from_disk(tools)
    for tool in tools:
        assert tool.same("k", 16 * MB, 1)
    assert read_from_disk(tools) - before < 17 * MB
    assert where(tools, "k") == ["memory"] * 5
    assert len({inode(tiered, f"s{i}", "k") for i in range(5)}) == 1
    if tiered.place.mounted:
        assert tiered.place.used() < 17 * MB
    tools[0]("demote", "k")  # the copy is good still
    assert where(tools, "k") == ["tier"] * 5 and len(tiered.disk.files()) == 1
    tiered.books_close()


def test_many_at_once_read_it_once(tiered):
    tools = [tiered.tool(f"s{i}") for i in range(6)]
    share(tools, "k", 24 * MB, 1)
    for _ in range(5):
        tools[0]("demote", "k")
        before = read_from_disk(tools)
        for tool in tools:
            tool.send("get", "k", 24 * MB, 1)
        assert [tool.receive() for tool in tools] == [["same"]] * 6
        assert read_from_disk(tools) - before < 26 * MB
        assert len({inode(tiered, f"s{i}", "k") for i in range(6)}) == 1
        if tiered.place.mounted:
            assert tiered.place.used() < 26 * MB


def test_demoted_by_several_at_once(tiered):
    tools = [tiered.tool(f"s{i}") for i in range(4)]
    share(tools, "k", 4 * MB, 1)
    for _ in range(10):
        for tool in tools:
            tool.send("demote", "k")
        for tool in tools:
            tool.receive()
        assert where(tools, "k") == ["tier"] * 4 and len(tiered.disk.files()) == 1
        for tool in tools[:2]:
            assert tool.same("k", 4 * MB, 1)


def test_deleted_by_one_stays_for_the_others(tiered):
    a, b, c = (tiered.tool(name) for name in "abc")
    share([a, b, c], "k", 2 * MB, 1)
    a("demote", "k")
    a("delete", "k")
    assert b.same("k", 2 * MB, 1)
    b("delete", "k")
    assert where([a, b, c], "k") == ["nowhere", "nowhere", "tier"]
    assert len(tiered.disk.files()) == 1
    assert c.same("k", 2 * MB, 1)
    c("delete", "k")
    assert tiered.disk.files() == [] and tiered.anchors() == [] and tiered.residents() == []
    if tiered.place.mounted:
        assert tiered.books_close()["linked"] < MB


def test_views_of_others_stay_while_it_is_demoted(tiered):
    a, b = tiered.tool("a"), tiered.tool("b")
    share([a, b], "k", 3 * MB, 1)
    b("hold", "v", "k")
    a("demote", "k")
    assert where([a, b], "k") == ["tier", "tier"]
    assert b("check", "v", 3 * MB, 1) == ["same"]
    for seed in range(5):
        a("put", "n", 3 * MB, 100 + seed)
        a("delete", "n")
        assert b("check", "v", 3 * MB, 1) == ["same"]
    before = read_from_disk([a])
    assert a.same("k", 3 * MB, 1)
    assert read_from_disk([a]) - before < MB  # it was in memory anyway
    tiered.books_close()


def test_handed_on_as_it_is(tiered):
    donor, receiver = tiered.tool("donor"), tiered.tool("receiver")
    donor("put", "k", 5 * MB, 1)
    donor("demote", "k")
    give(donor, receiver, "k", "as_is")
    assert where([donor, receiver], "k") == ["tier", "tier"]
    donor.kill()
    receiver("gc")
    assert len(tiered.disk.files()) == 1
    assert receiver.same("k", 5 * MB, 1)


def test_ring_of_processes_that_demote_and_die(tiered):
    """An object goes round through the tier; who had it last is killed and comes back. It is
    never lost and never wrong."""
    tools = [tiered.tool(f"s{i}") for i in range(4)]
    tools[0]("put", "k", 3 * MB, 9)
    for turn in range(24):
        here, there = turn % 4, (turn + 1) % 4
        if turn % 3 != 2:
            tools[here]("demote", "k")
        ticket, = tools[here]("handoff", "k", 60000, *(["as_is"] if turn % 2 else []))
        tools[here].kill()
        tools[there]("adopt", "k", ticket)
        assert tools[there].same("k", 3 * MB, 9)
        tools[here] = tiered.tool(f"s{here}")
        assert tools[here].list() == []
        assert len(tiered.disk.files()) <= 1
    assert tiered.books_close()["objects"] == 1


# -- deaths


def test_dead_stores_tier_files_go_and_others_stay(tiered):
    dead, other = tiered.tool("dead"), tiered.tool("other")
    for i in range(4):
        dead("put", f"k{i}", MB, i)
        dead("demote", f"k{i}")
    dead("promote", "k1")
    give(dead, other, "k2", "as_is")
    dead.kill()
    assert len(tiered.disk.files()) == 4
    other("gc")
    assert len(tiered.disk.files()) == 1 and len(tiered.anchors()) == 1
    assert other.same("k2", MB, 2)


def test_kept_store_is_had_again_with_its_tier(tiered):
    tool = tiered.tool("kept", "keep")
    for i in range(4):
        tool("put", f"k{i}", MB, i)
    for turn in range(4):
        tool("demote", f"k{turn}")
        tool.kill()
        tiered.tool()("gc")
        tool = tiered.tool("kept", "keep")
        assert tool.list() == [f"k{i}" for i in range(4)]
        assert [tool("locate", f"k{i}")[0] for i in range(4)].count("tier") == 1
        for i in range(4):
            assert tool.same(f"k{i}", MB, i)
    assert len(tiered.disk.files()) == 4
    tool("close")
    tool("open", "kept", "fresh")
    assert tool.list() == [] and tiered.disk.files() == []


def test_killed_while_it_moves_objects(tiered):
    """At random moments of demotes and promotes (every system call is tests/crash/crash's)."""
    looker = tiered.tool("looker")
    for turn in range(12):
        tool = tiered.tool("mover", "keep")
        if turn == 0:
            for i in range(6):
                tool("put", f"k{i}", 8 * MB, i)
            give(tool, looker, "k0")
        for i in range(6):
            tool.send("demote" if turn % 2 == 0 else "promote", f"k{i}")
        deadline = time.monotonic() + turn * 0.004
        while time.monotonic() < deadline:
            pass
        tool.kill()
        assert looker.same("k0", 8 * MB, 0)
    looker("gc")
    tool = tiered.tool("mover", "keep")
    assert tool.list() == [f"k{i}" for i in range(6)]
    for i in range(6):
        assert tool.same(f"k{i}", 8 * MB, i)
    assert len(tiered.disk.files()) <= 6
    tool("close")
    tool("open", "mover", "fresh")


def test_stopped_process_holds_up_nobody(tiered):
    stopped, other = tiered.tool("stopped"), tiered.tool("other")
    share([stopped, other], "k", 2 * MB, 1)
    os.kill(stopped.pid, signal.SIGSTOP)
    other("demote", "k")
    assert other.same("k", 2 * MB, 1)
    other("demote", "k")
    os.kill(stopped.pid, signal.SIGCONT)
    assert where([stopped, other], "k") == ["tier", "tier"]
    assert stopped.same("k", 2 * MB, 1)


# -- handles that only look


def test_readers_see_demoted_objects_and_leave_them(tiered):
    owner = tiered.tool("owner")
    reader = tiered.tool("owner", "readonly")
    for key, seed in (("a", 1), ("b", 2)):
        owner("put", key, 3 * MB, seed)
        owner("demote", key)
    assert reader.list() == ["a", "b"]
    assert reader.same("a", 3 * MB, 1)
    assert where([owner, reader], "a") == ["tier", "tier"]
    reader("hold", "v", "a")
    assert owner.same("a", 3 * MB, 1)
    owner("delete", "a")
    assert reader("check", "v", 3 * MB, 1) == ["same"]
    assert reader.code("get", "a", 3 * MB, 1) == ENOENT
    owner("promote", "b")
    assert reader.same("b", 3 * MB, 2)
    reader("drop", "v")


def test_handles_that_only_look_move_objects_where_they_are_asked_to(tiered):
    owner = tiered.tool("owner")
    mover = tiered.tool("owner", "readonly")
    owner("put", "k", 3 * MB, 1)
    for _ in range(3):
        mover("demote", "k")
        assert where([owner, mover], "k") == ["tier", "tier"]
        mover("promote", "k")
        assert where([owner, mover], "k") == ["memory", "memory"]
        assert owner.same("k", 3 * MB, 1)
    mover("demote", "k")
    assert owner.usage()["linked"] < MB
    assert owner.same("k", 3 * MB, 1)
    owner("put", "k", 3 * MB, 2, "replace")
    assert mover.same("k", 3 * MB, 2)
    assert mover.code("pin", "k") == EPERM
    tiered.books_close()


# -- a host without a daemon


def test_puts_go_on_where_the_partition_is_full(make_tiered):
    cluster = make_tiered(size="64m")
    if not cluster.place.mounted:
        pytest.skip("needs a mount of its own")
    a, b = cluster.tool("a", "daemon=off"), cluster.tool("b", "daemon=off")
    for i in range(20):
        a("put", f"k{i}", 5 * MB, i)
        b("put", f"k{i}", 5 * MB, 100 + i)
    assert len(cluster.disk.files()) > 20
    for i in range(20):
        assert a.same(f"k{i}", 5 * MB, i)
        assert b.same(f"k{i}", 5 * MB, 100 + i)
    cluster.books_close()


def test_puts_of_many_at_once_where_the_partition_is_full(make_tiered):
    """One of them evicts at a time; the others wait for it, and none is refused for want of memory
    that an eviction is just making."""
    cluster = make_tiered(size="64m")
    if not cluster.place.mounted:
        pytest.skip("needs a mount of its own")
    tools = [cluster.tool(f"s{i}", "daemon=off") for i in range(4)]
    for i in range(12):
        for n, tool in enumerate(tools):
            tool.send("put", f"k{i}", 5 * MB, 100 * n + i)
        for tool in tools:
            tool.receive()
    for i in range(12):
        for n, tool in enumerate(tools):
            tool.send("get", f"k{i}", 5 * MB, 100 * n + i)
        assert [tool.receive() for tool in tools] == [["same"]] * 4
    cluster.books_close()


def test_without_leave_to_evict_a_full_partition_is_full(make_tiered):
    cluster = make_tiered(size="64m")
    if not cluster.place.mounted:
        pytest.skip("needs a mount of its own")
    tool = cluster.tool("a", "daemon=off")
    codes = [tool.code("put", f"k{i}", 5 * MB, i, "noevict") for i in range(20)]
    full = codes.index(ENOSPC)
    assert 8 < full < 13 and codes == [0] * full + [ENOSPC] * (20 - full)
    assert cluster.disk.files() == []
    tool("put", "more", 5 * MB, 50)
    assert cluster.disk.files() != []
    for i in range(full):
        assert tool.same(f"k{i}", 5 * MB, i)


def test_pinned_objects_stay_in_memory(make_tiered):
    cluster = make_tiered(size="64m")
    if not cluster.place.mounted:
        pytest.skip("needs a mount of its own")
    tool = cluster.tool("a", "daemon=off")
    for i in range(4):
        tool("put", f"pinned{i}", 5 * MB, i, "pin")
    for i in range(20):
        tool("put", f"k{i}", 5 * MB, 100 + i)
    for i in range(20):
        assert tool.same(f"k{i}", 5 * MB, 100 + i)
    assert [tool("locate", f"pinned{i}")[0] for i in range(4)] == ["memory"] * 4
    codes = [tool.code("put", f"more{i}", 5 * MB, i, "pin") for i in range(12)]
    assert codes[0] == 0 and codes[-1] == ENOSPC
    for i in range(codes.index(ENOSPC)):
        assert tool.same(f"more{i}", 5 * MB, i)


def test_limit_of_the_tier_is_kept_and_said(make_tiered):
    cluster = make_tiered(size="64m", max=20 * MB)
    if not cluster.place.mounted:
        pytest.skip("needs a mount of its own")
    tool = cluster.tool("a", "daemon=off")
    codes = [tool.code("put", f"k{i}", 5 * MB, i) for i in range(25)]
    full = codes.index(ENOSPC)
    assert full >= 14, codes
    assert sum(os.stat(path).st_blocks * 512 for path in cluster.disk.files()) <= 20 * MB
    for i in range(full):
        assert tool.same(f"k{i}", 5 * MB, i), i
    assert sum(os.stat(path).st_blocks * 512 for path in cluster.disk.files()) <= 20 * MB


def test_everything_at_once(make_tiered):
    """Stores that put, hand on, demote and promote at random on a partition with too little room,
    while others evict and collect, and one of them is killed now and then."""
    cluster = make_tiered(size="48m")
    keeper = cluster.tool()
    tools = {f"s{i}": cluster.tool(f"s{i}", "daemon=off") for i in range(4)}
    for turn in range(6):
        for i, tool in enumerate(tools.values()):
            tool.send("churn", 700, 1000 * turn + i + 1, "tier")
        for _ in range(10):
            assert keeper.code("evict", 4 * MB) in (0, ENOSPC)
            keeper("gc")
        victim = f"s{turn % 4}"
        tools[victim].kill()
        for name, tool in tools.items():
            if name != victim:
                n_ok, n_refused, n_other, n_wrong = map(int, tool.receive())
                assert n_ok > 10 and n_other == 0 and n_wrong == 0, (
                    (name, n_ok, n_refused, n_other, n_wrong))
        tools[victim] = cluster.tool(victim, "daemon=off")
        cluster.books_close()
        for tool in tools.values():  # keys are put anew each turn
            for key in tool.list():
                tool("delete", key)
    assert cluster.disk.files() == []


@pytest.mark.parametrize("seed", range(4))
def test_shared_objects_at_random(make_tiered, seed):
    """Four stores share objects, each step all of them do something to the same ones at the same
    time; a model says what each must hold."""
    random = Random(seed)
    cluster = make_tiered(size="256m")
    tools = [cluster.tool(f"s{i}", "daemon=off") for i in range(4)]
    held = [{} for _ in tools]  # key -> (size, seed), of each store
    for step in range(150):
        donor, receiver = random.sample(range(4), 2)
        if random.random() < 0.3 or not held[donor]:
            key, size = f"k{random.randrange(6)}", random.choice((100, 70000, 1 << 20, 9 << 20))
            tools[donor]("put", key, size, step, "replace")
            held[donor][key] = (size, step)
        key = random.choice(list(held[donor]))
        ticket, = tools[donor]("handoff", key, 60000, *random.choice((["as_is"], [])))
        if random.random() < 0.2:
            tools[donor]("delete", key)
            tools[receiver]("adopt", key, ticket, "replace")
            held[receiver][key] = held[donor].pop(key)
        else:
            tools[receiver]("adopt", key, ticket, "replace")
            held[receiver][key] = held[donor][key]
        key = random.choice(list(held[receiver]))
        asked = []
        for tool, keys in zip(tools, held):
            word = random.choice(("get", "demote", "demote", "promote", "evict", "gc"))
            if word in ("evict", "gc"):
                tool.send(word, *([8 * MB] if word == "evict" else []))
            else:
                tool.send(word, key, *(keys.get(key, (1, 1)) if word == "get" else ()))
            asked.append(word)
        for tool, keys, word in zip(tools, held, asked):
            try:
                answer = tool.receive()
            except OSError as error:
                allowed = {ENOSPC} if word == "evict" else set() if key in keys else {ENOENT}
                assert error.errno in allowed | ({EPERM} if word == "demote" else set()), (
                    (step, word, error))
            else:
                assert word != "get" or answer == ["same"], (step, key)
    for tool, keys in zip(tools, held):
        assert tool.list() == sorted(keys)
        for key, (size, made) in keys.items():
            assert tool.same(key, size, made), key
    cluster.books_close()


def test_disk_that_goes_away_and_comes_back(tiered):
    tool = tiered.tool("a")
    tool("put", "k", 2 * MB, 1)
    tool("put", "l", 2 * MB, 2)
    tool("demote", "k")
    fresh = tiered.disk.path + "-away"
    os.rename(tiered.disk.path, fresh)
    try:
        other = tiered.tool("b")  # a process that comes while it is away
        other("put", "k", 2 * MB, 3)
        assert other.same("k", 2 * MB, 3)
        assert other.code("demote", "k") == ENOENT
        reader = tiered.tool("a", "readonly")
        assert reader.list() == ["k", "l"]
        assert reader.code("get", "k", 2 * MB, 1) in (EIO, ENOENT)
        reader("gc")
    finally:
        os.rename(fresh, tiered.disk.path)
    assert tool.same("k", 2 * MB, 1)
    assert reader.same("k", 2 * MB, 1)
    other("demote", "k")
    assert other.same("k", 2 * MB, 3)
