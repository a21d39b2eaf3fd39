# SPDX-License-Identifier: Apache-2.0
"""Stores of many processes on one partition: sharing, handing on, dying, coming back."""
import os
import time
from errno import EBUSY, EEXIST, ENOENT, ENOSPC, EPERM, ESTALE

import pytest
from fixture import NOBODY, ROOT

MB = 1 << 20
needs_root = pytest.mark.skipif(not ROOT,
                                reason="needs root for a file system or a user of its own")


def pass_on(donor, receiver, key, other=None, lease=60000):
    ticket, = donor("handoff", key, lease)
    receiver("adopt", other or key, ticket)


def test_broadcast_takes_the_memory_once(cluster):
    donor = cluster.tool("donor")
    before = cluster.place.used()
    donor("put", "data", 32 * MB, 1)
    receivers = [cluster.tool(f"r{i}") for i in range(8)]
    for receiver in receivers:
        pass_on(donor, receiver, "data")
        receiver("hold", "v", "data")
        receiver("check", "v", 32 * MB, 1)
    if cluster.place.mounted:
        assert cluster.place.used() - before < 33 * MB
    usages = [tool.usage() for tool in [donor, *receivers]]
    assert all(usage["uss"] == 0 for usage in usages)
    assert abs(sum(usage["pss"] for usage in usages) - usages[0]["linked"]) <= 9
    cluster.books_close()
    for receiver in receivers:
        assert receiver("check", "v", 32 * MB, 1) == ["same"]


def test_object_outlives_its_donor_in_every_way(cluster):
    receiver = cluster.tool("receiver")
    for how in ("delete", "close", "kill", "exit"):
        donor = cluster.tool("donor")
        donor("put", how, 3 * MB, 7)
        ticket, = donor("handoff", how, 60000)
        if how == "kill":
            donor.kill()
        elif how == "exit":
            donor.send("exit")
            donor.finish()
        elif how == "close":
            donor.end()
        else:
            donor("delete", how)
        receiver("gc")
        receiver("adopt", how, ticket)
        assert receiver.same(how, 3 * MB, 7)
        if how == "delete":
            donor.end()
    assert receiver.list() == ["close", "delete", "exit", "kill"]


def test_killed_receivers_leave_the_donors_object(cluster):
    donor = cluster.tool("donor")
    donor("put", "k", 3 * MB, 1)
    for i in range(5):
        receiver = cluster.tool("receiver")
        pass_on(donor, receiver, "k")
        receiver("hold", "v", "k")
        receiver.kill()
        assert donor.same("k", 3 * MB, 1)
        donor("gc")
        assert donor.books()["stores"] == 1
    assert cluster.books_close()["objects"] == 1


def test_killed_donor_between_handoff_and_adopt_of_many(cluster):
    receivers = [cluster.tool(f"r{i}") for i in range(4)]
    donor = cluster.tool("donor")
    donor("put", "k", 5 * MB, 3)
    tickets = [donor("handoff", "k", 60000)[0] for _ in receivers]
    donor.kill()
    for receiver, ticket in zip(receivers, tickets):
        receiver("adopt", "k", ticket)
        assert receiver.code("adopt", "again", ticket) == ESTALE
    for receiver in receivers:
        assert receiver.same("k", 5 * MB, 3)
    cluster.books_close()


def test_store_is_had_again_after_kill(cluster):
    first = cluster.tool("name")
    first("put", "k", MB, 1)
    second = cluster.tool()
    assert second.code("open", "name") == EBUSY
    first.kill()
    second("open", "name")
    assert second.list() == []
    second("put", "k", MB, 2)
    second.kill()
    third = cluster.tool("name", "adopt")
    assert third.same("k", MB, 2)


def test_kept_store_survives_kills(cluster):
    tool = cluster.tool("kept", "keep")
    tool("put", "k0", MB, 0)
    for i in range(1, 6):
        tool.kill()
        tool = cluster.tool("kept", "keep")
        assert tool.list() == [f"k{n}" for n in range(i)]
        for n in range(i):
            assert tool.same(f"k{n}", MB, n)
        tool("put", f"k{i}", MB, i)
        tool("gc")
    tool.end()
    looker = cluster.tool("kept", "readonly")
    assert looker.same("k3", MB, 3)
    assert looker.code("delete", "k3") == EPERM
    looker("close")
    looker("open", "kept", "fresh")
    assert looker.list() == []


def test_lock_is_not_kept_by_a_forked_child(cluster):
    owner = cluster.tool("name")
    owner("put", "k", MB, 1)
    owner("hold", "v", "k")
    child = cluster.fork(owner)
    owner.kill()
    other = cluster.tool("name")
    assert other.list() == []
    # The child still maps the view: a ghost, which is in the books with its
    # pid and goes with the child.
    if cluster.place.mounted:
        assert cluster.books_close()["ghosts"] >= MB
    cluster.kill_child(child)


def test_views_outlive_everything(cluster):
    donor, holder = cluster.tool("donor"), cluster.tool("holder")
    donor("put", "k", 4 * MB, 5)
    pass_on(donor, holder, "k")
    holder("hold", "plain", "k")
    holder("hold", "private", "k", "cow")
    holder("write", "private")
    holder("delete", "k")
    donor("delete", "k")
    for seed in range(10):
        donor("put", "n", 4 * MB - seed * 4096, 100 + seed)
        assert holder("check", "plain", 4 * MB, 5) == ["same"]
        donor("delete", "n")
    donor.kill()
    holder("gc")
    holder("close")
    assert holder("check", "plain", 4 * MB, 5) == ["same"]
    assert holder("check", "private", 4 * MB, 5) == ["DIFFERENT"]
    if cluster.place.mounted:
        assert cluster.books_close()["ghosts"] >= 4 * MB
    holder("drop", "plain")
    holder("drop", "private")


def test_killed_writer_leaves_nothing(cluster):
    for _ in range(3):
        tool = cluster.tool("w")
        tool("create", "k", 30 * MB, 1)
        if cluster.place.mounted:
            assert cluster.books_close()["inflight"] >= 30 * MB
        tool.kill()
        if cluster.place.mounted:
            assert cluster.books_close()["inflight"] == 0
    tool = cluster.tool("w")
    assert tool.list() == []
    tool("create", "k", 3 * MB, 1)
    tool("seal")
    assert tool.same("k", 3 * MB, 1)


def test_expired_lease_is_gone_with_the_next_gc(cluster):
    donor, receiver = cluster.tool("donor"), cluster.tool("receiver")
    donor("put", "k", MB, 1)
    ticket, = donor("handoff", "k", 1)
    donor("delete", "k")
    deadline = time.monotonic() + 10
    while int(receiver("gc")[1]) == 0:
        assert time.monotonic() < deadline
    assert receiver.code("adopt", "k", ticket) == ESTALE
    assert cluster.books_close()["leases"] == 0


def test_addresses_follow_lives(cluster):
    a, b = cluster.tool("a"), cluster.tool("b")
    a("address", "tcp://1.2.3.4:5")
    assert b("peer", "tcp://1.2.3.4:5") == ["a"]
    a.kill()
    assert b.code("peer", "tcp://1.2.3.4:5") == ENOENT
    b("address", "tcp://1.2.3.4:5")
    c = cluster.tool("c")
    assert c("peer", "tcp://1.2.3.4:5") == ["b"]


def test_alias_of_a_view_costs_nothing(cluster):
    tool = cluster.tool("a")
    tool("put", "k", 16 * MB, 1)
    tool("hold", "v", "k", "cow")
    used = cluster.place.used()
    tool("alias", "v", "second")
    if cluster.place.mounted:
        assert cluster.place.used() == used
    tool("write", "v")
    tool("alias", "v", "third")
    assert tool.same("second", 16 * MB, 1)
    assert tool("get", "third", 16 * MB, 1) == ["DIFFERENT"]
    tool("delete", "k")
    assert tool.same("second", 16 * MB, 1)


def test_ring_of_processes_with_one_killed_each_round(plain_cluster):
    """An object goes round; who had it last is killed and comes back. It is
    never lost and never wrong."""
    cluster = plain_cluster
    tools = [cluster.tool(f"s{i}") for i in range(5)]
    tools[0]("put", "k", 2 * MB, 9)
    for turn in range(40):
        here, there = turn % 5, (turn + 1) % 5
        ticket, = tools[here]("handoff", "k", 60000)
        tools[here].kill()
        tools[there]("adopt", "k", ticket)
        assert tools[there].same("k", 2 * MB, 9)
        tools[here] = cluster.tool(f"s{here}")
        assert tools[here].list() == []
    assert cluster.books_close()["objects"] == 1


@needs_root
def test_full_partition_from_four_processes(make_cluster):
    """10,000 puts that do not fit, 2,500 from each of four processes at once."""
    cluster = make_cluster(size="40m")
    filler = cluster.tool("filler", "norecycle")
    n = 0
    while filler.code("put", f"f{n}", MB, n) == 0:
        n += 1
    assert n > 30
    used = cluster.place.used()
    tools = [cluster.tool(f"t{i}") for i in range(4)]
    for tool in tools:
        tool.send("flood", 2500, 8 * MB)
    for tool in tools:
        assert tool.receive(300) == ["0", "2500", "0"]
        assert tool.list() == []
        assert tool.code("put", "x", 8 * MB, 1) == ENOSPC
    books = cluster.books_close()
    assert books["objects"] == n
    assert cluster.place.used() - used < 64 * 4096
    for i in range(n):
        assert filler.same(f"f{i}", MB, i)
    filler("delete", "f0")
    filler("delete", "f1")
    tools[0]("put", "x", MB, 5)
    assert tools[0].same("x", MB, 5)


@needs_root
def test_nearly_full_partition_with_recycling(make_cluster):
    """Four processes that put and delete on a partition that holds only some of it: success
    or ENOSPC, nothing else."""
    cluster = make_cluster(size="24m")
    tools = [cluster.tool(f"t{i}") for i in range(4)]
    for tool in tools:
        tool.send("flood", 150, 7 * MB)
    done = [list(map(int, tool.receive(300))) for tool in tools]
    assert all(other == 0 for _, _, other in done)
    assert sum(ok for ok, _, _ in done) > 0
    cluster.books_close()


@needs_root
def test_other_users_are_kept_out(make_cluster):
    """A private partition is nobody else's; on a shared one each has what is his."""
    cluster = make_cluster()
    owner = cluster.tool("mine")
    owner("put", "k", MB, 1)
    with pytest.raises(Exception):
        cluster.tool("theirs", prefix=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                                       "--clear-groups"))
    for path in ("", "stores", "peers"):
        os.chmod(os.path.join(cluster.place.path, path), 0o1777)
    os.chmod(os.path.join(cluster.place.path, ".shmstore"), 0o444)
    other = cluster.tool("theirs", prefix=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                                           "--clear-groups"))
    other("put", "k", MB, 2)
    assert other.code("open", "mine") == EPERM
    ticket, = owner("handoff", "k", 60000)
    assert other.code("adopt", "x", ticket) == EPERM
    other("gc")
    assert owner.same("k", MB, 1)
    owner("adopt", "y", ticket)
    other.kill()
    owner("gc")


def test_two_partitions_are_apart(make_cluster):
    one, two = make_cluster(), make_cluster()
    a, b = one.tool("a"), two.tool("a")
    a("put", "k", MB, 1)
    ticket, = a("handoff", "k", 60000)
    assert b.code("adopt", "k", ticket) == EPERM
    a("adopt", "l", ticket)
    b("put", "k", MB, 2)
    assert a.same("k", MB, 1) and b.same("k", MB, 2)


def test_many_small_objects(plain_cluster):
    cluster = plain_cluster
    tools = [cluster.tool(f"s{i}") for i in range(4)]
    for tool in tools:
        for i in range(2000):
            tool.send("put", f"k{i}", 100 + i, i)
            tool.receive()
    assert cluster.books_close()["objects"] == 8000
    for tool in tools:
        assert len(tool.list()) == 2000
        for i in range(0, 2000, 37):
            assert tool.same(f"k{i}", 100 + i, i)
        assert tool.code("put", "k5", 1, 1) == EEXIST
