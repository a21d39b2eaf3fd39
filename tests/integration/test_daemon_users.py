# SPDX-License-Identifier: Apache-2.0
"""Three users on one shared partition, and a daemon that carries objects between two of them: what
is meant to work, and what each may try against the others by way of the daemon (docs/security.md).
The third, EVE, is in no rule and means harm. Files and names: test_users_files.py.
"""
import errno
import fcntl
import json
import os
import signal
import stat
import struct
import subprocess
import time

import pytest
from daemon import Wire, wait_for
from fixture import SOURCE, ToolError
from users import ALICE, BOB, EVE, being
from userscene import RULE, SIZE, denied, refused, scene, ticket_path  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


# -- the way it is meant


def test_object_goes_to_another_user(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    for size, seed in ((0, 1), (100, 2), (SIZE, 3), (3 * SIZE + 5, 4)):
        alice("put", "k", size, seed, "checksum")
        ticket, = alice("handoff_to", "k", BOB, 60000)
        assert ticket_path(ticket).startswith(f"{scene.path}/inbox/{BOB}/handoff/")
        assert os.listdir(f"{scene.path}/stores/alice/handoff") == [] and len(scene.inbox(BOB)) == 1
        bob("adopt", "mine", ticket, "verify")
        assert scene.inbox(BOB) == [] and bob.same("mine", size, seed)
        file = os.stat(f"{scene.path}/stores/bob/objects/mine")
        assert file.st_uid == ALICE and file.st_nlink == 2 and file.st_mode & 0o7333 == 0
        alice("delete", "k")
        assert bob.same("mine", size, seed)
        assert bob.code("adopt", "again", ticket) == errno.ESTALE
        bob("delete", "mine")
    for uid, seen in ((0, True), (ALICE, True), (BOB, False), (EVE, False)):
        events = [event for event in scene.wire(uid).query("events")["events"]
                  if event["event"] == "handoff-user"]
        assert bool(events) == seen, (uid, events)
        for event in events:
            assert (event["uid"], event["to_uid"], event["rule"], event["done"]) == (
                ALICE, BOB, "alice-bob", True)


def test_with_no_more_rights_than_the_unit_gives(scene):
    with open(SOURCE / "deploy" / "systemd" / "shmstored.service.in", encoding="utf-8") as file:
        lines = [line for line in file if line.startswith("CapabilityBoundingSet=")]
    names = [f"+{name.removeprefix('CAP_').lower()}" for line in lines
             for name in line.split("=")[1].split()]
    scene.daemon.prefix = ["sh", "-c", 'umask 077; exec "$@"', "sh", "setpriv", "--no-new-privs",
                           "--clear-groups", f"--bounding-set=-all,{','.join(names)}"]
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    second = scene.tool(BOB, "second")
    alice("put", "k", SIZE, 1)
    bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    second("adopt", "k", *bob("handoff", "k", 60000))
    assert second.same("k", SIZE, 1)


def test_receivers_stores_share_it(scene):
    scene.start()
    alice, bob, second = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob"), scene.tool(
        BOB, "second")
    alice("put", "k", SIZE, 1)
    bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    ticket, = bob("handoff", "k", 60000)
    second("adopt", "k", ticket)
    assert bob.same("k", SIZE, 1) and second.same("k", SIZE, 1)
    names = [f"{scene.path}/stores/{store}/objects/k" for store in ("alice", "bob", "second")]
    assert len({os.stat(name).st_ino for name in names}) == 1 and os.stat(names[0]).st_nlink == 3
    # The same object under another key is a copy: the file cannot be linked again.
    bob("hold", "v", "k")
    bob("alias", "v", "copy")
    bob("drop", "v")
    assert (bob.same("copy", SIZE, 1) and os.stat(f"{scene.path}/stores/bob/objects/copy").st_uid ==
            BOB)
    scene.kill()
    assert bob.code("handoff", "k", 60000) == errno.EPERM, "only the daemon can link it"
    assert bob.same("k", SIZE, 1)
    for tool in (alice, bob, second):
        tool.end()
    assert os.listdir(f"{scene.path}/stores") == []


@pytest.fixture
def package():
    """The Python package, where PYTHONPATH names it."""
    return pytest.importorskip("shmstore")


def test_python(package, scene):
    scene.start()
    bob = scene.tool(BOB, "bob")
    with being(ALICE):
        store = package.Partition(scene.path).open("alice")
        try:
            store["x"] = b"text" * 1000
            ticket = store.handoff("x", lease=30.0, user=BOB)
            with pytest.raises(package.Error) as caught:
                store.handoff("x", user=EVE)
            assert caught.value.errno == errno.EPERM
        finally:
            store.close()
    bob("adopt", "x", str(ticket))
    assert bob.list()[-1] == "x"


# -- what no rule allows


def test_no_rule_no_handoff(scene):
    scene.start()
    alice, bob, eve = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob"), scene.tool(EVE, "eve")
    alice("put", "k", SIZE, 1)
    bob("put", "k", SIZE, 1)
    eve("put", "k", SIZE, 1)
    for tool, receiver in ((alice, EVE), (alice, 0), (bob, ALICE), (bob, EVE), (eve, ALICE),
                           (eve, BOB)):
        assert tool.code("handoff_to", "k", receiver, 60000) == errno.EPERM
    for store in ("alice", "bob", "eve"):
        assert os.listdir(f"{scene.path}/stores/{store}/handoff") == []
    assert [scene.inbox(uid) for uid in (0, ALICE, BOB, EVE)] == [[], [], [], []]
    # BOB may not hand a received object to anybody else, rule or not: it is not his.
    bob("adopt", "x", *alice("handoff_to", "k", BOB, 60000))
    assert bob.code("handoff_to", "x", EVE, 60000) == errno.EPERM
    events = [event for event in scene.wire(0).query("events")["events"]
              if event["event"] == "handoff-user"]
    pairs = {(event["uid"], event["to_uid"]) for event in events if not event["done"] and
             event["why"]}
    assert {(ALICE, EVE), (BOB, ALICE), (EVE, BOB)} <= pairs


def test_without_a_daemon(scene):
    scene.start()
    alice = scene.tool(ALICE, "alice")
    alice("put", "k", SIZE, 1)
    scene.kill()
    assert alice.code("handoff_to", "k", BOB, 60000) == errno.EPERM
    assert os.listdir(f"{scene.path}/stores/alice/handoff") == []


def test_daemon_of_an_ordinary_user_carries_nothing(scene):
    os.chown(scene.daemon.directory, ALICE, ALICE)
    scene.daemon.prefix = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"]
    scene.start()
    alice = scene.tool(ALICE, "alice")
    alice("put", "k", SIZE, 1)
    wait_for("registered", lambda: json.dumps(scene.wire(ALICE).query("workers")).count("alice"))
    assert alice.code("handoff_to", "k", BOB, 60000) == errno.EPERM
    assert (os.listdir(f"{scene.path}/stores/alice/handoff") == [] and
            os.listdir(f"{scene.path}/inbox") == [])
    answer = scene.wire(ALICE).query("events")
    assert "does not run as root" in json.dumps(answer)


def test_partition_of_one_user_has_no_others(scene):
    scene.start()
    os.chmod(scene.path, 0o755)
    alice = scene.tool(ALICE, "alice")
    alice("put", "k", SIZE, 1)
    assert alice.code("handoff_to", "k", BOB, 60000) == errno.EPERM
    assert "not shared" in json.dumps(scene.wire(ALICE).query("events"))


def test_lease_of_another_user_is_bounded(scene):
    scene.start()
    alice = scene.tool(ALICE, "alice")
    alice("put", "k", 100, 1)
    assert alice.code("handoff_to", "k", BOB, 86400001) == errno.EINVAL
    alice("handoff_to", "k", BOB, 86400000)
    assert alice.code("handoff_to", "k", BOB, 0) == errno.EINVAL
    assert alice.code("handoff_to", "none", BOB, 1000) == errno.ENOENT


# -- the daemon


def test_daemon_does_nothing_for_others(scene):
    scene.start()
    alice = scene.tool(ALICE, "alice-secret")
    alice("put", "k", SIZE, 1)
    assert scene.register(EVE, "stores/alice-secret") == errno.EPERM
    assert scene.register(EVE, "stores/none") == errno.ENOENT
    scene.forged("of-another-process", pid=alice.pid)
    assert scene.register(EVE, "stores/of-another-process") == errno.EPERM
    eve = scene.wire(EVE)
    assert refused(eve, "GRANT", SIZE, 0, 0, 0, 0) in (errno.EPERM, errno.ENOENT)
    assert refused(eve, "BROKER", BOB, 0,
                   tail=f"{scene.path}/stores/alice-secret/handoff/x") == errno.EPERM
    for key in ("partition.hard=1G", "user.60001.hard=1"):
        assert refused(eve, "SET", 0, tail=key) == errno.EPERM
    assert refused(eve, "REAP", 0, tail=f"{scene.path}/stores/alice-secret") == errno.EPERM
    assert "alice-secret" not in json.dumps(eve.query("workers"))
    assert "alice-secret" in json.dumps(scene.wire(0).query("workers"))
    assert "alice-secret" in json.dumps(scene.wire(ALICE).query("workers"))
    alice.kill()
    assert refused(eve, "REAP", 0, tail=f"{scene.path}/stores/alice-secret") in (
        errno.EPERM, errno.ENOENT)
    scene.alive()


def test_broker_takes_leases_of_the_senders_own_store_only(scene):
    scene.start(rules=RULE.replace("alice-bob", "eve-bob").replace(str(ALICE), str(EVE)))
    alice = scene.tool(ALICE, "alice")
    alice("put", "k", SIZE, 1)
    theirs = ticket_path(*alice("handoff", "k", 60000))
    forged = scene.forged("eve")
    eve = scene.register(EVE, forged.below)
    assert isinstance(eve, Wire), eve
    lease = forged.lease()

    def broker(path, receiver=BOB, lease_ms=0):
        return refused(eve, "BROKER", receiver, lease_ms, tail=path)

    assert broker(theirs) == errno.EPERM
    assert broker(
        f"{forged.path}/handoff/../../alice/handoff/{os.path.basename(theirs)}") == errno.EPERM
    assert broker(lease) == errno.ESTALE
    assert broker(f"{forged.path}/handoff/x") == errno.EPERM
    assert broker(lease, receiver=ALICE) == errno.EPERM, "no rule"
    with being(EVE):
        os.symlink(theirs, lease)
    assert broker(lease) == errno.EBADMSG
    for i, make in enumerate((os.mkfifo, os.mkdir, os.mkfifo)):
        with being(EVE):
            os.rename(lease, f"{forged.path}/was-{i}")
            make(lease)
        assert broker(lease) == errno.EBADMSG
    os.unlink(lease)
    os.link(theirs, lease)  # as root: protected_hardlinks forbids it to EVE
    assert broker(lease) == errno.EPERM
    os.unlink(lease)
    os.link(theirs, f"{forged.path}/objects/k")
    answer = eve.call("BROKER", EVE, 60000, tail=f"{forged.path}/objects/k".encode())
    assert answer.name == "BROKERED", answer
    with being(EVE):
        denied(os.open, answer.text, os.O_RDONLY)  # a name more of what she may not read
    with being(EVE):
        os.rename(f"{forged.path}/handoff", f"{forged.path}/away")
        os.symlink(os.path.dirname(theirs), f"{forged.path}/handoff")
    assert broker(f"{forged.path}/handoff/{os.path.basename(theirs)}") in (
        errno.ESTALE, errno.EPERM)
    assert os.path.exists(theirs) and scene.inbox(BOB) == []
    scene.alive()


def test_inbox_cannot_be_flooded(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    alice("put", "k", 100, 1)
    tickets = [alice("handoff_to", "k", BOB, 60000)[0] for _ in range(256)]
    assert alice.code("handoff_to", "k", BOB, 60000) == errno.EDQUOT
    assert os.listdir(f"{scene.path}/stores/alice/handoff") == [] and len(scene.inbox(BOB)) == 256
    bob("adopt", "k", tickets[0])
    alice("handoff_to", "k", BOB, 60000)


def put(scene, tool, key, seed):
    """The errno of a put, or 0. A daemon that answers late is not waited for longer than a second:
    then the store lives off its credit, and what it is refused says nothing of its limit. Nor does
    a sum in which a survey counted a put twice, until the next survey. So a refusal counts where it
    comes for some seconds."""
    until = time.monotonic() + 4
    while (code := tool.code("put", key, SIZE, seed)) == errno.EDQUOT and time.monotonic() < until:
        scene.alive()
        time.sleep(0.05)
    return code


def test_quota_of_another_is_not_touched(scene):
    scene.start(limits=' user "*" {\n limit = "16MiB"\n }')
    alice, bob, eve = scene.tool(ALICE, "alice", "norecycle"), scene.tool(
        BOB, "bob", "norecycle"), scene.tool(EVE, "eve", "norecycle")
    # one that found no daemon in time goes on alone, and knows of no limit
    for tool in (alice, bob, eve):
        wait_for("the daemon knows the store", lambda tool=tool: tool("dispatch")[0] == "1")
    n = 0
    while put(scene, eve, f"k{n}", n) == 0:
        n += 1
        assert n < 64, "her limit is not hers"
    assert n >= 8 and put(scene, eve, "more", 0) == errno.EDQUOT
    for i in range(8):
        assert put(scene, alice, f"k{i}", i) == 0
        bob("adopt", f"k{i}", *alice("handoff_to", f"k{i}", BOB, 60000))
    # Objects that ALICE gave still count as ALICE's: BOB has all of his own limit.
    for i in range(12):
        assert put(scene, bob, f"own{i}", i) == 0
    n = 8
    while put(scene, alice, f"k{n}", n) == 0:
        n += 1
        assert n < 64


def test_lying_page_gains_nothing_and_breaks_nothing(scene):
    scene.start(limits=' user "*" {\n limit = "64MiB"\n }')
    alice = scene.tool(ALICE, "alice")
    forged = scene.forged("eve")
    eve = scene.register(EVE, forged.below)
    assert isinstance(eve, Wire), eve
    assert eve.grant(SIZE).name == "GRANTED"
    huge = (1 << 64) - 1
    for granted, charged, settled, fresh, last in ((1 << 60, 0, 0, 0, 0),
                                                   (huge, huge, huge, huge, huge),
                                                   (0, 1 << 62, 0, 0, 0),
                                                   (0, 0, 1 << 62, 0, 1 << 62),
                                                   (1 << 30, 1 << 29, 1 << 62, 0, 0)):
        os.pwrite(forged.fd, struct.pack("=Q", granted), 2560 + 8)
        os.pwrite(forged.fd, struct.pack("=QQQQ", charged, settled, fresh, last), 2560 + 256)
        os.pwrite(forged.fd, os.urandom(512), 2048)
        assert eve.grant(1 << 30).name == "REFUSED"
        alice("put", "k", SIZE, 1, "replace")
    os.ftruncate(forged.fd, 0)
    alice("put", "k", SIZE, 2, "replace")
    assert alice.same("k", SIZE, 2)
    scene.alive()
    scene.kill()
    scene.restart()
    alice("put", "k", 2 * SIZE, 3, "replace")
    assert alice.same("k", 2 * SIZE, 3)


def test_markers_lock_held_by_a_user(scene):
    scene.start()
    scene.kill()
    alice = scene.tool(ALICE, "alice")
    holder = subprocess.Popen(["setpriv", f"--reuid={EVE}", f"--regid={EVE}", "--clear-groups",
                               "flock", f"{scene.path}/.shmstore",
                               "sh", "-c", "echo held; exec sleep 1000"], stdout=subprocess.PIPE,
                              start_new_session=True)
    try:
        assert holder.stdout.readline() == b"held\n"
        scene.restart()
        assert f"user {EVE}" in scene.daemon.log()
        wait_for("put", lambda: alice.code("put", "k", SIZE, 1, "replace") == 0)
        bob = scene.tool(BOB, "bob")

        def handed():
            """ALICE looks for a daemon once a second."""
            try:
                bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
            except ToolError:
                return False
            return True
        wait_for("registered", handed)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()

    def daemons():
        with open(f"{scene.path}/.shmstore", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
    wait_for("the lock is the daemon's in the end", daemons)


# -- kill -9 of the daemon, in the middle


def test_daemon_killed_while_it_hands_over(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    done = refused = 0
    for round_ in range(15):
        alice("put", f"k{round_}", 1000, round_)
        for i in range(20):
            alice.send("handoff_to", f"k{round_}", BOB, 60000)
        killed = round_ % 3 == 0
        if killed:
            # Somewhere in these twenty.
            for _ in range(round_):
                if alice.pending > 1:
                    alice_answer(alice, bob, f"k{round_}", round_)
            scene.kill()
            scene.restart()
        while alice.pending:
            if alice_answer(alice, bob, f"k{round_}", round_):
                done += 1
            else:
                refused += 1
        assert os.listdir(f"{scene.path}/stores/alice/handoff") == []
        wait_for("registered again", lambda: alice.code("handoff_to", f"k{round_}", BOB, 1) in (
            0, errno.ESTALE))
    assert done
    for name in os.listdir(f"{scene.path}/inbox/{BOB}/handoff"):
        file = os.stat(f"{scene.path}/inbox/{BOB}/handoff/{name}")
        assert stat.S_ISREG(file.st_mode) and file.st_uid == ALICE
    scene.alive()


def alice_answer(alice, bob, key, seed):
    """True: a ticket came, and is good."""
    try:
        ticket, = alice.receive()
    except ToolError as error:
        assert error.errno in (errno.EPERM, errno.ETIMEDOUT), error
        return False
    bob("adopt", key, ticket, "replace")
    assert bob.same(key, 1000, seed)
    return True
