# SPDX-License-Identifier: Apache-2.0
"""The daemon keeps partitions below their marks by the disk tier: what it writes into them,
when it demotes and whose objects, what it says where the disk is full or gone, and that
nothing else waits for a disk.

Demoting itself is tested in test_tier.py, the plan's arithmetic in unit/test_tierplan.c.
"""
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
from pathlib import Path

import pytest
from daemon import ADMIN, wait_for
from fixture import ROOT

ALICE, BOB = 60001, 60002
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")


@pytest.fixture
def disk():
    """A directory on a disk, where everybody may pass."""
    path = tempfile.mkdtemp(prefix="shmstore-tier-",
                            dir=os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp"))
    os.chmod(path, 0o755)
    try:
        if subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True,
                          check=True).stdout.strip() == b"tmpfs":
            pytest.skip("/var/tmp is in memory: set SHMSTORE_TEST_DISK")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Host:
    """A partition with its daemon: how its tier stands, by the daemon's word."""

    def __init__(self, cluster, daemon):
        self.cluster, self.daemon, self.place = cluster, daemon, cluster.place

    def tool(self, store=None, *words, prefix=()):
        return self.cluster.tool(store, *words,
                                 prefix=(*prefix, "env", f"SHMSTORE_SOCKET={self.daemon.socket}"))

    def status(self):
        with self.daemon.wire() as wire:
            return wire.query("status")["partitions"][0]

    def tier(self):
        return self.status()["tier"]

    def state(self, state, timeout=120.0):
        return wait_for(f"the tier is {state}", lambda: (t := self.tier()) and
                        t["state"] == state and t, timeout)

    def ready(self):
        """Ready, and looked at."""
        return wait_for("the tier is ready", lambda: (t := self.tier()) and
                        t["state"] == "ready" and "path" in t and t)

    def below(self, percent):
        size = self.status()["size"]
        wait_for(f"less than {percent} % are used", lambda: self.place.used() <= size * percent //
                 100, 60)

    def kept(self, high=85):
        """It was above high, and is not now. Objects that were put while it was
        demoting came on top of the low mark."""
        size = self.status()["size"]
        wait_for("it is kept below its mark", lambda: (t := self.tier())["counters"]["objects"] and
                 t["state"] == "ready" and
                 self.place.used() <= size * high // 100, 60)

    def events(self, name):
        with self.daemon.wire() as wire:
            return [event for event in wire.query("events")["events"] if event["event"] == name]

    def configure(self, body):
        """Another configuration of the partition, read again."""
        self.daemon.write_config(f'partition "{self.place.path}" {{\n{body}\n}}')
        self.daemon.reload()
        states = [self.daemon.listen(30)]
        while "READY=1" not in states[-1]:
            assert states[-1], self.daemon.log()
            states.append(self.daemon.listen(30))


@pytest.fixture
def make_host(disk, make_cluster, make_daemon):
    """make_host(body, size=…): a partition of its own size, and its daemon with these keys for it.
    They go before the disk does."""

    def make(body, shared=False, http=False, **options):
        cluster = make_cluster(**options)
        if shared:
            subprocess.run([str(ADMIN), "-p", cluster.place.path, "init", "--shared"], check=True,
                           capture_output=True)
        else:
            cluster.tool().end()
        return Host(cluster, make_daemon(config=f'partition "{cluster.place.path}" {{\n{body}\n}}',
                                         http=http))

    return make


def keys(disk, **others):
    """The disk keys of a partition."""
    values = {"path": f'"{disk}"', "min-free": 0,
              **{name.replace("_", "-"): value for name, value in others.items()}}
    return "\n".join(f"disk.{name} = {value}" for name, value in values.items())


def fill(tool, n, size=MIB, key="k", first=0):
    for i in range(first, first + n):
        tool("put", f"{key}{i}", size, i)


def all_there(tool, n, size=MIB, key="k"):
    return all(tool.same(f"{key}{i}", size, i) for i in range(n))


def tier_files(disk, uid=None):
    return [p for p in Path(disk).rglob("*") if re.fullmatch("[0-9a-f]{16}", p.name) and
            (uid is None or p.stat().st_uid == uid)]


def health(daemon):
    """The reasons why it is unwell."""
    try:
        daemon.get("/healthz")
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return error.read().decode()
    return ""


# ---- the configuration ---------------------------------------------------------------------------


def test_configuration_is_written_into_the_partition(make_host, disk):
    host = make_host(keys(disk, max="64MiB", min_free="1MiB", level=3, fsync="yes", high="60%",
                          low="40%"))
    tier = host.ready()
    want = {"path": disk, "max": 64 * MIB, "min_free": MIB, "level": 3, "fsync": True, "high": 60,
            "low": 40}
    assert {name: tier[name] for name in want} == want
    # Where everybody else finds it.
    known = host.daemon.admin("-p", host.place.path, "tier")["tier"]
    assert {name: known[name] for name in want} == want
    assert known["files"] == tier["files"] and tier["files"].startswith(disk)
    # A reload changes the limits, and "none" takes it away.
    host.configure(keys(disk, max="none"))
    wait_for("the limit is gone", lambda: host.tier()["max"] == 0)
    assert host.tier()["high"] == 85
    host.configure("disk.path = none")
    wait_for("the tier is gone", lambda: host.tier() is None)
    assert host.daemon.admin("-p", host.place.path, "tier")["tier"] is None


def test_tier_that_an_operator_set_is_kept_and_used(make_host, disk):
    host = make_host("")
    assert host.tier() is None
    host.daemon.admin("-p", host.place.path, "tier", "--set", disk, "--high", "50", "--low", "20")
    assert host.ready()["high"] == 50
    tool = host.tool("s", "norecycle")
    fill(tool, 300)
    host.kept(50)
    assert all_there(tool, 300)
    assert host.daemon.admin("-p", host.place.path, "tier")["tier"]["high"] == 50


def test_tier_that_holds_objects_stays_where_it_is(make_host, disk):
    host = make_host(keys(disk))
    host.ready()
    tool = host.tool("s")
    tool("put", "k", MIB, 1)
    tool("demote", "k")
    with tempfile.TemporaryDirectory(prefix="shmstore-tier-", dir="/var/tmp") as other:
        host.configure(keys(other))
        wait_for("it is said", lambda: "it holds objects, and stays as it was" in host.daemon.log())
    host.configure("disk.path = none")
    wait_for("it is said", lambda: host.daemon.log().count(
        "it holds objects, and stays as it was") == 2)
    assert host.ready()["path"] == disk and tool.same("k", MIB, 1)


def test_missing_directory_is_said_and_waited_for(make_host, disk):
    path = os.path.join(disk, "later")
    host = make_host(keys(path), http=True)
    tier = host.state("unavailable")
    assert path in tier["why"]
    # until the first survey that is not known
    wait_for("nothing is there, and it is well", lambda: health(host.daemon) == "")
    assert path in host.daemon.log()
    os.mkdir(path)
    host.ready()
    assert health(host.daemon) == ""


def test_disk_in_memory_is_refused(make_host):
    with tempfile.TemporaryDirectory(prefix="shmstore-tier-", dir="/dev/shm") as memory:
        host = make_host(keys(memory))
        tier = host.state("unavailable")
        assert "memory" in tier["why"]


# ---- demoting ------------------------------------------------------------------------------------


def test_demotes_above_high_until_low_what_was_used_least(make_host, disk):
    host = make_host(keys(disk), size="64m", http=True)
    host.ready()
    tool = host.tool("s", "norecycle")
    fill(tool, 50)
    assert not host.events("demoted") and not tier_files(disk)
    for i in range(0, 50, 5):
        assert tool.same(f"k{i}", MIB, i)  # used now
    fill(tool, 3, key="more")
    assert not host.events("demoted")
    tool("put", "last", 3 * MIB, 1)
    host.below(75)
    event = wait_for("it is told", lambda: host.events("demoted"))[0]
    assert (event["freed"] >= (56 - 48) * MIB and event["objects"] >= 6 and
            event["complete"] is True and event["held"] == 0)
    assert {tool("locate", f"k{i}")[0] for i in range(0, 50, 5)} == {"memory"}
    counters = host.tier()["counters"]
    assert (counters["objects"] >= 6 and counters["freed"] >= event["freed"] and
            counters["damaged"] == 0)
    assert (f'shmstore_tier_freed_bytes_total{{partition="{host.place.path}"}} '
            f'{counters["freed"]}' in host.daemon.get("/metrics"))
    host.cluster.books_close()
    assert all_there(tool, 50) and all_there(tool, 3, key="more") and tool.same("last", 3 * MIB, 1)
    text = subprocess.run([str(ADMIN), "status"], env=host.daemon.env(), capture_output=True,
                          text=True, check=True).stdout
    assert f"disk tier of {host.place.path}: " in text and disk in text


def test_mark_is_of_the_hard_limit_where_that_is_less(make_host, disk):
    host = make_host("limit = 40MiB\n" + keys(disk), size="256m")
    host.ready()
    tool = host.tool("s", "norecycle")
    fill(tool, 32)
    tool("put", "last", 3 * MIB, 1)
    wait_for("below 75 % of the limit", lambda: host.place.used() <= 30 * MIB, 60)
    assert all_there(tool, 32)


def test_recycled_files_go_before_objects(make_host, disk):
    """Where they would do: the stores that have them are asked, and give them
    back with their next calls."""
    host = make_host(keys(disk, high="40%", low="30%"), size="256m")
    host.ready()
    pools = [host.tool(f"p{i}") for i in range(8)]
    for tool in pools:
        fill(tool, 12)
        for i in range(12):
            tool("delete", f"k{i}")
    pool = pools[0].books()["pool"]
    assert pool > 256 * MIB // 10
    other = host.tool("o", "norecycle")
    fill(other, (256 * MIB * 4 // 10 + 2 * MIB - host.place.used()) // MIB)
    assert host.place.used() > 256 * MIB * 4 // 10

    def given_back():
        for tool in pools:
            tool("put", "x", 4096, 1, "replace")
        return host.place.used() <= 256 * MIB * 3 // 10

    wait_for("the pools are given back", given_back)
    assert not host.events("demoted") and not tier_files(disk)


@pytest.mark.parametrize("idle_has_more", [True, False])
def test_users_above_their_share_give_first(make_host, disk, idle_has_more):
    """Two users: who has more than his part pays, whoever used his objects last."""
    host = make_host(keys(disk), shared=True, size="64m")
    host.ready()
    large, small = (ALICE, BOB) if idle_has_more else (BOB, ALICE)
    tools = {uid: host.tool(f"of-{uid}", "norecycle",
                            prefix=("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                                    "--"))
             for uid in (ALICE, BOB)}
    fill(tools[small], 10)
    fill(tools[large], 40)
    with host.daemon.wire() as wire:
        wire.query("reconcile")  # knows who has how much
    fill(tools[large], 6, key="more")
    host.kept()
    # From above 85 % down to 75 % of 64 MiB.
    assert len(tier_files(disk, large)) >= 6 and not tier_files(disk, small)
    # In the user's own directories, as if that user had done it.
    assert {os.stat(p.parent).st_uid for p in tier_files(disk)} == {large}
    assert all_there(tools[large], 40) and all_there(tools[small], 10)
    assert tools[large]("demote", "k0") == [] and tools[large].same("k0", MIB, 0)


def test_daemon_of_one_user_keeps_that_users_partition(disk, make_cluster, make_daemon):
    cluster = make_cluster(size="64m")
    os.chown(cluster.place.base, ALICE, ALICE)
    os.chown(disk, ALICE, ALICE)
    alice = ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "--")
    cluster.tool(prefix=alice).end()
    daemon = make_daemon(config=f'partition "{cluster.place.path}" {{\n{keys(disk)}\n}}',
                         http=False, start=False)
    os.chown(daemon.directory, ALICE, ALICE)
    daemon.prefix = list(alice)
    daemon.start()
    host = Host(cluster, daemon)
    host.ready()
    tool = host.tool("s", "norecycle", prefix=alice)
    fill(tool, 56)
    host.kept()
    assert all_there(tool, 56)


@pytest.mark.parametrize("limit", ["limit", f'user "{os.geteuid()}" {{ limit', 'label "x" { limit',
                                   'store "s" { limit'])
def test_puts_beyond_a_limit_demote_what_is_below_it(make_host, disk, limit):
    """The library makes room under its limit, and the daemon's books follow: what is
    on the disk is not used."""
    host = make_host(f'{limit} = 24MiB {"}" if "{" in limit else ""}\n' + keys(disk), size="256m")
    host.ready()
    tool = host.tool("s", "norecycle", "label=x")
    with host.daemon.wire() as wire:
        wire.query("reconcile")  # what comes during a survey counts twice until the next one
    fill(tool, 60)
    assert host.place.used() <= 24 * MIB + 64 * 1024
    assert all_there(tool, 60)
    assert len(tier_files(disk)) >= 36


# ---- a disk that does not do ---------------------------------------------------------------------


def test_full_disk_is_told_and_tried_again(make_host, disk):
    host = make_host(keys(disk, max="4MiB", level=0), size="64m", http=True)
    host.ready()
    tool = host.tool("s", "norecycle")
    fill(tool, 58)
    tier = host.state("disk-full")
    assert "disk full" in tier["why"] and disk in tier["why"]
    event = host.events("disk-full")[0]
    assert (event["path"] == disk and event["max"] == 4 * MIB and event["retry_seconds"] >= 1 and
            "disk full" in event["what"])
    assert "disk tier disk-full" in health(host.daemon)
    # Again and again, ever later, and what is in memory stays there.
    wait_for("it is tried again", lambda: host.tier()["counters"]["disk_full"] >= 3)
    assert sum(p.stat().st_blocks * 512 for p in tier_files(disk)) <= 4 * MIB
    assert all_there(tool, 58)
    # More room: at once, whatever the back-off.
    host.configure(keys(disk, max="64MiB", level=0))
    host.below(75)
    host.state("ready")
    assert health(host.daemon) == "" and all_there(tool, 58)


def test_pinned_objects_leave_it_stuck_and_are_left_alone(make_host, disk):
    host = make_host(keys(disk), size="64m")
    host.ready()
    tool = host.tool("s", "norecycle")
    for i in range(57):
        tool("put", f"k{i}", MIB, i, "pin")
    tier = host.state("stuck")
    assert "pinned" in tier["why"] and tier["retry_seconds"] is not None
    assert not tier_files(disk) and not host.events("disk-full")
    for i in range(57):
        tool("unpin", f"k{i}")
    host.below(75)
    host.state("ready")
    assert all_there(tool, 57)


def test_directory_that_goes_and_comes_back(make_host, disk):
    path = os.path.join(disk, "tier")
    os.mkdir(path)
    host = make_host(keys(path) + "\nsurvey-interval = 1s", size="64m", http=True)
    host.ready()
    tool = host.tool("s", "norecycle")
    fill(tool, 56)
    host.kept()
    os.rename(path, path + ".away")
    tier = host.state("unavailable")
    assert path in tier["why"]
    wait_for("it is unwell, as objects are there", lambda: "disk tier unavailable" in health(
        host.daemon))
    os.rename(path + ".away", path)
    host.ready()
    assert all_there(tool, 56)


# ---- while it is at it ---------------------------------------------------------------------------


def hold_names(host, stores):
    """Descriptors that hold these stores' names, as a process would that was stopped in
    the middle of a demotion."""
    fds = [os.open(os.path.join(host.place.path, "stores", store, "objects"), os.O_RDONLY)
           for store in stores]
    for fd in fds:
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fds


@pytest.fixture
def slow_host(make_host, disk):
    """An eviction that takes seconds for each of many stores: their names are held."""
    host = make_host(keys(disk), size="64m")
    host.ready()
    tool = host.tool()
    for i in range(50):
        tool("open", f"s{i}", "norecycle")
        tool("put", "k", MIB, i)
    fds = hold_names(host, [f"s{i}" for i in range(50)])
    try:
        fill(host.tool("more", "norecycle"), 6)
        host.state("evicting")
        yield host, tool, fds
    finally:
        for fd in fds:
            os.close(fd)


def test_nothing_else_waits_for_an_eviction(slow_host):
    host, tool, fds = slow_host
    other = host.tool("other")
    other("put", "x", MIB, 1)
    other.kill()
    wait_for("it is reaped",
             lambda: not os.path.exists(os.path.join(host.place.path, "stores", "other")))
    with host.daemon.wire() as wire:
        assert wire.query("reconcile")["partitions"][0]["survey"]["sequence"] >= 2
        wire.ping()
    assert tool.same("k", MIB, 49)
    assert host.tier()["state"] == "evicting" and host.tier()["running"] is not None
    for fd in fds:
        fcntl.flock(fd, fcntl.LOCK_UN)
    host.kept()


def test_ends_in_good_order_amid_an_eviction_and_goes_on_after_it(slow_host):
    host, tool, fds = slow_host
    host.daemon.stop()
    assert host.place.used() > 64 * MIB * 75 // 100
    for fd in fds:
        fcntl.flock(fd, fcntl.LOCK_UN)
    host.daemon.restart()
    host.ready()
    again = host.tool("again", "norecycle")
    fill(again, 8)
    host.kept()
    with host.daemon.wire() as wire:
        survey = wire.query("reconcile")["partitions"][0]["survey"]
    # Of 64 MiB, 64 objects of a MiB and a bit are more than 85 % by nine of them.
    assert (survey["objects"], survey["residual"]) == (64, 0) and survey["demoted"] >= 9
    assert host.daemon.admin("-p", host.place.path, "verify", "--tier")["bad"] == []
    assert tool.same("k", MIB, 49) and all_there(again, 8)


def test_store_whose_names_are_held_is_passed_over(make_host, disk):
    host = make_host(keys(disk), size="64m")
    host.ready()
    held, other = host.tool("held", "norecycle"), host.tool("other", "norecycle")
    fill(held, 28)
    fill(other, 20)
    (fd,) = hold_names(host, ["held"])
    try:
        fill(other, 9, key="more")
        host.kept()
        assert {held("locate", f"k{i}")[0] for i in range(28)} == {"memory"}
    finally:
        os.close(fd)
    assert all_there(held, 28) and all_there(other, 20)


@pytest.mark.parametrize("n_kills", [5])
def test_killed_amid_evictions_loses_nothing(make_host, disk, n_kills):
    host = make_host(keys(disk, high="50%", low="10%"), size="256m")
    host.ready()
    tool = host.tool("s", "norecycle")
    n = 0
    for _ in range(n_kills):
        fill(tool, 40, first=n)
        n += 40
        wait_for("it is at it, or was", lambda: host.tier()["state"] == "evicting" or
                 host.place.used() < 128 * MIB)
        host.daemon.kill()
        host.daemon.restart()
        host.ready()
    assert all_there(tool, n)
    host.kept(high=50)  # what was read came back to memory: books close when nothing moves
    tool("gc")
    host.cluster.books_close()
    info = host.daemon.admin("-p", host.place.path, "tier")["tier"]
    assert info["used"] == info["demoted"] + info["clean"] and info["n_orphans"] == 0


# ---- scrubbing -----------------------------------------------------------------------------------


def test_damage_is_found_before_somebody_needs_it(make_host, disk):
    """A flipped bit and a missing file: an event for each, with its name, for
    administrators and their owner."""
    host = make_host(keys(disk, scrub="1s", scrub_rate="64MiB"), http=True)
    host.ready()
    tool = host.tool("s")
    fill(tool, 4)
    for i in range(4):
        tool("demote", f"k{i}")
    first = wait_for("a scrub", lambda: (s := host.tier()["scrub"])["time"] and s["files"] == 4 and
                     s)
    assert first["damaged"] == 0 and not host.events("tier-damage")
    flipped, missing = sorted(tier_files(disk))[:2]
    flipped.chmod(0o600)
    with open(flipped, "r+b") as file:
        file.seek(flipped.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    missing.rename(f"{disk}/away")
    wait_for("both are found", lambda: {str(flipped), str(missing)} <= {
        event["path"] for event in host.events("tier-damage")})
    event = next(event for event in host.events("tier-damage") if event["path"] == str(flipped))
    assert event["uid"] == 0 and event["what"] and event["error"]
    wait_for("the scrub's end", lambda: host.tier()["scrub"]["damaged"] == 2)
    assert f'shmstore_tier_damaged_files{{partition="{host.place.path}"}} 2' in host.daemon.get(
        "/metrics")
    assert 'event="tier-damage"' in host.daemon.get("/metrics")
    os.rename(f"{disk}/away", missing)
    for i in range(4):
        tool("delete", f"k{i}")
    wait_for("nothing is damaged", lambda: (s := host.tier()["scrub"])["files"] == 0 and
             s["damaged"] == 0)


def test_ends_in_good_order_amid_a_scrub(make_host, disk):
    """The scrub takes minutes; objects go and come meanwhile."""
    host = make_host(keys(disk, scrub="1s", scrub_rate="64KiB", level=0))
    host.ready()
    tool = host.tool("s")
    fill(tool, 8)
    for i in range(8):
        tool("demote", f"k{i}")
    wait_for("a scrub", lambda: (s := host.tier()["scrub"])["running"] and s["bytes"])
    tool("promote", "k0")
    tool("demote", "k1")
    with host.daemon.wire() as wire:
        assert wire.query("reconcile")["partitions"][0]["survey"]["residual"] == 0
    assert host.tier()["scrub"]["running"] is True
    host.daemon.stop()
    host.daemon.restart()
    assert all_there(tool, 8) and host.ready()["scrub"]["time"] is None


def test_packed_objects_of_idle_stores_are_asked_for(make_host, disk):
    """Only their own process can demote them: the daemon's message wakes its event loop."""
    host = make_host("", size="64m")
    store = host.tool("a", "pack=1048576")
    fill(store, 700, size=64 << 10)
    store("heed", 0)
    host.configure(keys(disk, high="50%", low="40%"))
    assert "make no calls" in host.state("stuck")["why"]
    assert not tier_files(disk)
    while host.place.used() > 32 * MIB:
        assert store("heed", 60000) == ["1", "1"]
    host.state("ready")
    assert len(tier_files(disk)) > 150
    for i in range(0, 700, 7):
        store("get", f"k{i}", 64 << 10, i)
