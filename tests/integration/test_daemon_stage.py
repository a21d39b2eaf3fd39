# SPDX-License-Identifier: Apache-2.0
"""Stage profiles in a real daemon, with workers that are processes of their own and open their
stores by the Python package: what a stage gets, what it has to wait for, and that the base is back
after whatever ended it."""
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from daemon import ADMIN, SHMSTORED, wait_for
from fixture import BUILD, NOBODY, ROOT, SANITIZED, Place

MIB = 1 << 20
PACKAGE = BUILD / "python"
pytestmark = [
    pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built"),
    pytest.mark.skipif(not list(PACKAGE.glob("shmstore/_shmstore*.so")),
                       reason="the Python package is not built"),
    pytest.mark.skipif(SANITIZED, reason="a sanitizer is not preloaded here"),
]


class Failed(Exception):
    """The error that a worker's code ended with."""

    def __init__(self, name, errno, text):
        super().__init__(f"{name}: {text}")
        self.name, self.errno = name, errno


class Worker:
    """A process with a store; worker(code) runs that there, and gives what it calls `result`."""

    def __init__(self, daemon, path, name):
        env = {**daemon.env(), "PYTHONPATH": str(PACKAGE),
               "LD_LIBRARY_PATH": str(BUILD / "libshmstore"), "PYTHONDONTWRITEBYTECODE": "1",
               "PYTHONMALLOC": "malloc", "MALLOC_TRIM_THRESHOLD_": "0"}
        self.process = subprocess.Popen(["/usr/bin/python3",
                                         str(Path(__file__).with_name("stageworker.py")), path,
                                         name], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self("result = None")

    def send(self, code):
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def receive(self):
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Failed(answer["error"], answer["errno"], answer["text"])
        return answer["result"]

    def __call__(self, code):
        self.send(code)
        return self.receive()

    def query(self, name, **ask):
        return Profile(self(f"result = store.stage_profile({name!r}, **{ask!r})"))

    def begin(self, name, profile, **how):
        return Profile(self(f"stage = store.stage({name!r}, {profile}, **{how!r}); result = "
                            f"stage.begin()"))

    def end(self):
        return Profile(self("stage.end(); result = stage.profile"))

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.kill()
            self.process.stdout.close()


class Profile:
    """StageProfile, as it comes out of a worker."""

    def __init__(self, values):
        (self.number, self.rules, self.clamped, self.degraded, self.slots, self.private,
         self.shared, self.expires_ms) = values

    @property
    def mib(self):
        return self.private // MIB, self.shared // MIB, self.slots


class Scene:
    def __init__(self, daemon, path):
        self.daemon, self.path, self.workers = daemon, path, []

    def worker(self, name):
        self.workers.append(Worker(self.daemon, self.path, name))
        return self.workers[-1]

    def document(self):
        return self.daemon.admin("stage")["partitions"][0]

    def session(self, name):
        return next((s for s in self.document()["sessions"] if s["store"] == name), None)

    def limit(self, name):
        """Of a store, where it has one."""
        limits = self.daemon.admin("quota")["partitions"][0]["limits"]
        return next((line["hard"] for line in limits if line["kind"] == "store" and
                     line["id"] == name), None)

    def events(self):
        with self.daemon.wire() as wire:
            return [(e["store"], e["state"]) for e in wire.query("events")["events"]
                    if e["event"] == "stage"]


@pytest.fixture
def scene(make_daemon):
    """scene(keys of stage, text before it, size=…): a partition, its daemon, and workers."""
    places, scenes = [], []

    def make(keys="", text="", size="64m", http=False):
        places.append(Place(size=size))
        path = places[-1].path
        daemon = make_daemon(config=f'{text}\nstage {{ enabled = yes\n{keys} }}\npartition '
                                    f'"{path}" {{ create = yes }}\n', http=http)
        scenes.append(Scene(daemon, path))
        return scenes[-1]

    try:
        yield make
    finally:
        for one in scenes:
            for worker in one.workers:
                worker.close()
        for place in places:
            place.remove()


# ---- what it is for ------------------------------------------------------------------------------


PICKLED = """
import pickle
arbiter = store.arbiter
frames = pickle.dumps([os.urandom(MIB // 2) for _ in range(80)])   # 40 MiB that cannot be shared
pool = arbiter.pool("private", store.stage_profile("load", fallback="none").private)
stage = store.stage("load", {profile}, pool=pool)
try:
    stage.begin()
    with arbiter.task():
        with arbiter.reserve(len(frames), pool):
            result = sum(map(len, pickle.loads(frames)))
finally:
    stage.end()
    after = stage.profile.private
    pool.remove()
"""


def test_what_cannot_be_shared_fails_under_the_base_and_runs_under_whole(scene):
    scene = scene("private = 32MiB\nshared = 64MiB\nworkers = 1", text="arbiter { enabled = yes }")
    worker = scene.worker("a")
    profile = worker.query("load", nonshare=1.0)
    assert profile.rules == ["whole"] and profile.mib == (64, 6, 1) and not profile.clamped
    with pytest.raises(Failed) as failed:
        worker(PICKLED.format(profile=0))
    assert failed.value.name == "TooBig"
    assert worker(PICKLED.format(profile=profile.number)) == 40 * MIB
    assert worker("result = after") == 32 * MIB


def test_task_that_declares_more_than_its_stage_is_not_admitted(scene):
    scene = scene("private = 32MiB\nshared = 64MiB\nworkers = 1")
    worker = scene.worker("a")
    ask = "with store.admitted('load', declared={} * MIB) as task: result = task.reason"
    # nobody watches the host's memory: only the budget holds anybody back
    assert worker(ask.format(32)) == "off"
    with pytest.raises(Failed) as failed:
        worker(ask.format(40))
    assert failed.value.name == "NotAdmitted" and "too-big" in str(failed.value)
    worker.begin("load", worker.query("load", nonshare=1.0).number)
    assert worker(ask.format(40)) == "off"
    with pytest.raises(Failed):
        worker(ask.format(65))
    worker.end()
    with pytest.raises(Failed):
        worker(ask.format(40))


JOB = """
with store.admitted('task', declared=int(1.5 * {private})):
    store.put('out', bytes(int({share} * {shared})), replace=True)
result = 'done'
"""


@pytest.mark.parametrize(("rule", "share", "other"),
                         [("whole", 0.02, None), ("partial", 0.4, "whole")])
def test_at_the_defaults_each_rule_has_a_job_that_fails_without_it(scene, rule, share, other):
    """docs/governor.md: outside of stages its task is too big; by the
    other rule what it puts is."""
    scene = scene("")
    worker = scene.worker("a")
    base = scene.document()["base"]
    job = JOB.format(**base, share=share)
    with pytest.raises(Failed, match="too-big.*GiB are expected"):
        worker(job)
    if other:
        worker.begin("job", worker.query("job", fallback=other).number)
        with pytest.raises(Failed) as failed:
            worker(job)
        assert failed.value.errno == 122
        worker.end()
    profile = (worker.query("job", nonshare=1.0) if rule == "whole"
               else worker.query("job", native=2, other=3))
    assert profile.rules == [rule]
    worker.begin("job", profile.number)
    assert worker(job) == "done"


# ---- the base is back ----------------------------------------------------------------------------


def begun(scene, name="a"):
    worker = scene.worker(name)
    profile = worker.query("load", fallback="whole")
    granted = worker.begin("load", profile.number)
    assert granted.mib == (64, 6, 1) and not granted.degraded
    assert scene.session(name)["state"] == "running" and scene.limit(name) == 6 * MIB
    with pytest.raises(Failed) as failed:
        worker("store['x'] = bytes(7 * MIB)")
    assert failed.value.errno in (28, 122)
    return worker


BASE = "private = 32MiB\nshared = 64MiB\nworkers = 2"


def test_base_is_back_after_the_stage(scene):
    scene = scene(BASE)
    worker = begun(scene)
    assert worker.end().mib == (32, 64, 1)
    assert (scene.session("a")["state"] == "base" and scene.limit("a") is None and
            scene.document()["held"] == 96 * MIB)
    worker("store['x'] = bytes(7 * MIB)")
    assert scene.events() == [("a", "begun"), ("a", "ended")]


def test_base_is_back_after_a_kill_of_the_worker(scene):
    scene = scene(BASE)
    begun(scene).kill()
    wait_for("it is gone", lambda: not scene.document()["sessions"])
    assert scene.document()["held"] == 0 and scene.limit("a") is None
    assert scene.events()[-1] == ("a", "left")
    begun(scene).end()


def test_base_is_back_after_a_kill_of_the_daemon(scene):
    scene = scene(BASE)
    worker = begun(scene)
    scene.daemon.kill()
    scene.daemon.restart()
    assert not scene.document()["sessions"] and scene.document()["held"] == 0
    worker("stage.end(); result = None")  # the daemon's death has ended it: no error
    wait_for("it registered again", lambda: worker("result = store.stage_profile('load') is not "
                                                   "None"))
    assert scene.limit("a") is None
    worker("store['x'] = bytes(7 * MIB)")
    assert worker.query("load", fallback="whole").mib == (64, 6, 1)
    with pytest.raises(Failed) as failed:
        worker.begin("load", 9)  # a number of the life before means nothing
    assert failed.value.errno == 2


def test_a_limit_that_somebody_set_meanwhile_stays(scene):
    scene = scene(BASE)
    worker = begun(scene)
    subprocess.run([str(ADMIN), "set", "store.a.limit=9MiB"], env=scene.daemon.env(), check=True,
                   timeout=60)
    worker.end()
    assert scene.limit("a") == 9 * MIB
    granted = worker.begin("load", worker.query("load", fallback="partial").number)
    assert granted.mib[1] == 32 and scene.limit("a") == 9 * MIB  # an operator's is not widened
    worker.end()
    assert scene.limit("a") == 9 * MIB


# ---- several workers -----------------------------------------------------------------------------


TWO = "private = 32MiB\nshared = 16MiB\nworkers = 2\ncap = 96MiB\ntotal = 113MiB\nwait-ms = 400"


class Watch:
    """Looks at what is held as often as it can, until it is closed."""

    def __init__(self, scene):
        self.scene, self.most, self.n, self.stop = scene, 0, 0, False
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    def look(self):
        with self.scene.daemon.wire() as wire:
            while not self.stop:
                document = wire.query("stages")["partitions"][0]
                self.most = max(self.most, document["held"],
                                sum(s["private"] + s["shared"] for s in document["sessions"]))
                self.n += 1

    def close(self):
        self.stop = True
        self.thread.join(60)


def test_two_workers_stay_within_the_total_and_wait_no_longer_than_configured(scene):
    scene = scene(TWO)
    watch = Watch(scene)
    a, b = scene.worker("a"), scene.worker("b")
    try:
        whole = a.query("load", fallback="whole")
        assert whole.mib == (64, 1, 1)
        assert not a.begin("load", whole.number).degraded
        before = time.monotonic()
        granted = b.begin("load", whole.number)
        waited = time.monotonic() - before
        assert 0.39 <= waited < 5 and granted.degraded and granted.mib == (48, 0, 1)
        assert scene.session("b")["state"] == "degraded" and scene.document()["held"] == 113 * MIB
        base = b.end()
        assert base.mib == (32, 16, 1) and not base.degraded
        a.end()
        # A waiting worker is served as soon as there is room.
        a.begin("load", whole.number)
        b.send(f"stage = store.stage('load', {whole.number}); result = stage.begin()")
        wait_for("it waits", lambda: scene.session("b")["state"] == "waiting")
        a.end()
        assert not Profile(b.receive()).degraded
        b.end()
    finally:
        watch.close()
    assert watch.n > 20 and watch.most == 113 * MIB
    assert scene.events().count(("b", "degraded")) == 1


def test_at_the_defaults_no_store_starves_and_nobody_waits(scene):
    scene = scene("private = 100MiB\nshared = 40MiB\nworkers = 2\nwait-ms = 60000")
    workers = [scene.worker("a"), scene.worker("b")]
    for worker in workers:
        partial = worker.query("load", nonshare=0.5)
        assert partial.rules == ["partial"] and partial.mib == (200, 20, 1) and not partial.clamped
        assert not worker.begin("load", partial.number, wait=60).degraded
    assert scene.document()["begun_after_wait"] == 0
    assert workers[0].query("load", nonshare=1.0).mib == (200, 4, 1)


def test_a_worker_that_dies_gives_way_to_who_waits(scene):
    scene = scene(TWO.replace("wait-ms = 400", "wait-ms = 60000"))
    a, b = scene.worker("a"), scene.worker("b")
    whole = a.query("load", fallback="whole")
    a.begin("load", whole.number)
    b.send(f"stage = store.stage('load', {whole.number}); result = stage.begin()")
    wait_for("it waits", lambda: (scene.session("b") or {}).get("state") == "waiting")
    a.kill()
    assert not Profile(b.receive()).degraded
    assert scene.document()["held"] == 65 * MIB
    # A worker that dies while it waits leaves nothing behind.
    c = scene.worker("c")
    c.send(f"stage = store.stage('load', {whole.number}); result = stage.begin()")
    wait_for("it waits", lambda: (scene.session("c") or {}).get("state") == "waiting")
    c.kill()
    wait_for("it is gone", lambda: scene.session("c") is None)
    assert scene.document()["held"] == 65 * MIB and scene.document()["waiting"] == 0


def test_no_wait_at_all(scene):
    scene = scene(TWO.replace("wait-ms = 400", "wait-ms = 60000"))
    a, b = scene.worker("a"), scene.worker("b")
    whole = a.query("load", fallback="whole")
    a.begin("load", whole.number)
    assert b.begin("load", whole.number, wait=0).degraded


# ---- ids, two profiles, and what runs used -------------------------------------------------------


def test_numbers_and_repeated_queries(scene):
    scene = scene(BASE)
    worker = scene.worker("a")
    whole = worker.query("x", fallback="whole")
    assert worker.query("x", other=1).number == 0 or worker.query("x", other=1).rules == ["whole"]
    assert worker.query("y", fallback="whole").number == whole.number > 0
    assert worker.query("y", native=9).number == 0 and worker.query("y", native=9).rules == []
    partial = worker.query("y", native=1, other=1)
    assert (partial.rules == ["partial"] and partial.mib == (64, 32, 1) and
            partial.number not in (0, whole.number))
    # Each starts from the base, also in a stage.
    worker.begin("x", whole.number)
    assert worker.query("x", fallback="whole").mib == whole.mib
    with pytest.raises(Failed) as failed:
        worker.begin("x", whole.number)
    assert failed.value.errno == 16
    assert sorted(p["profile"] for p in scene.document()["profiles"]) == [0, 1, 2]


@pytest.mark.parametrize(("conflict", "expected"), [("error", None), ("max", (64, 32, 1)),
                                                    ("host", (64, 32, 1))])
def test_two_profiles_in_one_stage(scene, conflict, expected):
    scene = scene(BASE + f"\nconflict = {conflict}")
    worker = scene.worker("a")
    whole, partial = worker.query("x", fallback="whole"), worker.query("x", fallback="partial")
    if expected is None:
        with pytest.raises(Failed) as failed:
            worker.begin("x", whole.number, other=partial.number)
        assert failed.value.errno == 17 and scene.session("a") is None
        assert "stage.conflict" in str(failed.value) and "replace=True" not in str(failed.value), (
            failed.value)
    else:
        assert worker.begin("x", whole.number, other=partial.number).mib == expected
        worker.end()
    assert worker.begin("x", whole.number, other=whole.number).mib == whole.mib


def test_first_is_as_gluten_does_it(scene):
    scene = scene(BASE + "\nmode = first\nprivate-ratio = 3.0")
    worker = scene.worker("a")
    assert worker.query("x", other=1).mib == (96, 6, 1)  # 102 of 96: nothing bounds it
    assert worker.query("x", other=1, root="final").number == 0


# ---- users, and what is shown --------------------------------------------------------------------


@pytest.mark.skipif(not ROOT, reason="needs another user")
def test_another_user_sees_no_stage_and_ends_none(scene):
    scene = scene(BASE, text="daemon { socket-mode = 0666 }")
    begun(scene)
    number = scene.session("a")["session"]
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon import Wire
with Wire(sys.argv[2]) as wire:
    document = wire.query("stages")["partitions"][0]
    assert document["sessions"] == [] and document["running"] == 1, document
    answer = wire.call("STAGE_END", int(sys.argv[3]))
    assert answer.name == "REFUSED" and answer.values[0] == -1, answer
    assert "root and the daemon" in answer.text, answer
    answer = wire.call("STAGE_QUERY", 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, tail=b"x")
    assert answer.name == "REFUSED" and answer.values[0] == -2, answer
"""
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), scene.daemon.socket,
                    str(number)], check=True, timeout=60, user=NOBODY,
                   group=NOBODY, extra_groups=[])
    assert scene.session("a")["state"] == "running"
    subprocess.run([str(ADMIN), "stage", "--end", str(number)], env=scene.daemon.env(), check=True,
                   timeout=60)
    assert scene.session("a")["state"] == "base"
    result = scene.daemon.admin("stage", "--end", str(number), check=False)
    assert result.returncode == 1 and "no stage runs" in result.stderr


def test_what_is_shown(scene):
    scene = scene(BASE, http=True)
    worker = begun(scene)
    text = subprocess.run([str(ADMIN), "stage"], env=scene.daemon.env(), capture_output=True,
                          text=True, timeout=60, check=True).stdout
    assert "load" in text and "running" in text and "64 MiB" in text.replace("64.0 MiB", "64 MiB")
    api = scene.daemon.api("stages")["partitions"][0]
    assert (api["enabled"] and api["configured"]["private_ratio_ppm"] == 2000000 and
            api["base"] == {"private": 32 * MIB, "shared": 64 * MIB, "slots": 1})
    metrics = scene.daemon.get("/metrics")
    for line in ("shmstore_stage_running", "shmstore_stage_begun_total",
                 "shmstore_stage_held_bytes"):
        assert line in metrics
    worker.end()


def test_off_is_the_default(make_daemon):
    place = Place(size="16m")
    try:
        daemon = make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n', http=False)
        worker = Worker(daemon, place.path, "a")
        try:
            assert worker.query("x", fallback="whole").number == 0
            base = worker.begin("x", 0)
            assert base.number == 0 and worker.end().mib == base.mib
        finally:
            worker.close()
        result = daemon.admin("stage", check=False)
        assert result.returncode == 1 and "stage { enabled = yes }" in result.stderr
    finally:
        place.remove()


def test_reload_changes_rules_and_no_base(scene):
    scene = scene(BASE)
    worker = scene.worker("a")
    config = Path(scene.daemon.config).read_text(encoding="utf-8")
    scene.daemon.write_config(config.replace("workers = 2", "workers = 2\nprivate-ratio = 1.5"))
    scene.daemon.reload()
    wait_for("it is read", lambda: worker.query("x", fallback="whole").mib == (48, 6, 1))
    scene.daemon.write_config(config.replace("private = 32MiB", "private = 40MiB"))
    scene.daemon.reload()
    wait_for("it is refused", lambda: "outside of stages, which needs a restart" in
             scene.daemon.log())
    assert os.getpid() and scene.document()["base"]["private"] == 32 * MIB


def test_without_a_daemon(tmp_path):
    place = Place(size="16m")
    try:
        class Nobody:
            @staticmethod
            def env():
                return {**os.environ, "SHMSTORE_SOCKET": str(tmp_path / "nobody")}

        worker = Worker(Nobody, place.path, "a")
        try:
            assert worker("result = store.stage_profile('x')") is None
            worker("with store.stage('x', None) as stage:\n    assert stage.profile is None")
        finally:
            worker.close()
    finally:
        place.remove()
