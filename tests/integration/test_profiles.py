# SPDX-License-Identifier: Apache-2.0
"""Profiles as a service of a real daemon: what tasks use is remembered, of each user apart;
it outlives the daemon; a file that is cut off or forged is refused with a warning, and the
daemon begins with nothing."""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon import ADMIN, SHMSTORED, Closed, Wire, wait_for
from fixture import BUILD, NOBODY, SANITIZED, Place

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

MIB = 1 << 20
BEGIN, SAMPLE, END, ESTIMATE = 1, 2, 3, 4
SHOW, TEXT, LOAD, RESET = 1, 2, 3, 4
DONE, KILLED, PREEMPTED, DROPPED = 0, 1, 2, 3
HAS_PRIVATE, HAS_SHARED, HAS_CPU, QUIET = 1, 2, 4, 256
MINE, ALL = 2**32 - 1, 2**32 - 2
CONFIG = """profile {{ private = "{private}"
 directory = "{directory}"
 default-estimate = 7MiB
 interval = 5ms
 save = {save}
 max-kinds = 50 }}
partition "{path}" {{ create = yes }}
"""


@pytest.fixture
def place_size():
    return "16m"


@pytest.fixture
def profiled(make_daemon, place, tmp_path):
    def make(private="conservative", save="60s", path=place.path):
        return make_daemon(config=CONFIG.format(private=private, directory=tmp_path / "state",
                                                path=path, save=save), http=False)

    return make


def profile(wire, op, task=0, name=None, how=0, flags=0, private=0, shared=0, cpu=0):
    tail = "\n".join(name).encode() if name else b""
    return wire.call("PROFILE", op, how, flags, task, 0, private, shared, cpu, tail=tail)


def estimate(wire, *name, private=0):
    answer = profile(wire, ESTIMATE, name=name, private=private)
    assert answer.name == "PROFILED", answer
    return answer.values


def run(wire, task, name, private, how=DONE):
    """A task that tells what it used; more than what this process grows by meanwhile."""
    assert profile(wire, BEGIN, task, name).name == "PROFILED"
    answer = profile(wire, END, task, how=how, flags=HAS_PRIVATE | HAS_SHARED | HAS_CPU,
                     private=private, shared=private // 2, cpu=30)
    assert answer.name == "PROFILED", answer


def document(wire, op, uid=MINE):
    serial = wire.send("PROFILE_ADMIN", op, uid, 0, 0)
    text = b""
    while True:
        message = wire.reply(serial)
        if message.name != "DATA":
            return message
        text += message.tail
        if not message.values[0]:
            return text.decode()


def kinds(wire, uid=MINE):
    users = json.loads(document(wire, SHOW, uid))["users"]
    return {(u["uid"], k["lang"], k["func"], k["group"]): k for u in users for k in u["kinds"]}


def test_off_is_the_default(make_daemon, place):
    daemon = make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n', http=False)
    with daemon.wire() as wire:
        for answer in (profile(wire, BEGIN, 1, ("c", "f", "")),
                       profile(wire, ESTIMATE, name=("c", "f", "")), document(wire, SHOW)):
            assert answer.name == "REFUSED" and "private = conservative" in answer.text
    result = daemon.admin("profile", "show", check=False)
    assert result.returncode == 1 and "profiles are off" in result.stderr


def test_estimates_follow_what_tasks_used(profiled):
    daemon = profiled()
    with daemon.wire() as wire:
        kind = ("python", "join", "")
        assert estimate(wire, *kind) == (7 * MIB, 0, 0, 0)
        assert estimate(wire, *kind, private=3 * MIB)[0] == 3 * MIB
        run(wire, 1, kind, 400 * MIB)
        assert estimate(wire, *kind) == (500 * MIB, 250 * MIB, 38, 1)  # few say: a quarter more
        for task in range(2, 7):
            run(wire, task, kind, 200 * MIB)
        assert estimate(wire, *kind, private=900 * MIB) == (400 * MIB, 200 * MIB, 30, 6)
        run(wire, 7, kind, 600 * MIB, how=KILLED)
        assert estimate(wire, *kind)[0] == 900 * MIB
        for how in (PREEMPTED, DROPPED):
            run(wire, 8, kind, 5000 * MIB, how=how)
        found = kinds(wire)[(os.getuid(), *kind)]
        assert (found["private"]["n"] == 6 and found["private"]["peak"] == 400 * MIB and
                found["preempted"])
        assert sum(n for _, n in found["private"]["histogram"]) == 6
        # The first to end are those that live shortest: until five are known, no estimate is below
        # the default, if nothing was declared.
        for task in range(20, 24):
            run(wire, task, ("python", "burst", ""), MIB)
            assert (estimate(wire, "python", "burst", "")[0] == 7 * MIB and
                    estimate(wire, "python", "burst", "", private=2 * MIB)[0] == 2 * MIB)
        run(wire, 24, ("python", "burst", ""), MIB)
        assert estimate(wire, "python", "burst", "")[0] == MIB
        # An instance counts for its class, which answers for instances that are not known.
        run(wire, 9, ("python", "make", "A#1"), 80 * MIB)
        assert estimate(wire, "python", "make", "A#2")[0] == estimate(
            wire, "python", "make", "A")[0] == 100 * MIB
        assert estimate(wire, "python", "make", "B")[3] == 0


def test_a_strategy_that_is_not_the_peak(profiled):
    daemon = profiled(private="aggressive")
    with daemon.wire() as wire:
        for task in range(1, 101):
            run(wire, task, ("c", "f", ""), (1000 if task == 1 else 90 if task < 8 else 0) * MIB)
        memory = kinds(wire)[(os.getuid(), "c", "f", "")]["private"]
        assert memory["peak"] == 1000 * MIB
        # The growth of this process counts where nothing was told: some KiB.
        assert abs(estimate(wire, "c", "f", "")[0] / MIB - 15) < 2


BURST = """
import mmap, sys
sys.path.insert(0, sys.argv[1])
import test_profiles as t
with t.Wire(sys.argv[2]) as wire:
    assert t.profile(wire, t.BEGIN, 1, ("python", "burst", "")).name == "PROFILED"
    for line in sys.stdin:
        if line == "take\\n":
            held = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, len(held), 4096):
                held[at] = 1
        elif line == "free\\n":
            held.close()
        else:
            assert t.profile(wire, t.END, 1).name == "PROFILED"
        print("done", flush=True)
"""


def test_the_daemon_sees_what_a_task_frees_before_its_end(profiled):
    """And when in its life it had it. The task is a process of its own, which has no memory from
    before that it could use again."""
    daemon = profiled()
    with daemon.wire() as wire, subprocess.Popen([sys.executable, "-c", BURST,
                                                  str(Path(__file__).parent), daemon.socket],
                                                 stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, text=True,
                                                 env={**os.environ,
                                                      "PYTHONDONTWRITEBYTECODE": "1"}) as task:
        def tell(word):
            task.stdin.write(word + "\n")
            task.stdin.flush()
            assert task.stdout.readline() == "done\n"

        def running():
            return (json.loads(document(wire, SHOW))["running"] or [None])[0]

        begun = wait_for("it begins", running)["age_ms"]
        tell("take")
        wait_for("a sample of it", lambda: running()["private"] >= 30 * MIB)
        tell("free")
        wait_for("a sample without it", lambda: running()["private"] < 16 * MIB)
        until = 4 * running()["age_ms"] + 100
        wait_for("an age", lambda: running()["age_ms"] > until)
        row = running()
        assert ((row["pid"], row["func"]) == (task.pid, "burst") and
                row["private_peak"] >= 30 * MIB and row["age_ms"] > begun)
        tell("end")
        found = kinds(wire)[(os.getuid(), "python", "burst", "")]
        assert 30 * MIB <= found["private"]["peak"] < 64 * MIB
        assert (found["private"]["n"] == 1 and found["shared"]["n"] == 0 and
                found["life_ms"] >= until)
        assert (len(found["phases"]) == 8 and max(found["phases"]) >= 30 * MIB and
                found["phases"][-1] < 16 * MIB)
        task.stdin.close()


def a_client_that_goes_teaches_nothing(daemon):
    with daemon.wire() as bystander:
        with daemon.wire() as wire:
            profile(wire, BEGIN, 1, ("c", "f", ""))
            profile(wire, SAMPLE, 1, private=MIB)
        wait_for("its end", lambda: not json.loads(document(bystander, SHOW))["running"])
        assert kinds(bystander) == {}


def test_wrong_requests_and_texts_in_parts(profiled):
    daemon = profiled()
    a_client_that_goes_teaches_nothing(daemon)
    wrong_requests(daemon)
    texts_in_parts(daemon)


def wrong_requests(daemon):
    with daemon.wire() as wire:
        assert profile(wire, BEGIN, 1, ("c", "f", "")).name == "PROFILED"
        for answer, words in ((profile(wire, BEGIN, 1, ("c", "f", "")), "runs already"),
                              (profile(wire, END, 2), "no task"),
                              (profile(wire, SAMPLE, 2), "no task"),
                              (profile(wire, BEGIN, 3, ("c", "", "")), "a kind of tasks"),
                              (profile(wire, BEGIN, 3, ("c", "f")), "a kind of tasks"),
                              (profile(wire, BEGIN, 3, ("c", "f", "g", "h")), "a kind"),
                              (profile(wire, BEGIN, 3, ("c", "f" * 256, "")), "255 bytes")):
            assert answer.name == "REFUSED" and words in answer.text, answer
        for task in range(2, 1025):
            assert profile(wire, BEGIN, task, ("c", "f", "")).name == "PROFILED"
        assert profile(wire, BEGIN, 2000, ("c", "f", "")).name == "REFUSED"
    for values in ((0, 0, 0, 1, 0), (5, 0, 0, 1, 0), (END, 4, 0, 1, 0), (BEGIN, 1, 0, 1, 0),
                   (END, 0, 0, 0, 0), (END, 0, 8, 1, 0), (END, 0, 0, 1, 1)):
        with daemon.wire() as wire, pytest.raises(Closed):
            wire.call("PROFILE", *values, 0, 0, 0)
    for values in ((0, MINE, 0, 0), (5, MINE, 0, 0), (TEXT, ALL, 0, 0), (LOAD, ALL, 0, 1)):
        with daemon.wire() as wire, pytest.raises(Closed):
            wire.call("PROFILE_ADMIN", *values)


def texts_in_parts(daemon):
    with daemon.wire() as wire, daemon.wire() as other:
        for task in range(1, 200):
            run(wire, task, ("c", f"f{task % 40}", ""), task * MIB)
        text = document(wire, TEXT).encode()
        assert len(text) > 3 * 4095

        def load(at, part, total=len(text), to=wire):
            return to.call("PROFILE_ADMIN", LOAD, MINE, at, total, tail=part)

        for at, part, total in ((0, b"", 10), (0, b"xx", 1), (5, b"x", 10), (0, b"x", 2**24 + 1),
                                (2**63, b"x", 2**63 + 1)):
            assert load(at, part, total).name == "REFUSED"
        before = kinds(wire)
        assert load(0, text[:4000]).name == "DONE"
        # its parts are another connection's
        assert load(4000, text[4000:8000], to=other).name == "REFUSED"
        assert load(4001, text[4001:8000]).name == "REFUSED"
        assert load(4000, text[4000:8000]).name == "REFUSED"  # from there on it begins anew
        assert kinds(wire) == before
        for at in range(0, len(text), 4000):
            assert load(at, text[at:at + 4000]).name == "DONE"
        after = kinds(wire)
        assert after.keys() == before.keys()
        key = (os.getuid(), "c", "f1", "")
        assert (before[key]["private"]["n"] == 5 and after[key]["private"]["n"] == 2 and
                after[key]["private"]["peak"] == 161 * MIB)
        assert wire.call("PROFILE_ADMIN", RESET, MINE, 0, 0).name == "DONE" and not kinds(wire)


def test_restart_and_forged_files(profiled, tmp_path):
    """Saved, restarted: the loaded estimate. Cut off, or changed: a warning, an empty profile, and
    the daemon runs and ends in good order."""
    daemon = profiled()
    kind = ("python", "join", "")
    file = tmp_path / "state" / f"profile-{os.getuid()}"
    with daemon.wire() as wire:
        for task in range(1, 11):
            run(wire, task, kind, 300 * MIB)
    assert not file.exists()
    daemon.stop()
    good = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    daemon.restart()
    with daemon.wire() as wire:
        assert estimate(wire, *kind)[:1] + estimate(wire, *kind)[3:] == (300 * MIB, 5)
    assert "refused" not in daemon.log()
    forged = good.replace(b"private 10 ", b"private 1 ")
    assert forged != good
    for text in (good[:-1], forged):  # more of them: tests/unit/test_profile.c
        daemon.stop()
        file.write_bytes(text)
        os.truncate(daemon.log_path, 0)
        daemon.restart()
        with daemon.wire() as wire:
            assert estimate(wire, *kind) == (7 * MIB, 0, 0, 0)
        assert f"profile-{os.getuid()} is refused" in daemon.log(), text[:40]
        assert file.with_name(file.name + ".refused").read_bytes() == text
    # A file that somebody else may write to, or that is no file, is none of ours.
    # It does not lead us anywhere.
    daemon.stop()
    file.with_name("profile-7").write_bytes(good)
    file.with_name("profile-7").chmod(0o666)
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(good)
    os.truncate(daemon.log_path, 0)
    daemon.restart()
    assert daemon.log().count("is refused") == 2 and not file.is_symlink()
    with daemon.wire() as wire:
        assert estimate(wire, *kind)[3] == 0 and not kinds(wire, ALL)
        run(wire, 1, kind, 100 * MIB)
    daemon.stop()
    assert b"join" in file.read_bytes() and (tmp_path / "elsewhere").read_bytes() == good


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(profiled, tmp_path):
    daemon = profiled(save="10ms")
    file = tmp_path / "state" / f"profile-{os.getuid()}"
    known = 0
    for turn in range(3):
        with daemon.wire() as wire:
            begun = time.monotonic()
            task = 0
            while time.monotonic() - begun < 0.02 + 0.03 * turn:
                task += 1
                run(wire, task, ("c", "f", f"#{task % 50}"), task * MIB)
            if turn == 0:
                wait_for("the first file", file.exists)
            daemon.kill()
        os.truncate(daemon.log_path, 0)
        daemon.restart()
        assert "refused" not in daemon.log()
        with daemon.wire() as wire:
            known = len(kinds(wire))
            assert known > 0
            assert (wire.call("PROFILE_ADMIN", RESET, MINE, 0, 0).name == "DONE" if turn % 2
                    else True)


def test_two_daemons_do_not_share_a_directory(profiled, place):
    first, second = profiled(), profiled(path=f"{place.path}-2")
    assert "another daemon uses the directory" in second.log() and "another" not in first.log()
    with second.wire() as wire:
        run(wire, 1, ("c", "f", ""), MIB)
        assert kinds(wire)
    second.stop()
    shutil.rmtree(f"{place.path}-2")


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_user_sees_and_changes_no_other_profile(profiled, tmp_path):
    daemon = profiled()
    with daemon.wire() as wire:
        run(wire, 1, ("c", "secret", ""), 50 * MIB)
        text = document(wire, TEXT)
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import test_profiles as t
with t.Wire(sys.argv[2]) as wire:
    assert t.kinds(wire) == {}
    assert t.estimate(wire, "c", "secret", "")[3] == 0
    for op in (t.SHOW, t.TEXT, t.RESET, t.LOAD):
        for uid in (0,) if op in (t.TEXT, t.LOAD) else (0, t.ALL):
            answer = wire.call("PROFILE_ADMIN", op, uid, 0, 1, tail=b"x" if op == t.LOAD else b"")
            assert answer.name == "REFUSED" and "root and the daemon" in answer.text, answer
    t.run(wire, 1, ("c", "secret", ""), 9 << 20)
    assert list(t.kinds(wire)) == [(t.NOBODY, "c", "secret", "")]
"""
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), daemon.socket],
                   check=True, timeout=60, user=NOBODY, group=NOBODY,
                   env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, cwd="/")
    with daemon.wire() as wire:
        assert document(wire, TEXT) == text
        assert {k[0]: v["private"]["peak"] for k, v in kinds(wire, ALL).items()} == {
            0: 50 * MIB, NOBODY: 9 * MIB}
    daemon.stop()
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == [
        "profile-0", f"profile-{NOBODY}"]
    daemon.restart()
    with daemon.wire() as wire:
        assert len(kinds(wire, ALL)) == 2


# ---- the tool, the library, Python ---------------------------------------------------------------


def test_the_tool(profiled, tmp_path):
    daemon = profiled()
    file = tmp_path / "saved"
    kind = ("python", "join", "Table\x1b[2J")
    with daemon.wire() as wire:
        for task in range(1, 11):
            run(wire, task, kind, 300 * MIB)
        assert profile(wire, BEGIN, 99, ("c", "runs", "")).name == "PROFILED"
        shown = subprocess.run([str(ADMIN), "profile", "show"], env=daemon.env(),
                               capture_output=True, text=True, timeout=60, check=True).stdout
        assert "300 MiB" in shown and "join" in shown and "runs" in shown and "\x1b[2J" not in shown
        assert daemon.admin("profile", "show")["users"][0]["kinds"][0]["private"]["n"] == 10
        assert daemon.admin("profile", "save", file, check=False).returncode == 0
        assert daemon.admin("profile", "reset", check=False).returncode == 0
        assert estimate(wire, *kind)[3] == 0
        assert daemon.admin("profile", "load", file, check=False).returncode == 0
        assert estimate(wire, *kind)[::3] == (300 * MIB, 5)
        good = file.read_bytes()
        for text, words in ((good[:-2], "checksum"), (b"", "empty"), (b"a\0b", "nul"),
                            (good.replace(b"profile 1", b"profile 9"), "version"),
                            (b"x" * ((16 << 20) + 1), "large")):
            file.write_bytes(text)
            result = daemon.admin("profile", "load", file, check=False)
            assert result.returncode == 1 and words in result.stderr.lower(), result.stderr
        assert estimate(wire, *kind)[::3] == (300 * MIB, 5)
    assert daemon.admin("profile", "save", tmp_path / "no" / "such", check=False).returncode == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("saved")] == ["saved"]
    assert daemon.admin("profile", "show", "--all")["users"][0]["uid"] == os.getuid()
    assert daemon.admin("profile", "forget", check=False).returncode == 2


PYTHON = """
import sys, threading
import shmstore
store = shmstore.Partition(sys.argv[1]).open("worker")
held = None
with store.profiled("burst", group="Table#1") as task:
    assert task.known == (sys.argv[2] == "on")
    held = bytearray(40 << 20)
    held[::4096] = b"x" * len(held[::4096])
    task.sample(48 << 20)
    task.created(1000)
    del held
try:
    with store.profiled("burst") as task:
        raise ValueError("x")
except ValueError:
    pass
try:
    with store.profiled("greedy"):
        raise MemoryError
except MemoryError:
    pass
found = store.estimate("burst", "Table")
if sys.argv[2] == "on":
    assert found.n == 1 and 60 << 20 <= found.private < 80 << 20 and found.shared == 1250, found
    assert store.estimate("burst").n == 0 and store.estimate("other", declared=5).private == 5
    task = store.profiled("thread")
    threading.Thread(target=task.end).start()
    for wrong in ("", "a\\nb", "x" * 256):
        try:
            store.profiled(wrong)
        except OSError as error:
            assert error.errno == 22 and "kind" in str(error), error
        else:
            raise AssertionError(wrong)
else:
    assert found is None
store.close()
store_gone = shmstore.Partition(sys.argv[1]).open("worker")
task = store_gone.profiled("late")
store_gone.close()
task.end()
"""


@pytest.mark.parametrize("on", ["on", "off"])
def test_python(profiled, place, on):
    # The package's stores, too: it is built for Debian's Python.
    python = BUILD / "python"
    if not list(python.glob("shmstore/_shmstore*.so")):
        pytest.skip("the Python package is not built")
    daemon = profiled(private="conservative" if on == "on" else "none")
    env = {**daemon.env(), "PYTHONPATH": str(python), "LD_LIBRARY_PATH": str(BUILD / "libshmstore"),
           "PYTHONDONTWRITEBYTECODE": "1"}
    if SANITIZED:
        pytest.skip("a sanitizer is not preloaded here")
    subprocess.run(["/usr/bin/python3", "-c", PYTHON, place.path, on], env=env, check=True,
                   timeout=60)


LEARNED = """
import sys, time
import numpy as np
import shmstore
MIB = 1 << 20
store = shmstore.Partition(sys.argv[1]).open("worker")
with store.born_shared():
    np.ones(MIB, "u1")
    with store.profiled("born"):
        arrays = [np.ones(8 * MIB, "u1") for _ in range(6)]
        time.sleep(0.05)
        del arrays
born = store.estimate("born").private
assert 48 * MIB <= born < 80 * MIB, born
for _ in range(6):  # malloc keeps what it gets back: no run but the first has the process grow
    with store.admitted("reuse") as task:
        task.created(1000)
        assert len(bytearray(b"x") * (40 * MIB)) == 40 * MIB
found = store.estimate("reuse")
assert found.n == 6 and 38 * MIB <= found.private < 60 * MIB and found.shared == 1000, found
for _ in range(6):
    with store.admitted("nothing"):
        pass
found = store.estimate("nothing")
assert found.n == 6 and 0 < found.private < 8 * MIB, found
try:
    with store.admitted("fails"):
        raise ValueError
except ValueError:
    pass
assert store.estimate("fails").n == 0
"""


def test_what_was_born_shared_or_kept_by_malloc_is_learned_and_admitted_tasks_are_profiled(
        profiled):
    python = BUILD / "python"
    if not list(python.glob("shmstore/_shmstore*.so")) or SANITIZED:
        pytest.skip("the Python package is not built, or a sanitizer is not preloaded here")
    pytest.importorskip("numpy")
    large = Place(size="160m")
    try:
        daemon = profiled(private="aggressive", path=large.path)
        env = {**daemon.env(), "PYTHONPATH": str(python),
               "LD_LIBRARY_PATH": str(BUILD / "libshmstore"), "PYTHONDONTWRITEBYTECODE": "1",
               "PYTHONMALLOC": "malloc", "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
               "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        subprocess.run(["/usr/bin/python3", "-c", LEARNED, large.path], env=env, check=True,
                       timeout=60)
    finally:
        large.remove()
