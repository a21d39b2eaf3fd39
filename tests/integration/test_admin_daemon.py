# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin and the daemon: a real shmstored, real stores, real deaths; and what is said
where there is no daemon."""
import errno
import itertools
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from admin_asked import Watch, by_name, host, partition  # noqa: F401
from admin_support import (ADMIN, NOBODY, SOURCE, Admin, actors, bare, environment,  # noqa: F401
                           members, needs_root, terminal)
from daemon import Closed, wait_for
from test_admin_shell import complete

MIB = 1 << 20
QUERY_COMMANDS = ("status", "workers", "quota")


def rows(text):
    """The first words of a table's lines below its heading."""
    lines = [line for line in text.splitlines() if line]
    start = next(i for i, line in enumerate(lines) if line.split()[0].isupper() and i > 0)
    return [line.split()[0] for line in lines[start + 1:]]


# ---- status, workers, quota ----------------------------------------------------------------------


def test_status_says_what_the_kernel_says(host, actors):
    actor = actors(host.admin, "s", "-")
    actor("put", "k", 3 * MIB, "-")
    status = host.admin.json("status", "--reconcile")
    p, daemon = partition(status), status["daemon"]
    fs = os.statvfs(host.path)
    assert daemon["pid"] == host.daemon.pid and daemon["version"] in host.admin("version").out
    assert "io_uring" in daemon["backend"] or "epoll" in daemon["backend"]
    assert p["partition"] == host.path and p["size"] == fs.f_blocks * fs.f_frsize
    survey = p["survey"]
    assert survey["used"] == (fs.f_blocks - fs.f_bfree) * fs.f_frsize
    assert survey["residual"] == 0
    assert survey["used"] == sum(survey[t] for t in ("linked", "ghosts", "pool", "inflight",
                                                     "foreign"))
    mine = host.admin.json("reconcile")
    assert {t: survey[t] for t in ("linked", "ghosts", "pool", "foreign", "residual")} == \
        {t: mine[t] for t in ("linked", "ghosts", "pool", "foreign", "residual")}
    text = host.admin("status", "--bytes").out
    assert text.startswith(f"shmstored {daemon['version']}, pid {daemon['pid']}, up ")
    line = next(line for line in text.splitlines() if line.startswith(host.path)).split()
    assert line[1] == str(p["size"]) and str(survey["linked"]) in line and "ago" in line


def test_status_fails_where_bytes_are_missing(host, actors):
    """A file that nobody names, mapped by nobody, held in a way that no scan of /proc
    shows: in flight in a socket."""
    one, two = socket.socketpair()
    with one, two:
        fd = os.open(host.path, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, b"x" * 8192)
        socket.send_fds(one, [b"x"], [fd])
        os.close(fd)
        r = host.admin("status", "-r", code=1)
        assert "8192 bytes are not accounted for" in r.err
        assert partition(host.admin("--json", "status", "-r",
                                    code=1).json)["survey"]["residual"] == 8192
        host.admin("status")  # who did not ask for every byte is not told off


def test_workers_shares_out_as_du_does(host, actors):
    a, b = actors(host.admin, "a", "-"), actors(host.admin, "b", "-")
    a("put", "mine", MIB, "-")
    a("put", "shared", 2 * MIB, "-")
    b("adopt", "shared", a("handoff", "shared", 60000))
    host.admin("status", "-r")
    workers = by_name(host.admin.json("workers"))
    du = {s["name"]: s for s in host.admin.json("du")["stores"]}
    assert set(workers) == set(du) == {"a", "b"}
    for name, s in du.items():
        assert {k: workers[name][k] for k in ("linked", "pss", "uss", "objects", "pid", "path",
                                              "uid", "label", "pool")} == \
            {k: s[k] for k in ("linked", "pss", "uss", "objects", "pid", "path", "uid", "label",
                               "pool")}
        assert workers[name]["alive"] is True and workers[name]["registered"] is True
    assert workers["a"]["uss"] >= MIB and workers["b"]["uss"] < MIB
    text = host.admin("workers").out
    assert text.startswith(host.path + "\n") and rows(text) == ["a", "b"] and "registered" in text
    assert rows(host.admin("workers", "--sort", "name").out) == ["a", "b"]
    b("put", "more", 8 * MIB, "-")
    host.admin("status", "-r")
    for column in ("linked", "pss", "uss"):
        assert rows(host.admin("workers", "--sort", column).out) == ["b", "a"], column
    wait_for("a second in which a puts nothing",
             lambda: by_name(host.admin.json("workers"))["a"]["put_bytes_per_s"] == 0)
    keys = itertools.count()

    def rate():
        b("put", f"again{next(keys)}", 1000, "-")
        return by_name(host.admin.json("workers"))["b"]["put_bytes_per_s"]

    wait_for("bytes put in the last second", rate)
    by_label = partition(host.admin.json("workers"))["labels"]
    assert [(g["label"], g["stores"]) for g in by_label] == [("actor", 2)]
    sums = {k: sum(w[k] for w in by_name(host.admin.json("workers")).values())
            for k in ("pss", "uss")}
    assert {k: by_label[0][k] for k in sums} == sums
    assert rows(host.admin("workers", "--by", "label").out) == ["actor"]
    assert len(rows(host.admin("workers", "--by", "user").out)) == 1


def test_a_document_of_many_packets(host):
    """Dead, kept stores are workers too; their list is longer than one packet of the protocol."""
    names = [f"store-{i:02}-{'x' * 200}" for i in range(40)]
    for name in names:
        host.admin("put", name, "k", stdin=b"x")
    document = host.admin.json("status", "-r") and host.admin("--json", "workers").raw
    assert len(document) > 2 * 16384
    found = by_name(json.loads(document))
    assert (sorted(found) == names and {(w["alive"], w["keep"]) for w in found.values()} == {
        (False, True)})
    assert rows(host.admin("workers", "--sort", "name").out) == names
    assert host.admin("workers").out.count(" kept ") == len(names)


def test_a_store_that_came_after_the_survey_shows_its_ledger(host, actors):
    actor = actors(host.admin, "s", "-")
    actor("put", "k", MIB, "-")
    w = wait_for("the ledger", lambda: next((w for w in by_name(host.admin.json("workers")).values()
                                             if w["ledger"]["linked"] >= MIB), None))
    line = next(line for line in host.admin("workers", "--bytes").out.splitlines()
                if line.startswith("s "))
    assert str(w["ledger"]["linked"]) in line.split()


def test_a_limit_is_set_holds_and_is_seen(host, actors):
    actor = actors(host.admin, "s", "-")
    said = host.admin.json("set", f"user.{os.geteuid()}.limit=4MiB")
    assert said == {"partition": host.path, "set": f"user.{os.geteuid()}.limit=4MiB"}
    limits = {(line["kind"], line["id"]): line
              for line in partition(host.admin.json("quota"))["limits"]}
    assert limits["user", str(os.geteuid())]["hard"] == 4 * MIB
    actor("put", "k", 2 * MIB, "-")
    assert actor.try_("put", "l", 3 * MIB, "-") == f"error {errno.EDQUOT}"
    # what is written while a survey runs is counted twice until the next one
    host.admin("status", "-r")
    line = next(li for li in partition(host.admin.json("quota"))["limits"] if li["kind"] == "user")
    assert line["refused"] >= 1 and 2 * MIB <= line["used"] + line["outstanding"] <= 4 * MIB
    row = next(r for r in host.admin("quota", "--bytes").out.splitlines()
               if r.startswith("user ")).split()
    assert row[2] == str(4 * MIB)
    host.admin("-p", host.path, "set", f"user.{os.geteuid()}.limit=none")
    actor("put", "l", 3 * MIB, "-")


@pytest.mark.parametrize("assignment,word", [("limit=99x", "99x"), ("lmit=1GiB", "limit"),
                                             ("user.nobody-of-that-name.limit=1",
                                              "nobody-of-that-name"),
                                             ("=1", "")])
def test_what_cannot_be_set_says_why(host, assignment, word):
    r = host.admin("set", assignment, code=1)
    assert (r.err.startswith(f"shmstore-admin: {assignment}: ") and
            word in r.err.removeprefix(f"shmstore-admin: {assignment}: "))
    assert r.out == ""


def test_another_partition_is_none_of_the_daemons(host, tmp_path):
    other = Admin(tmp_path, env=host.admin.env)
    for command in QUERY_COMMANDS:
        r = other(command, code=1)
        assert str(tmp_path) in r.err and "no partition that this daemon watches" in r.err
    all_of_them = host.admin("--json", "status", partition=False).json
    assert partition(all_of_them)["partition"] == host.path


@needs_root
def test_users_see_their_own(host, actors):
    actors(host.admin, "of-root", "-")
    wait_for("the store", lambda: "of-root" in by_name(host.admin.json("workers")))
    nobody = host.admin.as_nobody()
    assert by_name(nobody("--json", "workers", partition=False).json) == {}
    wait_for("the next tick", lambda: partition(nobody("--json", "status", partition=False).json)[
        "ledgers"]["stores"] == 1)
    r = nobody("set", "limit=1GiB", partition=False, code=1)
    assert f"limits are set by root and the daemon's own user; you are user {NOBODY}" in r.err
    r = nobody("reap", f"{host.path}/stores/of-root", partition=False, code=1)
    assert "another user's" in r.err
    assert not any("of-root" in line for line in nobody("--json", "watch", "--since", "0", "-n",
                                                        "1", partition=False).out.splitlines())


# ---- reap ----------------------------------------------------------------------------------------


def test_reap_leaves_the_living_and_the_kept(host, actors):
    actor = actors(host.admin, "s", "-")
    actor("put", "k", MIB, "-")
    for store in ("s", f"{host.path}/stores/s"):
        r = host.admin("reap", store, code=1)
        assert "its owner lives" in r.err and r.out == ""
    actor("get", "k")
    host.admin("put", "kept", "k", stdin=b"x")
    r = host.admin("reap", "kept", code=1)
    assert "shmstore-admin: kept: stays: " in r.err
    assert host.admin("cat", "kept", "k").raw == b"x"


def test_reap_tells_its_steps(host, actors):
    """A lease keeps the rest of a dead store; a reap says so, and takes
    nothing that is promised."""
    actor = actors(host.admin, "s", "-")
    actor("put", "k", MIB, "-")
    actor("put", "l", MIB, "-")
    actor("handoff", "k", 600000)
    with Watch(host) as w:
        w.begun(host)
        actor.kill()
        assert w.event("store-reaped", name="s")["leases_stay"] is True
    said = host.admin.json("reap", f"{host.path}/stores/s")
    assert (said["path"] == f"{host.path}/stores/s" and said["leases_stay"] is True and
            said["freed"] == 0 and said["failed"] == 0)
    assert {a["what"] for a in said["actions"]} <= {"kept"}
    assert host.admin.json("df")["leases"] == 1


@pytest.mark.parametrize("attempt", range(5))
def test_reap_races_with_the_daemon_itself(host, actors, attempt):
    """Whichever of the two comes first, the store is gone, and nobody says anything wrong."""
    actor = actors(host.admin, "s", "-")
    actor("put", "k", MIB, "-")
    actor.kill()
    r = host.admin("reap", f"{host.path}/stores/s", code=None)
    wait_for("the end of the store", lambda: not os.path.exists(f"{host.path}/stores/s"))
    assert (r.code == 0 and "store" in r.out) or (r.code == 1 and "not any more" in r.err), r
    assert host.admin.json("df")["objects"] == 0


def test_reap_of_what_is_no_store(host):
    for store, why in (("none", "there is no such store, or not any more"),
                       (f"{host.path}/stores/none", "there is no such store"),
                       ("/etc", "in no partition that this daemon watches"),
                       (f"{host.path}/stores/../..", ""), (f"{host.path}/stores", "")):
        r = host.admin("reap", store, code=1)
        assert why in r.err and r.out == ""
    assert os.path.isdir(f"{host.path}/stores")


# ---- bounds of a connection ----------------------------------------------------------------------


def test_one_watch_and_one_reconcile_a_connection(host):
    with host.daemon.wire() as w:
        assert w.call("WATCH", 2**64 - 1).name == "DONE"
        again = w.call("WATCH", 2**64 - 1)
        assert again.name == "REFUSED" and again.values[0] == -errno.EBUSY
        one, two = w.send("QUERY", 7, 0), w.send("QUERY", 7, 0)
        answers = {}
        while len(answers) < 2:
            m = w.receive()
            if (m.serial in (one, two) and m.name in ("DATA", "REFUSED") and
                (m.name == "REFUSED" or not m.values[0])):
                answers[m.serial] = m
        assert (answers[one].name == "DATA" and answers[two].name == "REFUSED" and
                answers[two].values[0] == -errno.EBUSY)
        w.ping()
        with pytest.raises(Closed) as closed:
            w.call("QUERY", 99, 0)
        assert "no such question: 99" in closed.value.reason


def test_connections_that_end_before_their_answer_harm_nobody(host, actors):
    actor = actors(host.admin, "s", "-")
    actor("fill", "k", 200, 4096)
    for name, values, tail in (("QUERY", (7, 0), b""),
                               ("REAP", (0,), f"{host.path}/stores/s".encode()),
                               ("WATCH", (0,), b"")):
        for _ in range(20):
            w = host.daemon.wire()
            w.send(name, *values, tail=tail)
            w.close()
    assert partition(host.admin.json("status", "-r"))["survey"]["objects"] == 200
    wait_for("the end of those connections",
             lambda: host.admin.json("status")["daemon"]["clients"] == 2)


# ---- top, doctor ---------------------------------------------------------------------------------


def test_top_is_fed_by_the_daemon_and_goes_on_without(host, actors):
    actor = actors(host.admin, "s", "-")
    actor("put", "k", MIB, "-")
    process = subprocess.Popen([str(ADMIN), "-p", host.path, "--json", "top", "-d1", "-n4"],
                               stdout=subprocess.PIPE, env=environment(**host.admin.env))
    with process:
        first = json.loads(process.stdout.readline())
        host.daemon.kill()
        rest = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert (first["source"] == "daemon" and [f["source"] for f in rest][-1] == "scan" and
            len(rest) == 3)
    for frame in (first, rest[-1]):
        assert [(s["name"], s["objects"], s["alive"]) for s in frame["stores"]] == [("s", 1, True)]
        assert frame["linked"] >= MIB and frame["size"] == first["size"]
    host.daemon.restart()
    assert "  from shmstored\n" in host.admin("top", "-n1", "-d1").out
    assert "  own scan\n" in host.admin("top", "-n1", "-d0.1").out  # finer than the daemon looks


def test_top_from_the_daemon_has_the_same_rates(host, actors):
    """Puts of a known number between two looks: what the daemon tells adds up to them."""
    actor = actors(host.admin, "s", "-")
    process = subprocess.Popen([str(ADMIN), "-p", host.path, "--json", "top", "-d1", "-n30"],
                               stdout=subprocess.PIPE, env=environment(**host.admin.env))
    with process:
        frames = [json.loads(process.stdout.readline())]
        actor("fill", "k", 50, 4096)
        while (not frames[-1]["stores"] or frames[-1]["stores"][0]["objects"] < 50 or
               frames[-1]["put_per_s"] == 0):
            line = process.stdout.readline()
            assert line, frames
            frames.append(json.loads(line))
        process.kill()
    before = frames[-2]
    seconds = frames[-1]["put_per_s"] and 50 / frames[-1]["put_per_s"]
    if before["stores"][0]["objects"] == 0:  # all of them fell between two looks
        assert 0.5 < seconds < 30, frames[-1]


def test_doctor_finds_the_daemon(host, tmp_path):
    found = {f["check"]: f for f in host.admin("--json", "doctor", code=None).json["findings"]}
    assert found["daemon"]["level"] == "ok" and f"pid {host.daemon.pid}" in found["daemon"]["found"]
    assert found["daemon-partition"]["level"] == "ok"
    other = Admin(Path("/dev/shm") / f"shmstore-test-other-{os.getpid()}", env=host.admin.env)
    try:
        other("init")
        found = {f["check"]: f for f in other("--json", "doctor", code=None).json["findings"]}
        assert (found["daemon-partition"]["level"] == "warn" and
                other.path in found["daemon-partition"]["fix"])
    finally:
        subprocess.run(["rm", "-rf", other.path], check=True)
    host.daemon.kill()  # its socket stays
    found = {f["check"]: f for f in host.admin("--json", "doctor", code=None).json["findings"]}
    assert (found["daemon"]["level"] == "warn" and found["daemon"]["fix"].endswith(
        "systemctl restart shmstored"))
    host.daemon.restart()


def test_doctor_where_io_uring_is_off(host, tmp_path):
    sysctl = tmp_path / "proc" / "sys" / "kernel" / "io_uring_disabled"
    sysctl.parent.mkdir(parents=True)
    sysctl.write_text("2\n")
    r = host.admin("--json", "doctor", env={"SHMSTORE_ADMIN_ROOT": str(tmp_path)}, code=None)
    found = next(f for f in r.json["findings"] if f["check"] == "io-uring")
    assert found["level"] == "warn" and found["fix"].endswith("sysctl kernel.io_uring_disabled=0")


# ---- no daemon -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["status", "-r"], ["workers"], ["quota"],
                                     ["watch"], ["set", "limit=1GiB"], ["reap", "s"]])
def test_without_a_daemon(bare, tmp_path, command):
    admin = Admin(bare)
    admin("init")
    for words, env in ((["--socket", tmp_path / "none"], {}),
                       ([], {"SHMSTORE_SOCKET": str(tmp_path / "none")})):
        for as_json in ([], ["--json"]):
            r = admin(*words, *as_json, *command, env=env, code=1)
            assert r.out == ""
            assert r.err == (f"shmstore-admin: no daemon answers at {tmp_path}/none: there is no "
                             f"such socket\n"
                             "  start it with: shmstored & (for yourself), or systemctl enable "
                             "--now shmstored (for all users)\n"
                             '  if it was started: "journalctl -u shmstored" says why it does not '
                             'run\n'
                             "  shmstore-admin df, du, reconcile, gc and top work without\n")
    (tmp_path / "file").touch()
    assert admin("--socket", tmp_path / "file", *command, code=1).out == ""
    r = admin("--socket", "/" + "x" * 200, *command, code=1)
    assert "too long for a socket's path" in r.err


def test_a_socket_that_nobody_reads(bare, tmp_path):
    """The service manager's, while what it starts ends again and again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        r = Admin(bare)("--socket", tmp_path / "socket", "status", code=1)
    assert re.fullmatch(rf"shmstore-admin: no daemon answers at {tmp_path}/socket: the daemon did "
                        rf"not answer within \d+ ms\n"
                        '  if it was started: "journalctl -u shmstored" says why it does not run\n'
                        "  shmstore-admin df, du, reconcile, gc and top work without\n",
                        r.err), r.err


def test_the_option_goes_before_the_environment(host, tmp_path):
    assert host.admin("--socket", tmp_path / "none", "status", code=1).out == ""
    admin = Admin(host.path, env={"SHMSTORE_SOCKET": str(tmp_path / "none")})
    assert admin.json("--socket", host.daemon.socket, "status")["daemon"]["pid"] == host.daemon.pid


# ---- completion, manual --------------------------------------------------------------------------


def test_completion_knows_events_and_stores(host, actors):
    actors(host.admin, "alpha", "-")
    wait_for("the store", lambda: "alpha" in by_name(host.admin.json("workers")))
    assert complete("--socket", host.daemon.socket, "reap", typed="al") == ["alpha"]
    assert set(complete("watch", "--events")) == set(host.admin.json("status")["daemon"]["events"])


def test_every_member_is_explained(host, actors):
    """As in test_admin_shell.py; members of the daemon's own documents may
    be explained with those."""
    actors(host.admin, "s", "-")("put", "k", MIB, "-")
    words = set()
    for page in ("man/shmstore-admin.1", "operations.md"):
        words |= set(re.findall(r"[A-Za-z_]+", (SOURCE / "docs" / page).read_text()))
    events = set(host.admin.json("status")["daemon"]["events"])

    for command in (["status", "-r"], ["workers"], ["quota"], ["set", "soft=1GiB"],
                    ["watch", "--since=0", "-n1"]):
        left = set(members(host.admin.json(*command))) - words - events
        assert not left, f"{command}: {sorted(left)}"
