# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin watch: each event once and in order, from where it was, until an end."""
import json
import os
import re
import time
from pathlib import Path

from admin_asked import Watch, bare, by_name, host  # noqa: F401
from admin_support import actors  # noqa: F401
from daemon import wait_for


def test_watch_tells_what_happens(host, actors):
    with Watch(host) as w:
        w.begun(host)
        actor = actors(host.admin, "s", "-")
        came = w.event("store-came", name="s")
        assert (came["pid"] == actor.pid and came["path"] == f"{host.path}/stores/s" and
                abs(came["time"] - time.time()) < 60)
        actor.kill()
        went, reaped = w.event("store-went", name="s"), w.event("store-reaped", name="s")
        assert came["sequence"] < went["sequence"] < reaped["sequence"]
        host.admin("set", "soft=32MiB")
        w.event("limit-set")
        code, out, err = w.end()
        assert (code, err) == (0, "") and (out == b"" or out.endswith(b"}\n"))
    assert not Path(came["path"]).exists()


def test_watch_goes_on_where_it_was(host, actors):
    for name in ("a", "b", "c"):
        actors(host.admin, name, "-")("close")
    wait_for("the last one", lambda: not by_name(host.admin.json("workers")))
    last = host.admin.json("status")["daemon"]["events"]
    n = sum(last.values())
    lines = [json.loads(line) for line in host.admin("--json", "watch", "--since", "0", "--count",
                                                     str(n)).out.splitlines()]
    assert [e["sequence"] for e in lines] == list(range(1, n + 1))
    middle = n // 2
    rest = host.admin("--json", "watch", "--since", middle, "-n", str(n - middle)).out.splitlines()
    assert [json.loads(line) for line in rest] == lines[middle:]
    came = [e for e in lines if e["event"] == "store-came"]
    only = host.admin("--json", "watch", "--since=0", "--events=store-came",
                      f"--count={len(came)}").out.splitlines()
    assert ([json.loads(line) for line in only] == came and {e["name"] for e in came} == {
        "a", "b", "c"})
    text = host.admin("watch", "--since=0", "--events=store-came",
                      f"--count={len(came)}").out.splitlines()
    assert (all(re.match(r"\d\d:\d\d:\d\d store-came  partition=", line) for line in text) and
            len(text) == len(came))


def test_watch_ends(host, actors):
    r = host.admin("watch", "--events", "store-came,frobnicated", code=1)
    assert '"frobnicated" is no event; there are: daemon-started, store-came' in r.err
    with Watch(host, "--since", 0) as w:
        w.event("daemon-started")
        host.daemon.stop()
        code, _, err = w.wait()
        assert code == 1 and err.startswith("shmstore-admin: ")
    host.daemon.restart()
    with Watch(host, "--since", 0) as w:
        w.event("daemon-started")
        host.daemon.kill()
        code, _, err = w.wait()
        assert code == 1 and f"no daemon answers at {host.daemon.socket}" in err
    host.daemon.restart()


def test_a_full_ring_reaches_a_slow_reader(host):
    """More than may wait for a client: it is sent on as the client reads, and
    nothing is lost or twice."""
    kept, spare = 1024, "x" * 900
    with host.daemon.wire() as w:
        for i in range(kept + 100):
            assert w.call("SET", 0,
                          tail=f"label.{i}{spare[:100]}.soft=1MiB".encode()).name == "DONE"
    last = host.admin.json("status")["daemon"]["events"]["limit-set"] + 1  # and daemon-started
    with host.daemon.wire() as w:
        assert w.call("WATCH", 0).name == "DONE"
        host.admin("set", "soft=1MiB")  # while the ring waits for us
        wait_for("the daemon to be done with us", lambda: host.admin.json("status"))
        numbers = []
        while not numbers or numbers[-1] < last + 1:
            m = w.unasked.pop(0) if w.unasked else w.receive()
            assert m.name == "EVENT"
            numbers.append(m.values[0])
    assert numbers == list(range(numbers[0], last + 2)) and len(numbers) in (kept, kept + 1)


def test_a_number_of_an_earlier_life_means_from_now_on(host):
    with host.daemon.wire() as w:
        assert w.call("WATCH", 10**9).name == "DONE"
        host.admin("set", "soft=1MiB")
        assert json.loads(w.receive().text)["event"] == "limit-set"


def test_watch_stops_with_its_reader(host):
    """As in "watch | head -1": the writer ends when there is nobody to read."""
    with Watch(host, "--since", 0) as w:
        w.event("daemon-started")
        w.process.stdout.close()
        host.admin("set", "soft=1MiB")
        assert w.process.wait(30) != 0
        w.process.stdout = open(os.devnull, "rb")  # closed again at the end
