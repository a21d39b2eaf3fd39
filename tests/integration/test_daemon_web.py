# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real Chromium: what it shows is to the byte what shmstore-admin says; it
lives; it is readable in the light, in the dark and on a phone; nothing leaves the host."""
import os
import subprocess
import tempfile

import browser as chromium
import pytest
import webscene
from arbwire import Client
from daemon import wait_for
from fixture import BUILD
from webpage import CONTRASTS, DARK, LIGHT, Page, shared_browser  # noqa: F401
from webscene import MIB, TERMS, WORKER

pytestmark = pytest.mark.skipif(chromium.MISSING is not None, reason=chromium.MISSING or "")


@pytest.fixture
def scene(plain_cluster, monkeypatch):
    monkeypatch.setenv("SHMSTORE_SOCKET", "")
    daemon = webscene.start(plain_cluster.place.path,
                            partition="limit = 400MiB\n soft = 100MiB\n ghost-age = 1s\n user root "
                                      "{ limit = 300MiB }")
    try:
        scene = webscene.Scene(plain_cluster, daemon)
        yield scene
        scene.end()
    finally:
        daemon.close()


@pytest.fixture
def page(shared_browser, scene):
    page = Page(shared_browser, scene.daemon)
    yield page
    page.end()
    shared_browser.get("about:blank")


def test_to_the_byte_what_admin_says(page, scene):
    wait_for("credit that nobody uses is given back", lambda: not any(
        worker["credit"]["outstanding"] for worker in scene.daemon.admin(
            "workers")["partitions"][0]["workers"]))
    shown = page.surveyed()
    status = scene.daemon.admin("status")["partitions"][0]
    reconcile = scene.daemon.admin("-p", scene.path, "reconcile")
    workers = {worker["path"]: worker for worker in scene.daemon.admin(
        "workers")["partitions"][0]["workers"]}
    limits = {f"{limit['kind']}:{limit['id']}": limit for limit in scene.daemon.admin(
        "quota")["partitions"][0]["limits"]}
    for term in TERMS:
        assert shown["terms"][term] == status["survey"][term] == reconcile[term], term
        assert shown["shown"][term].replace("\u202f", "") == str(reconcile[term]), (
            "the figure that is read, not only its attribute")
        assert term == "residual" or reconcile[term] > 0, term
    assert (shown["used"] == status["used"] == scene.cluster.place.used() and
            shown["ghosts"] == reconcile["ghosts"])
    assert shown["workers"].keys() == workers.keys() and len(workers) == 2
    for path, worker in workers.items():
        for figure in WORKER[1:]:
            assert shown["workers"][path][figure] == worker[figure], (path, figure)
        assert (shown["workers"][path]["objects"] == str(worker["ledger"]["objects"]) and
                shown["workers"][path]["pid"] == str(worker["pid"]))
        assert (shown["workers"][path]["credit"] == worker["credit"]["outstanding"] and
                shown["workers"][path]["state"] == "registered")
    for process in reconcile["holders"]:
        row = shown["holders"][str(process["pid"])]
        assert (row["bytes"], row["mapped"], row["command"], row["n"]) == (
            process["bytes"], process["mapped"], process["command"], str(process["objects"]))
    assert len(shown["holders"]) == len(reconcile["holders"]) == 2
    for name, limit in limits.items():
        assert shown["limits"][name] == {shown_as: limit[n] for shown_as, n in
                                         (("used", "used"), ("granted", "outstanding"),
                                          ("soft", "soft"), ("hard", "hard"))
                                         if limit[n] is not None}, name
    assert limits["partition:"]["hard"] == 400 * MIB
    user = scene.daemon.api("workers")["partitions"][0]["users"][0]
    assert [shown["users"][user["user"]][n] for n in ("linked", "pss", "uss", "ghosts")] == [
        user[n] for n in ("linked", "pss", "uss", "ghosts")]


def test_it_lives(page, scene):
    before = page.surveyed()
    a, b = (os.path.join(scene.path, "stores", name) for name in ("worker-a", "worker-b"))
    # A put.
    scene.a("put", "more", 5 * MIB, 7)
    after = wait_for("the put", lambda: (now := page.figures())["workers"][a]["linked"] >
                     before["workers"][a]["linked"] and now)
    assert (after["workers"][a]["linked"] - before["workers"][a]["linked"] == after["used"] -
            before["used"] >= 5 * MIB)
    # A ghost: the object goes, who maps it stays.
    scene.a("hold", "more", "more")
    scene.a("delete", "more")
    after = wait_for("the ghost", lambda: (now := page.figures())["terms"]["ghosts"] >
                     before["terms"]["ghosts"] and now)
    assert (after["holders"][str(scene.a.pid)]["ghosts"] == after["terms"]["ghosts"] -
            before["terms"]["ghosts"] >= 5 * MIB)
    assert after["holders"][str(scene.a.pid)]["key"] == "more"
    wait_for("its age", lambda: "ghost-old" in page.figures()["events"])
    # A kill: store, ghost and memory go.
    scene.b.kill()
    after = wait_for("the kill", lambda: (now := page.figures()) and b not in now["workers"] and
                     str(scene.b.pid) not in now["holders"] and now)
    assert after["workers"].keys() == {a}
    wait_for("the reap", lambda: "store-reaped" in page.figures()["events"])
    assert page.surveyed()["terms"]["residual"] == 0
    scene.a("drop", "more")
    scene.a("abort")
    os.unlink(scene.foreign)
    after = wait_for("the rest", lambda: (now := page.figures())["holders"] == {} and
                     now["terms"]["foreign"] == 0 and now)
    assert after["terms"]["inflight"] == after["terms"]["ghosts"] == 0
    # Something to abort is what the scene's end expects.
    scene.a("create", "half", MIB, 5)
    assert page.run("document.querySelectorAll('#fill-chart path.area').length") == 5


def test_who_waits_for_memory_is_shown(page, scene):
    uuid = scene.daemon.api("status")["partitions"][0]["uuid"]
    clients = [Client(scene.daemon.socket, scene.path, uuid, name) for name in ("holds", "waits")]
    try:
        for client in clients:
            client.task(1)
        capacity = clients[0].pool()["capacity"]
        held = clients[0].reserved(1, capacity // 2)
        serial, _ = clients[1].reserve(1, capacity // 2)
        assert clients[1].is_pending(serial)
        page.wait("document.getElementById('arbiter-count').textContent === '1'", "that one waits")
        rows = page.run("[...document.querySelectorAll('#arbiter tbody tr')].map((tr) => "
                        "[...tr.cells].map((td) => td.textContent))")
        bytes_of = page.run("Object.fromEntries([...document.querySelectorAll('#arbiter tbody "
                            "tr')].map((tr) => [tr.cells[0].textContent, "
                            "[...tr.querySelectorAll('[data-bytes]')].map((e) => "
                            "Number(e.dataset.bytes))]))")
        assert {(row[0], row[1], row[2]) for row in rows} == {("holds", "task1", "RUNNING"), (
            "waits", "task1", "BLOCKED")}
        assert bytes_of == {"holds": [0, capacity // 2, 0],
                            "waits": [capacity // 2, 0, capacity // 2]}
        assert page.run(
            "document.getElementById('arbiter-states').textContent") == "RUNNING 1 · BLOCKED 1"
        page.screenshot("dashboard-arbiter")
        assert clients[0].op("RELEASE", reservation=held) == "OK" and clients[1].end(serial) == "OK"
        page.wait("document.getElementById('arbiter-count').textContent === ''",
                  "that nobody waits")
    finally:
        for client in clients:
            client.close()


def test_disk_tier_is_shown_where_there_is_one(page, scene):
    hidden = "document.getElementById('tier-tile').hidden"
    assert page.run(hidden) is True
    with tempfile.TemporaryDirectory(prefix="shmstore-tier-",
                                     dir=os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp")) as disk:
        scene.daemon.admin("-p", scene.path, "tier", "--set", disk)
        page.wait(f"!{hidden} && document.getElementById('tier-state').dataset.state === 'ready'",
                  "the tier")
        scene.a("demote", "own")
        webscene.settle(scene.daemon)
        tier = wait_for("the look",
                        lambda: (t := scene.daemon.admin("status")["partitions"][0]["tier"])[
                            "n_demoted"] and t)
        assert tier["original"] >= MIB and tier["used"] == tier["demoted"] > 0
        page.wait(f"document.getElementById('tier').dataset.bytes === '{tier['original']}'",
                  "its bytes")
        assert page.run("document.getElementById('tier').textContent").endswith("in 1 object")
        assert disk in page.run("document.getElementById('tier-of').textContent")
        page.screenshot("dashboard-tier")
        assert not page.unwell() or page.was_late()
        os.rename(disk, disk + ".away")
        try:
            page.wait("document.getElementById('tier-state').dataset.state === 'unavailable'",
                      "that it is gone")
            assert disk in page.run("document.getElementById('tier-state').textContent")
            page.wait("document.getElementById('notice').textContent.includes('disk tier "
                      "unavailable')", "that it is unwell")
        finally:
            os.rename(disk + ".away", disk)
        page.wait("document.getElementById('tier-state').dataset.state === 'ready'",
                  "that it is back")
        page.wait("document.getElementById('notice').hidden", "that it is well")
        assert page.unwell(), "the browser says of each 503"
        # With nothing that was in it, it keeps nobody from anything.
        scene.a("promote", "own")
        webscene.settle(scene.daemon)
        os.rename(disk, disk + ".away")
        try:
            page.wait("document.getElementById('tier-state').dataset.state === 'unavailable'",
                      "that it is gone again")
            assert not page.run("document.getElementById('notice').textContent.includes('disk "
                                "tier')")
        finally:
            os.rename(disk + ".away", disk)
        page.wait("document.getElementById('tier-state').dataset.state === 'ready'",
                  "that it is back again")
        scene.a("delete", "own")
        scene.daemon.admin("-p", scene.path, "tier", "--unset")
        page.wait(hidden, "that there is none")


def test_a_host_that_nobody_watches_is_not_shown(page):
    page.surveyed()
    assert page.run("document.getElementById('host-part').hidden") is True


def test_light_and_dark(page, shared_browser):
    page.surveyed()
    background = "getComputedStyle(document.body).backgroundColor"
    for scheme, color in (("light", LIGHT), ("dark", DARK)):
        shared_browser.scheme(scheme)
        page.wait(f"{background} === '{color}'", scheme)
        page.screenshot(f"dashboard-1280-{scheme}")
    # The choice wins over the system's, and stays.
    choose = ("const t = document.getElementById('theme'); t.value = arguments[0]; "
              "t.dispatchEvent(new Event('change'));")
    shared_browser.run(choose, "light")
    assert page.run(background) == LIGHT
    shared_browser.get(f"{page.origin}/")
    page.wait(f"document.body.className === 'is-live' && {background} === '{LIGHT}'")
    shared_browser.run(choose, "auto")
    assert page.run(background) == DARK
    # Text can be read: WCAG's contrast of 4.5 for each text on its card, in both; the tags
    # that nothing wears now included.
    shared_browser.run("for (const kind of ['good', 'warn', 'bad', '']) { const e = "
                       "document.createElement('span'); e.className = `tag ${kind}`;"
                       "e.textContent = kind || 'tag'; "
                       "document.getElementById('h-events').after(e); } "
                       "document.getElementById('away').hidden = false;"
                       "document.getElementById('away').textContent = 'away'")
    for scheme in ("light", "dark"):
        shared_browser.scheme(scheme)
        page.wait(f"{background} === '{LIGHT if scheme == 'light' else DARK}'")
        assert shared_browser.run(CONTRASTS) == [], scheme


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(shared_browser, scene, scheme):
    page = Page(shared_browser, scene.daemon, 360, 740, scheme)
    page.surveyed()
    assert page.run("document.documentElement.scrollWidth") == 360, "the page scrolls sideways"
    wide = page.run("[...document.querySelectorAll('main *')].filter((e) => !e.closest('.hidden') "
                    "&& !e.closest('svg') && !e.closest('.scroll') && "
                    "e.getBoundingClientRect().right > 360.5).map((e) => e.tagName + '.' + "
                    "e.className + '#' + e.id)")
    assert wide == []
    # Each worker is a card that says all that the table says.
    assert page.run("[...document.querySelectorAll('#workers tbody td')].every((td) => "
                    "td.checkVisibility() && td.getBoundingClientRect().right <= 360)")
    assert page.run("document.querySelectorAll('#workers tbody td').length") == 24
    page.screenshot(f"dashboard-360-{scheme}")
    page.end()
    shared_browser.get("about:blank")


def test_tables_sort(page):
    page.surveyed()
    order = ("[...document.querySelectorAll('#workers tbody tr')].map((tr) => "
             "tr.querySelector('[data-column=name]').textContent)")
    sorted_by = ("(document.querySelector('#workers th[aria-sort=ascending], #workers "
                 "th[aria-sort=descending]') || {}).dataset.column")
    assert page.run(sorted_by) == "pss"
    click = "document.querySelector(`#workers th[data-column=${arguments[0]}] button`).click()"
    page.browser.run(click, "name")
    assert page.run(order) == ["worker-a", "worker-b"]
    page.browser.run(click, "name")
    assert (page.run(order) == ["worker-b", "worker-a"] and
            page.run("document.querySelector('#workers "
                     "[data-column=name]').getAttribute('aria-sort')") == "descending")
    page.surveyed()
    assert page.run(order) == ["worker-b", "worker-a"], "the order stays while the page lives"


def test_names_are_text(page, scene):
    """A key that is markup is shown as it is."""
    shown = page.surveyed()
    assert shown["holders"][str(scene.b.pid)]["key"] == "<img/src=x/onerror=alert(1)>"
    assert page.run("document.querySelectorAll('img, iframe, object, main script').length") == 0


def test_keyboard_and_screen_reader(page):
    page.surveyed()
    # A chart is read with the arrow keys.
    page.run("document.getElementById('fill-chart').focus()")
    key = ("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], "
           "bubbles: true, cancelable: true }));")
    page.browser.run(key, "ArrowLeft")
    first = page.run("document.getElementById('fill-readout').textContent")
    page.browser.run(key, "Home")
    second = page.run("document.getElementById('fill-readout').textContent")
    assert "used" in first and "bytes" in first and first != second
    page.browser.run(key, "Escape")
    assert page.run("document.getElementById('fill-readout').textContent") == ""
    # The pointer does the same.
    page.run("document.getElementById('rate-chart').dispatchEvent(new PointerEvent('pointermove', "
             "{ clientX: innerWidth - 60, bubbles: true }))")
    assert "handoffs" in page.run("document.getElementById('rate-readout').textContent")
    # Headings in order, tables and regions with names, controls with labels, a language.
    levels = page.run("[...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))")
    assert (levels[0] == 1 and levels.count(1) == 1 and
            all(b - a <= 1 for a, b in zip(levels, levels[1:])))
    assert page.run("document.documentElement.lang") == "en"
    nodes = page.browser.cdp("Accessibility.getFullAXTree")["nodes"]
    named = {"table", "region", "button", "combobox", "meter", "img", "link", "list"} - {"list"}
    nameless = [node["role"]["value"] for node in nodes if not node.get("ignored") and
                node.get("role", {}).get("value") in named and not node.get("name", {}).get(
                    "value")]
    assert nameless == []
    roles = [node["role"]["value"] for node in nodes if not node.get("ignored") and "role" in node]
    assert {"banner", "main", "contentinfo", "table", "columnheader", "cell", "meter", "status",
            "heading"} <= set(roles)


def test_says_that_the_daemon_is_away(shared_browser, scene):
    page = Page(shared_browser, scene.daemon)
    shown = page.surveyed()
    scene.daemon.kill()
    text = page.browser.wait("return !document.getElementById('away').hidden && "
                             "document.getElementById('away').textContent", what="the alert")
    assert ("cannot be reached since" in text and
            page.run("document.getElementById('away').getAttribute('role')") == "alert")
    assert (page.run("document.body.className") == "is-away" and
            page.figures()["terms"] == shown["terms"]), "what was known stays"
    page.screenshot("dashboard-away")
    scene.daemon.restart()
    page.wait("document.body.className === 'is-live' && document.getElementById('away').hidden",
              "that it is back")
    assert page.surveyed()["terms"] == shown["terms"]
    # The browser itself says that its requests failed; nothing else is wrong.
    assert all("ERR_CONNECTION" in message["message"] or "ERR_EMPTY" in message["message"]
               for message in page.browser.log("browser"))
    shared_browser.get("about:blank")


def test_several_partitions(shared_browser, plain_cluster, monkeypatch):
    monkeypatch.setenv("SHMSTORE_SOCKET", "")
    other = os.path.join(plain_cluster.place.base, "other")
    daemon = webscene.start(plain_cluster.place.path, more=f'partition "{other}" {{ create = yes\n '
                                                           f'survey-interval = 1s\n }}\n')
    try:
        monkeypatch.setenv("SHMSTORE_SOCKET", daemon.socket)
        tool = plain_cluster.tool("here")
        page = Page(shared_browser, daemon)
        page.wait("!document.getElementById('partition-label').hidden")
        assert page.run(
            "[...document.getElementById('partition').options].map((o) => o.value)") == [
                p["partition"] for p in daemon.api("status")["partitions"]]
        choose = ("const s = document.getElementById('partition'); s.value = arguments[0]; "
                  "s.dispatchEvent(new Event('change'));")
        for path, stores in ((other, 0), (plain_cluster.place.path, 1), (other, 0)):
            page.browser.run(choose, path)
            page.wait(f"document.getElementById('daemon').textContent.endsWith('{path}') && "
                      f"document.querySelectorAll('#workers tr[data-row]').length === {stores}",
                      path)
        page.end()
        shared_browser.get("about:blank")
        tool.end()
    finally:
        daemon.close()


def test_events_in_words_with_a_filter_and_kept_is_not_red(page, scene):
    events = "[...document.querySelectorAll('#events li[data-event]')]"
    page.wait(f"{events}.length > 0", "an event")
    shown = page.run(f"{events}.map((li) => li.querySelector('.tag').textContent)")
    assert "a store came" in shown and "store-came" not in shown
    everything = len(shown)
    page.run("(() => { const f = document.getElementById('event-filter'); f.value = 'daemon "
             "started'; f.dispatchEvent(new Event('input')); })()")
    assert (page.run(f"{events}.every((li) => li.dataset.event === 'daemon-started')") and
            page.run(f"{events}.length") < everything)
    page.run("(() => { const f = document.getElementById('event-filter'); f.value = 'no such "
             "word'; f.dispatchEvent(new Event('input')); })()")
    assert page.run("document.getElementById('events').textContent") == "None of that kind."
    page.run("(() => { const f = document.getElementById('event-filter'); f.value = ''; "
             "f.dispatchEvent(new Event('input')); })()")
    assert page.run(f"{events}.length") >= everything
    assert "gets" in page.run("document.getElementById('rate-legend').textContent")
    admin = [BUILD / "tools" / "shmstore-admin", "-p", scene.path]
    subprocess.run([*admin, "put", "kept", "k"], input=b"x", check=True, capture_output=True)
    try:
        page.surveyed()
        kept = ("[...document.querySelectorAll('#workers .tag')].find((t) => t.textContent === "
                "'kept')")
        page.wait(f"!!{kept}", "the kept store")
        assert page.run(f"{kept}.className") == "tag"
    finally:
        subprocess.run([*admin, "rm", "kept"], check=True, capture_output=True)
