# SPDX-License-Identifier: Apache-2.0
"""Two programs: shmstored, which keeps no actors and knows no other daemons, and says so, and
shmstore-actord, which runs in its place."""
import errno
import subprocess

import pytest
from actorscene import Process, again, log
from daemon import ACTORD, ADMIN, BODIES, SHMSTORED, Daemon, wait_for
from peerscene import as_client_of

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")

shmstore = pytest.importorskip("shmstore")


@pytest.fixture
def daemon(make_daemon, place):
    return make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n')


def is_told(text):
    return "shmstored, which keeps no actors: shmstore-actord does" in text


@pytest.mark.parametrize("name, values, tail", [
    ("ACTOR_PLACE", (1 << 20, 0, 0), b"p"), ("ACTOR_BORN", (0, 0, 0, 1, 0, 8), b"a"),
    ("ACTOR_NEXT", (0,), b""), ("ACTOR_DONE", (1, 0, 0, 1, 1), b"a"), ("ACTOR_CALL", (1, 0), b"a"),
    ("ACTOR_MOVE", (0,), b"a\nq"), ("QUERY", (48, 0), b"")])
def test_shmstored_refuses_what_is_asked_about_actors(daemon, name, values, tail):
    """The connection goes on."""
    assert name in BODIES
    with daemon.wire() as wire:
        answer = wire.call(name, *values, tail=tail)
        assert answer.name == "REFUSED" and answer.values[0] == -errno.ENOTSUP, answer
        assert is_told(answer.tail.decode())
        assert wire.query("gate")["gate"] == {"enabled": False}


def test_a_program_is_told_why_it_has_no_place_and_no_actor(daemon, place):
    with as_client_of(daemon), shmstore.Partition(place.path).open("s") as store:
        for ask in (lambda: store.place("p"), lambda: store.actor("a").call("add", 1)):
            with pytest.raises(shmstore.Error) as told:
                ask()
            assert told.value.errno == errno.ENOTSUP and is_told(str(told.value))
        store.put("k", b"all else works")
        assert bytes(store.get("k")) == b"all else works"


def test_tools_and_documents_of_shmstored_have_no_actors(daemon):
    asked = daemon.admin("actors", check=False)
    assert asked.returncode == 1 and is_told(asked.stderr), asked
    assert daemon.api("actors")["actors"] == {}
    assert "shmstore_actor" not in daemon.get("/metrics")


@pytest.mark.parametrize("key", ("listen", "connect"))
def test_shmstored_does_not_start_where_other_daemons_are_configured(place, tmp_path, key):
    config = (f'peers {{ name = a\n {key} = "{tmp_path}/peers" }}\n'
              f'partition "{place.path}" {{ create = yes }}\n')
    daemon = Daemon(config=config, start=False)
    try:
        with pytest.raises(AssertionError, match="ended with 2"):
            daemon.start()
        assert "run shmstore-actord in its place" in daemon.log()
        daemon.program = ACTORD
        daemon.start()
    finally:
        daemon.close()


def test_one_takes_the_place_of_the_other_and_nothing_is_lost(make_daemon, place):
    """The process keeps its actor while shmstored runs, and tells the next shmstore-actord."""
    daemon = make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n', program=ACTORD)
    process = Process(daemon, place.path, "first", log("log", 8192), fate="refused=wait")
    with as_client_of(daemon), shmstore.Partition(place.path).open("caller") as store:
        assert store.actor("log").call("add", 0) == (process.pid, 1)
        store.put("k", b"kept")
        daemon.kill()
        daemon.program = SHMSTORED
        daemon.restart()

        def refused():
            with pytest.raises(shmstore.Error) as told:
                store.actor("log").call("add", 1)
            return is_told(str(told.value))
        wait_for("the store has found shmstored", refused)
        assert bytes(store.get("k")) == b"kept"
        daemon.kill()
        daemon.program = ACTORD
        daemon.restart()
        assert again(store.actor("log"), "add", 1) == (process.pid, 2)
    process.kill()


def test_only_one_of_them_is_linked_with_gnutls():
    wanted = {program: "gnutls_" in subprocess.run(
        ["nm", "-D", "--undefined-only", program], capture_output=True, text=True,
        check=True).stdout for program in (SHMSTORED, ACTORD)}
    assert wanted == {SHMSTORED: False, ACTORD: True}


def test_each_says_which_it_is():
    for program in (SHMSTORED, ACTORD):
        said = subprocess.run([str(program), "--version"], capture_output=True, text=True,
                              check=True).stdout
        assert said.startswith(program.name + " ")
    said = subprocess.run([str(ADMIN), "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[1:] == subprocess.run(
        [str(ACTORD), "--version"], capture_output=True, text=True, check=True).stdout.split()[1:]
