# SPDX-License-Identifier: Apache-2.0
"""The dashboard's parts that are there where the daemon watches memory, keeps profiles or has
actors, in a real Chromium."""
import browser as chromium
import pytest
import test_profiles as profiles
import webscene
from actorscene import Process, log
from daemon import ACTORD
from gatehost import WAIT, send
from test_daemon_preempt import KILL, Worker, fill, preemption
from test_daemon_pressure import gate, memory, text
from webpage import Page, look_at_part, shared_browser  # noqa: F401
from webscene import MIB

pytestmark = pytest.mark.skipif(chromium.MISSING is not None, reason=chromium.MISSING or "")


@pytest.fixture
def pressed(plain_cluster, monkeypatch):
    """A daemon that watches a made-up host of 128 MiB, and two processes that run tasks there."""
    monkeypatch.setenv("SHMSTORE_SOCKET", "")
    more = text(host_total="128MiB", preempt="shm", preempt_grace="300ms",
                preempt_term="300ms").replace("interval = 20ms", "interval = 100ms")
    daemon = webscene.start(plain_cluster.place.path, more=more + "\n")
    workers = []
    try:
        for level in ("NEVER", "HIGH"):
            workers.append(Worker(daemon, level))
            fill(daemon, workers[-1], 30)
        yield daemon, *workers
    finally:
        for worker in workers:
            worker.close()
        daemon.close()


# Where the lines are, in pixels from the top, and what the legend says of each.
MARKS = """
const y = (e) => Number(e.getAttribute('y1'));
const zero = Math.max(...[...document.querySelectorAll('#host-chart .grid')].map(y));
return Object.fromEntries(['kill', 'gate', 'low'].map((name) => [name, {
  above: zero - y(document.querySelector(`#host-chart .m-${name}`)),
  bytes: Number(document.querySelector(`#host-legend .m-${name} ~ .value`).dataset.bytes)}]));"""


def test_the_hosts_memory_its_gate_and_who_gave_way(shared_browser, pressed):
    daemon, never, high = pressed
    page = Page(shared_browser, daemon)
    page.wait("!document.getElementById('host-part').hidden && "
              "document.querySelectorAll('#host-chart path.area').length === 3", "its chart")
    marks, said = page.browser.run(MARKS), memory(daemon)
    assert {name: mark["bytes"] for name, mark in marks.items()} == {
        name: said[name] for name in marks}
    (kill, gated, low) = (marks[name] for name in ("kill", "gate", "low"))
    assert kill["above"] > gated["above"] > low["above"] > 0
    assert all(abs(mark["above"] / mark["bytes"] * kill["bytes"] - kill["above"]) < 0.01
               for mark in marks.values()), "the lines are to scale"
    used = "Number(document.querySelector('#host-legend .s-used ~ .value').dataset.bytes)"
    assert abs(page.run(used) - said["used"]) < MIB
    with daemon.wire() as wire:
        send(wire, form=WAIT, declared=100 * MIB)
        page.wait("document.getElementById('gate-line').dataset.waiting === '1'",
                  "the one that waits")
        page.wait("/2 tasks run · 1 waits, the oldest for [2-9] "
                  "s/.test(document.getElementById('gate-line').textContent)", "how long it waits")
        assert page.run(
            "document.getElementById('gate').textContent") == f"gate {gate(daemon)['state']}"
        assert page.run("document.getElementById('h-preempted').hidden") is True
        never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 2}")
        high.process.wait(60)
        page.wait("!!document.querySelector('#preempted tbody .tag') && "
                  "document.querySelector('#preempted tbody .tag').textContent === 'ended'",
                  "who gave way")
    (recent,) = preemption(daemon)["recent"]
    (row,) = page.run("[...document.querySelectorAll('#preempted tbody tr')].map((tr) => "
                      "Object.fromEntries([...tr.cells].map((td) => [td.dataset.label, "
                      "td.textContent])))")
    assert (row["PID"], row["Tasks"], row["Why"], row["Try again"]) == (
        str(high.pid), "1", recent["why"], "after 1 s")
    assert page.run("Number(document.querySelector('#preempted [data-label=Frees] "
                    "[data-bytes]').dataset.bytes)") == recent["bytes"] > 25 * MIB
    page.wait("document.getElementById('host-of').textContent.includes('1 time above what "
              "preempts')", "how often it was above")
    assert {"preempt", "admission", "memory"} <= set(page.figures()["events"])
    look_at_part(shared_browser, page, "host")
    assert page.run("[...document.querySelectorAll('#preempted td')].every((td) => "
                    "td.checkVisibility() && td.getBoundingClientRect().right <= 360)")
    page.end()
    shared_browser.get("about:blank")


CELLS = ("[...document.querySelectorAll('#%s tbody tr')].map((tr) => "
         "Object.fromEntries([...tr.cells].map((td) => [td.dataset.label, td.textContent])))")
BARS = ("[...document.querySelectorAll('#kinds [data-label=\"%s\"] rect')].map((r) => "
        "Number(r.dataset.value))")


def test_actors_and_what_tasks_use(shared_browser, plain_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("SHMSTORE_SOCKET", "")
    more = (f'profile {{ private = conservative\n directory = "{tmp_path}" }}\npeers {{ name = '
            f'here\n listen = "{tmp_path}/peers" }}\n')
    daemon = webscene.start(plain_cluster.place.path, more=more, program=ACTORD)
    process = Process(daemon, plain_cluster.place.path, "first", log("tally", 8192))
    try:
        page = Page(shared_browser, daemon)
        page.wait("document.querySelectorAll('#actors tbody tr').length === 1", "the actor")
        assert page.run("document.getElementById('kinds-part').hidden") is True
        (row,) = page.run(CELLS % "actors")
        assert row == {"Actor": "tally", "User": row["User"], "State": "active",
                       "Where": f"first, process {process.pid}", "Waiting": "0", "Running": "0",
                       "Copies": "none"}
        assert "this daemon is here, and alone" in page.run(
            "document.getElementById('actors-line').textContent")
        kind = ("python", "join<b>", "Tables#7")
        with daemon.wire() as wire:
            for task in range(8):
                profiles.run(wire, task + 1, kind, (100 if task < 6 else 800) * MIB)
        page.wait("document.querySelectorAll('#kinds tbody tr').length === 2",
                  "the kind, and its class")
        row = next(r for r in page.run(CELLS % "kinds") if r["Kind"] == "join<b> (Tables#7)")
        assert (row["Tasks"], row["Peak"], row["Next"], row["Average"]) == (
            "8", "800\u00a0MiB", "800\u00a0MiB", "275\u00a0MiB")
        steps = page.run(BARS % "Distribution")
        # from 96 to 768 MiB: three powers of two, in four steps each
        assert [n for n in steps if n] == [6, 2, 6, 2] and len(steps) == 2 * 13
        look_at_part(shared_browser, page, "actors")
        process.kill()
        page.wait("document.getElementById('actors').tBodies[0].rows.length === 0", "its end")
        page.end()
        shared_browser.get("about:blank")
    finally:
        if process.popen.poll() is None:
            process.kill()
        daemon.close()
