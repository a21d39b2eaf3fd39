# SPDX-License-Identifier: Apache-2.0
"""Tickets, and objects going from store to store and from process to process."""

import errno
import multiprocessing
import os
import pickle
import pwd

import numpy as np
import pytest

import shmstore
from conftest import run_child


@pytest.mark.usefixtures("files")
def test_ticket_is_the_triplet(store):
    store["k"] = np.arange(100000)
    ticket = store.handoff("k")
    path, header_size, buffer_size = ticket
    assert (ticket.path, ticket.header_size, ticket.buffer_size) == (path, header_size, buffer_size)
    assert os.path.isabs(path) and os.stat(path).st_size == header_size + buffer_size
    assert buffer_size == 800000
    with pytest.raises(AttributeError):
        ticket.path = "x"
    assert isinstance(hash(ticket), int)
    for again in (shmstore.Ticket.parse(str(ticket)), pickle.loads(pickle.dumps(ticket)),
                  shmstore.Ticket(*ticket)):
        assert again == ticket and type(again) is shmstore.Ticket
    assert "\n" not in str(ticket) and str(ticket).isprintable()


def test_ticket_of_a_strange_path():
    ticket = shmstore.Ticket(b"/a b\n\xff\xc3\xbc", 1, 2**64 - 1)
    assert (shmstore.Ticket.parse(str(ticket)) == ticket and
            os.fsencode(ticket.path) == b"/a b\n\xff\xc3\xbc")


@pytest.mark.parametrize("text", ["", "x", "1 2 3", "\0", "x" * 20000, "ü"])
def test_text_that_is_no_ticket(text):
    with pytest.raises(shmstore.Error) as caught:
        shmstore.Ticket.parse(text)
    assert caught.value.errno == errno.EBADMSG


def test_bad_tickets(store, place):
    for arguments in ((5, 1, 1), ("/x", "1", 1), ("/x", 1, 1.0)):
        with pytest.raises(TypeError):
            shmstore.Ticket(*arguments)
    for arguments in (("/x", -1, 1), ("/x", 1, 1 << 64)):
        with pytest.raises(ValueError):
            shmstore.Ticket(*arguments)
    with pytest.raises(TypeError):
        shmstore.Ticket.parse(5)
    store["k"] = b"x" * 100000
    good = store.handoff("k")
    cases = {
        shmstore.Ticket("/etc/passwd", *good[1:]): {errno.EPERM},
        shmstore.Ticket(f"{place.path}/../{os.path.basename(place.path)}/x", *good[1:]):
            {errno.EPERM},
        shmstore.Ticket(os.path.join(store.path, ".store"), *good[1:]): {errno.EPERM},
        shmstore.Ticket(good.path, good.header_size + 1, good.buffer_size): {errno.EBADMSG},
        shmstore.Ticket(good.path, good.header_size, good.buffer_size - 1): {errno.EBADMSG},
        shmstore.Ticket(good.path, 2**64 - 1, 2): {errno.EBADMSG},
        shmstore.Ticket("relative", *good[1:]): {errno.EPERM, errno.EINVAL},
        shmstore.Ticket("/" + "x" * 5000, *good[1:]): {errno.EINVAL},
    }
    for ticket, codes in cases.items():
        with pytest.raises(shmstore.Error) as caught:
            store.adopt("l", ticket)
            pytest.fail(f"adopted {ticket}")
        assert caught.value.errno in codes, ticket
    with pytest.raises(ValueError):
        store.adopt("l", shmstore.Ticket("/x\0y", 1, 1))
    assert list(store) == ["k"]
    store.adopt("l", good, verify=True)


@pytest.mark.usefixtures("files")
def test_adopt_copies_nothing(store, other):
    value = np.arange(100000)
    store["x"] = value
    other.adopt("y", store.handoff("x"))
    other.adopt("z", str(store.handoff("x")))
    (inode,) = {o.inode for s in (store, other) for o in s.objects()}
    assert inode and {o.links for o in other.objects()} == {3}
    assert (other["y"] == value).all() and list(sorted(other)) == ["y", "z"]


def test_a_ticket_is_good_once(store, other):
    store["x"] = 1
    ticket = store.handoff("x")
    other.adopt("y", ticket)
    with pytest.raises(shmstore.Error) as caught:
        other.adopt("z", ticket)
    assert caught.value.errno == errno.ESTALE and "new ticket" in str(caught.value)


def test_key_held(store, other):
    store["x"] = 1
    other["x"] = 2
    with pytest.raises(shmstore.Error) as caught:
        other.adopt("x", store.handoff("x"))
    assert caught.value.errno == errno.EEXIST and other["x"] == 2
    other.adopt("x", store.handoff("x"), replace=True)
    assert other["x"] == 1
    other.adopt("x", store.handoff("x"))  # this very object: held already


def test_lease(store, other):
    with pytest.raises(KeyError):
        store.handoff("missing")
    store["x"] = 1
    for lease in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="lease"):
            store.handoff("x", lease=lease)
    with pytest.raises(TypeError):
        store.handoff("x", lease="long")
    with pytest.raises((OverflowError, ValueError)):
        store.handoff("x", lease=float("inf"))
    with pytest.raises(shmstore.Error) as caught:
        store.handoff("x", lease=1e12)
    assert caught.value.errno == errno.EINVAL
    ticket = store.handoff("x", lease=0.001)
    stale = False
    while not stale:  # it ends soon; until then the adoption is good and takes a ticket
        try:
            other.adopt("x", ticket, replace=True)
        except shmstore.Error as error:
            assert error.errno == errno.ESTALE
            stale = True
        else:
            ticket = store.handoff("x", lease=0.001)


def test_donor_may_delete_and_close(partition, store):
    donor = partition.open("donor")
    donor["x"] = [1, 2]
    ticket = donor.handoff("x")
    del donor["x"]
    donor.close()
    store.adopt("x", ticket)
    assert store["x"] == [1, 2]


def test_ticket_goes_to_another_program(partition, store):
    store["x"] = np.arange(100000)
    out = run_child(
        "import shmstore, sys\n"
        "with shmstore.Partition(sys.argv[1]).open('child') as s:\n"
        "    s.adopt('mine', sys.argv[2])\n"
        "    print(s['mine'].sum(), s.get('mine', cow=True).flags.writeable)\n",
        partition.path,
        str(store.handoff("x")),
    )
    assert out.split() == [str(np.arange(100000).sum()), "True"]


def square(partition, name, tickets, results):
    with partition.open(name) as store:
        while (ticket := tickets.get()) is not None:
            store.adopt("in", ticket, replace=True)
            value = store.get("in", cow=True)
            value **= 2
            store["out"] = value
            results.put((name, store.handoff("out")))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_hand_on(partition, store, method):
    context = multiprocessing.get_context(method)
    tickets, results = context.Queue(), context.Queue()
    processes = [
        context.Process(target=square, args=(partition, f"{method}-{i}", tickets, results),
                        daemon=True) for i in range(2)
    ]
    for process in processes:
        process.start()
    n = 20
    for i in range(n):
        store["in"] = np.full(10000 + i, i)
        tickets.put(store.handoff("in", lease=300))
    sums = []
    for i in range(n):
        _, ticket = results.get(timeout=60)
        store.adopt("out", ticket, replace=True)
        sums.append(int(store["out"].sum()))
    for _ in processes:
        tickets.put(None)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(sums) == sorted((10000 + i) * i * i for i in range(n))
    assert [s.name for s in partition.stores()] == ["main"]
    assert partition.usage().n_leases == 0


def test_handoff_to_our_own_user_is_a_handoff(partition):
    with partition.open("a") as a, partition.open("b") as b:
        a["k"] = np.arange(1000)
        for user in (os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name):
            b.adopt("k", a.handoff("k", user=user), replace=True)
            assert (b["k"] == np.arange(1000)).all()


@pytest.mark.parametrize(("user", "kind"), [("no-such-user-here", ValueError), (-1, OverflowError),
                                            (2**32 - 1, OverflowError),
                                            (2**70, OverflowError), (1.5, TypeError)])
def test_handoff_to_what_is_no_user(store, user, kind):
    store["k"] = b"x"
    with pytest.raises(kind):
        store.handoff("k", user=user)


def test_handoff_to_another_user_without_a_daemon(monkeypatch, tmp_path, partition):
    monkeypatch.setenv("SHMSTORE_SOCKET", str(tmp_path / "none"))
    with partition.open("a") as a:
        a["k"] = b"x"
        with pytest.raises(shmstore.Error) as caught:
            a.handoff("k", user=os.geteuid() + 1)
        assert caught.value.errno == errno.EPERM
        assert os.listdir(os.path.join(a.path, "handoff")) == []
