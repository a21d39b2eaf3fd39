# SPDX-License-Identifier: Apache-2.0
"""The stores on a partition and the memory they take, as the daemon knows it: against the kernel
and against shmstore-admin."""
import os
import resource
import shutil
import signal
import subprocess

import pytest
from daemon import SHMSTORED, Closed, Daemon, wait_for
from fixture import Tool

TERMS = ("used", "linked", "ghosts", "pool", "inflight", "foreign", "residual")
MIB = 1 << 20


class Scene:
    """A cluster with a daemon. Tools register with it, or are kept from it."""

    def __init__(self, cluster, **options):
        self.cluster = cluster
        self.place = cluster.place
        self.path = cluster.place.path
        Tool(self.path).end()  # makes the partition
        if "config" in options:
            options["config"] = options["config"] % self.path
        self.daemon = Daemon(self.path, http=False, **options)

    def registered(self, name, *options):
        return self.cluster.tool(name, *options,
                                 prefix=["env", f"SHMSTORE_SOCKET={self.daemon.socket}"])

    def alone(self, name, *options):
        return self.cluster.tool(name, *options, prefix=["env", "SHMSTORE_DAEMON=off"])

    def status(self, *words):
        return self.daemon.admin("status", "-p", self.path, *words)["partitions"][0]

    def reconciled(self):
        """The equation, by the daemon, accounted for anew."""
        with self.daemon.wire() as wire:
            survey = wire.query("reconcile", self.path)["partitions"][0]["survey"]
        return {term: survey[term] for term in TERMS}

    def by_admin(self):
        """The same by shmstore-admin, which asks the kernel and no daemon."""
        books = self.daemon.admin("reconcile", "-p", self.path)
        books = books.get("usage", books)
        return {term: books[term] for term in TERMS}

    def workers(self):
        with self.daemon.wire() as wire:
            return {w["name"]: w
                    for w in wire.query("workers", self.path)["partitions"][0]["workers"]}

    def holders(self):
        with self.daemon.wire() as wire:
            wire.query("reconcile", self.path)
            return wire.query("holders", self.path)["partitions"][0]["holders"]

    def events(self, name=None):
        with self.daemon.wire() as wire:
            events = wire.query("events")["events"]
        return [e for e in events if name in (None, e["event"])]

    def lives(self, name):
        return name in self.workers() and self.workers()[name]["alive"]

    def store_is_gone(self, name):
        return name not in self.place.names("stores")


@pytest.fixture
def scene(cluster):
    if not cluster.place.mounted:
        pytest.skip("needs a file system of its own (root): others write to /dev/shm")
    made = []

    def make(**options):
        made.append(Scene(cluster, **options))
        return made[-1]

    yield make
    for one in made:
        one.daemon.close()


def test_registered_and_unregistered_stores_are_seen(scene):
    s = scene()
    a, b = s.registered("a"), s.alone("b")
    a("put", "x", 1000000, 1)
    b("put", "y", 2000000, 2)
    wait_for("b is seen", lambda: s.lives("b"))
    wait_for("the ledgers", lambda: s.workers()["b"]["ledger"]["put_n"] == 1)
    workers = s.workers()
    assert set(workers) == {"a", "b"}
    assert workers["a"]["registered"] and not workers["b"]["registered"]
    assert workers["a"]["pid"] == a.pid and workers["b"]["pid"] == b.pid
    assert workers["a"]["uid"] == os.geteuid()
    assert workers["b"]["ledger"]["linked"] >= 2000000
    a("address", "tcp://1.2.3.4:5")
    wait_for("its address", lambda: s.workers()["a"]["address"] == "tcp://1.2.3.4:5")
    assert s.reconciled() == s.by_admin()
    assert (s.workers()["a"]["linked"] >= 1000000 and
            s.workers()["a"]["uss"] == s.workers()["a"]["linked"])
    names = [(e["event"], e.get("name")) for e in s.events()]
    assert ("store-came", "a") in names and ("store-came", "b") in names


def test_stores_that_close_go_without_a_reap(scene):
    s = scene()
    a, b = s.registered("a"), s.alone("b")
    wait_for("both are seen", lambda: s.lives("a") and s.lives("b"))
    a("close")
    b("close")
    wait_for("both went", lambda: not s.workers())
    went = {e["name"]: e["why"] for e in s.events("store-went")}
    assert went == {"a": "closed", "b": "closed"}
    assert not s.events("store-reaped")
    a.end()
    b.end()
    s.cluster.nothing_left()


@pytest.mark.parametrize("kind", ["registered", "alone"])
def test_a_killed_worker_is_reaped_and_its_memory_is_back(scene, kind):
    s = scene()
    before = s.place.used()
    victim = getattr(s, kind)("victim")
    victim("put", "big", 64 * MIB, 1)
    wait_for("it is seen", lambda: s.lives("victim"))
    assert s.place.used() >= before + 64 * MIB
    victim.kill()
    wait_for("its store is gone", lambda: s.store_is_gone("victim"))
    if s.place.mounted:
        wait_for("df is down", lambda: s.place.used() == before)
    wait_for("it is told", lambda: s.events("store-reaped"))
    event = s.events("store-reaped")[0]
    assert event["name"] == "victim" and event["freed"] >= 64 * MIB and event["objects"] >= 1
    assert [e["why"] for e in s.events("store-went")] == ["died"]
    assert not s.workers()
    s.cluster.nothing_left()


@pytest.mark.usefixtures("files")
def test_leases_of_the_dead_stay_until_they_end(scene):
    s = scene()
    donor, taker = s.registered("donor"), s.registered("taker")
    donor("put", "x", 100000, 1)
    donor("put", "y", 200000, 2)
    kept = donor("handoff", "x", 600000)[0]
    donor("handoff", "y", 1500)
    donor.kill()
    wait_for("it is reaped", lambda: s.events("store-reaped"))
    assert len(s.place.names("stores/donor/handoff")) >= 1
    assert s.place.names("stores/donor/objects") == []
    wait_for("the short lease ended", lambda: len(s.place.names("stores/donor/handoff")) == 1)
    wait_for("it is told", lambda: s.events("lease-expired"))
    taker("adopt", "x", kept)
    assert taker.same("x", 100000, 1)
    # The directory is empty now: the next look takes it, at the latest the lease's end; any gc
    # before.
    taker.end()
    s.cluster.nothing_left()


def test_a_kept_store_stays(scene):
    s = scene()
    keeper = s.registered("keeper", "keep")
    keeper("put", "x", 100000, 1)
    keeper.kill()
    wait_for("it went", lambda: s.events("store-went"))
    again = s.registered("keeper", "keep")
    assert again.same("x", 100000, 1)
    wait_for("it is back", lambda: s.lives("keeper"))
    again.end()
    Tool(s.path).end()
    s.cluster.tool("keeper", "fresh").end()


def test_a_kept_store_with_its_next_owner_is_another_member(scene):
    s = scene()
    owner = s.registered("keeper", "keep")
    for _ in range(20):
        owner.kill()
        owner = s.registered("keeper", "keep")
        wait_for("the next owner is known", lambda: s.workers().get("keeper", {}).get("pid") ==
                 owner.pid)
        assert s.workers()["keeper"]["registered"]
    owner.end()
    s.cluster.tool("keeper", "fresh").end()


def test_a_stopped_process_stays_a_member(scene):
    s = scene()
    a = s.registered("a")
    a("put", "x", 100000, 1)
    os.kill(a.pid, signal.SIGSTOP)
    try:
        books = [s.reconciled() for _ in range(3)]
        assert books[0] == books[1] == books[2] and books[0]["residual"] == 0
        assert s.lives("a") and s.workers()["a"]["registered"]
    finally:
        os.kill(a.pid, signal.SIGCONT)
    assert a.same("x", 100000, 1)
    assert not s.events("store-went")


def test_a_forked_child_keeps_no_dead_store(scene):
    s = scene()
    a = s.registered("a")
    a("put", "x", 100000, 1)
    child = s.cluster.fork(a)
    a.kill()
    wait_for("its store is gone", lambda: s.store_is_gone("a"))
    s.cluster.kill_child(child)


def test_books_are_right_again_after_a_restart(scene):
    s = scene()
    a, b, dead = s.registered("a"), s.alone("b"), s.registered("dead")
    for tool in (a, b, dead):
        tool("put", "x", 1000000, 1)
        tool("put", "y", 500000, 2)
    b("hold", "v", "y")
    b("delete", "y")  # a ghost
    a("create", "w", 300000, 3)  # in flight
    before = s.reconciled()
    assert before == s.by_admin() and before["ghosts"] and before["inflight"]
    s.daemon.kill()
    dead.kill()  # while nobody watches
    s.daemon.restart()
    wait_for("the dead one is reaped", lambda: s.store_is_gone("dead"))
    wait_for("both are members", lambda: s.lives("a") and s.lives("b"))
    books = s.reconciled()
    assert books == s.by_admin()
    assert (books["residual"] == 0 and books["ghosts"] == before["ghosts"] and
            books["inflight"] == before["inflight"])
    wait_for("it registers again", lambda: a.same("x", 1000000, 1) and
             a("put", "z", 1000, 4, "replace") is not None and
             s.workers()["a"]["registered"])
    a("abort")


def test_ghosts_are_told_with_pid_and_age(scene):
    s = scene(config='partition "%s" { ghost-age = 1s\n survey-interval = 1s }')
    a = s.registered("a")
    a("put", "g", 3 * MIB, 1)
    a("hold", "v", "g")
    a("delete", "g")
    ghosts = [h for h in s.holders() if h["kind"] == "ghost" and h["pid"] == a.pid]
    assert len(ghosts) == 1 and ghosts[0]["bytes"] >= 3 * MIB and ghosts[0]["key"] == "g"
    first = ghosts[0]["age_seconds"]
    wait_for("it gets old", lambda: s.events("ghost-old"))
    event = s.events("ghost-old")[0]
    assert event["pid"] == a.pid and event["key"] == "g" and event["age_seconds"] >= 1 > first
    a("drop", "v")
    wait_for("it is forgotten", lambda: not [h for h in s.holders() if h["kind"] == "ghost"])


def test_a_store_outside_stores_is_one_too(scene):
    s = scene()
    os.mkdir(os.path.join(s.path, "job"))
    a = s.registered("a", "dir=job/here")
    b = s.alone("b", "dir=job/there")
    a("put", "x", 100000, 1)
    b("put", "x", 200000, 1)
    assert s.lives("a")
    s.reconciled()
    assert s.workers()["b"]["linked"] >= 200000
    a.kill()
    b.kill()
    wait_for("both are gone", lambda: s.place.names("job") == [] or not s.reconciled())
    os.rmdir(os.path.join(s.path, "job"))
    s.cluster.nothing_left()


def test_a_second_daemon_on_a_partition_does_not_start(scene):
    s = scene()
    a = s.registered("a")
    second = subprocess.run([str(SHMSTORED), "--partition", s.path, "--socket", s.daemon.socket +
                             "2"], capture_output=True, text=True,
                            timeout=60, check=False)
    assert second.returncode == 1
    assert "another daemon watches this partition" in second.stderr and s.path in second.stderr
    a("put", "x", 1000, 1)
    assert s.reconciled()["residual"] == 0


def test_only_the_owner_registers_a_store(scene):
    s = scene()
    a = s.alone("a")
    wait_for("it is seen", lambda: s.lives("a"))
    uuid = s.status()["uuid"]
    with s.daemon.wire() as wire:
        for below, error in (("stores/a", -1), ("stores/none", -2), ("stores/../stores/a", -1),
                             ("stores/a/", -1), ("stores", -2)):
            answer = wire.register(uuid, below)
            assert answer.name == "REFUSED" and answer.values[0] == error, (below, answer)
        assert wire.register("00" * 16, "stores/a").values[0] == -2
        wire.ping()
    for below in ("", "/etc"):
        with s.daemon.wire() as wire, pytest.raises(Closed):
            wire.register(uuid, below)
    assert not s.workers()["a"]["registered"]


def test_a_page_cut_short_ends_nobody_else(scene):
    s = scene()
    liar, a = s.alone("liar"), s.registered("a")
    wait_for("both are seen", lambda: s.lives("liar") and s.lives("a"))
    os.truncate(os.path.join(s.path, "stores/liar/.store"), 0)
    wait_for("it is told", lambda: s.events("liar"))
    assert not s.lives("liar") and s.lives("a")
    a("put", "x", 1000, 1)
    liar.kill()
    shutil.rmtree(os.path.join(s.path, "stores/liar"))  # gc keeps what it cannot read


def test_more_descriptors_than_it_has_are_no_end(scene):
    """Processes are watched by descriptors only as long as there are enough
    for what cannot do without."""
    s = scene(start=False)
    tools = [s.cluster.tool(f"t{i}", prefix=["env", "SHMSTORE_DAEMON=off"]) for i in range(20)]
    s.daemon.prefix = ["prlimit", "--nofile=40:40"]
    s.daemon.start()
    assert s.reconciled()["residual"] == 0
    assert len(s.workers()) == 20
    for tool in tools:
        tool.kill()
    wait_for("all are found dead", lambda: s.reconciled() and s.place.names("stores") == [])


def test_a_registered_store_is_not_registered_twice(scene):
    s = scene()
    a = s.registered("a")
    assert s.workers()["a"]["registered"]
    uuid = s.status()["uuid"]
    with s.daemon.wire() as wire:
        answer = wire.register(uuid, "stores/a")
        assert answer.name == "REFUSED" and answer.values[0] == -16
    a("put", "x", 1000, 1)


def test_many_stores_at_once(scene):
    s = scene()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        tools = [s.registered(f"t{i}") for i in range(40)]
        for tool in tools:
            tool("put", "x", 100000, 1)
        assert sum(w["registered"] for w in s.workers().values()) == 40
        for tool in tools:
            tool.process.kill()
        wait_for("all are reaped", lambda: s.place.names("stores") == [])
        for tool in tools:
            tool.finish()
        wait_for("all are told", lambda: len(s.events("store-reaped")) == 40)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    s.cluster.nothing_left()
