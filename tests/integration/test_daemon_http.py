# SPDX-License-Identifier: Apache-2.0
"""HTTP of the daemon: the API and the metrics say to the byte what the kernel and shmstore-admin
say; each user sees what is theirs; strangers, wrong requests and slow clients get nowhere."""
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import openmetrics
import pytest
import webscene
from daemon import wait_for
from fixture import NOBODY, ROOT
from webscene import TERMS

# Members that differ from one answer to the next on a quiet partition.
MOMENTS = {"time", "ledgers_time", "age_seconds", "sequence", "survey_sequence", "duration_seconds",
           "surveying", "requests", "connections", "clients", "events"}


@pytest.fixture
def scene(plain_cluster, monkeypatch):
    monkeypatch.setenv("SHMSTORE_SOCKET", "")
    daemon = webscene.start(plain_cluster.place.path, partition="limit = 400MiB\n soft = 100MiB\n "
                                                                "user root { limit = 300MiB }")
    scene = None
    try:
        scene = webscene.Scene(plain_cluster, daemon)
        webscene.settle(daemon)
        yield scene
        scene.end()
    finally:
        daemon.close()


@pytest.fixture
def daemon(plain_cluster):
    daemon = webscene.start(plain_cluster.place.path)
    try:
        yield daemon
    finally:
        daemon.close()


def still(document):
    if isinstance(document, dict):
        return {name: still(value) for name, value in document.items() if name not in MOMENTS}
    return [still(value) for value in document] if isinstance(document, list) else document


def ensure_same(ask, other, what):
    """Rates are of the last second, and two answers may be of two: not five times in a row."""
    for _ in range(5):
        said, says = still(ask(what)), still(other(what))
        if said == says:
            return
    assert said == says, what


def ask(daemon, method, path, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


# ---- what is said --------------------------------------------------------------------------------

def test_api_says_what_the_kernel_says(scene):
    status = scene.daemon.api("status")["partitions"][0]
    books = webscene.books(scene.path)
    for term in TERMS:
        assert status["survey"][term] == books[term], (term, status["survey"], books)
    for term in ("linked", "ghosts", "pool", "inflight", "foreign"):
        assert books[term] > 0, f"the scene has no {term}"
    assert status["survey"]["residual"] == 0
    assert status["used"] == books["used"] == scene.cluster.place.used()
    assert status["ledgers"]["stores"] == 2 and status["ledgers"]["objects"] == books["objects"]


def test_api_says_what_admin_says(scene):
    for what in ("status", "workers", "quota"):
        ensure_same(scene.daemon.api, scene.daemon.admin, what)
    with scene.daemon.wire() as wire:
        for what in ("status", "workers", "quota", "holders"):
            ensure_same(wire.query, scene.daemon.api, what)
    reconcile = scene.daemon.admin("-p", scene.path, "reconcile")
    survey = scene.daemon.api("status")["partitions"][0]["survey"]
    for term in (*TERMS, "stranded", "metadata", "stores", "objects", "leases"):
        assert survey[term] == reconcile[term], term
    holders = scene.daemon.api("holders")["partitions"][0]["holders"]
    assert sorted((h["pid"], h["inode"], h["bytes"]) for h in holders) == \
        sorted((who["pid"], g["inode"], g["bytes"]) for g in reconcile["ghost_list"]
               for who in g["holders"])


def test_workers_add_up(scene):
    du = {store["name"]: store for store in scene.daemon.admin("-p", scene.path, "du")["stores"]}
    answer = scene.daemon.api("workers")["partitions"][0]
    workers = {worker["name"]: worker for worker in answer["workers"]}
    assert workers.keys() == {"worker-a", "worker-b"}
    for name, worker in workers.items():
        for figure in ("objects", "linked", "pss", "uss", "stranded", "mapped", "leases",
                       "metadata", "pid", "uid"):
            assert worker[figure] == du[name][figure], (name, figure)
        assert (worker["registered"] and worker["alive"] and
                worker["user"] == answer["users"][0]["user"])
    user = answer["users"][0]
    for figure in ("pss", "uss", "pool"):
        assert user[figure] == sum(worker[figure] for worker in workers.values()), figure
    survey = scene.daemon.api("status")["partitions"][0]["survey"]
    # A deleted object that is still mapped keeps a name in recycle/: du knows that name
    # only, the survey who maps it.
    assert (user["pool"] == survey["pool"] and sum(store["pool"] for store in du.values()) ==
            survey["pool"] + survey["ghosts"])
    assert (user["linked"] <= survey["linked"] and user["ghosts"] == survey["ghosts"] and
            user["inflight"] == survey["inflight"])


def test_holders_name_their_process(scene):
    holders = {holder["kind"]: holder for holder in scene.daemon.api(
        "holders")["partitions"][0]["holders"]}
    survey = scene.daemon.api("status")["partitions"][0]["survey"]
    ghost, writer = holders["ghost"], holders["inflight"]
    assert (ghost["pid"] == scene.b.pid and ghost["command"] == "storetool" and
            ghost["bytes"] == survey["ghosts"])
    assert (ghost["key"] == "<img/src=x/onerror=alert(1)>" and ghost["mapped"] > 0 and
            ghost["age_seconds"] > 0)
    assert writer["pid"] == scene.a.pid and writer["bytes"] == survey["inflight"]


def test_metrics_say_what_the_api_says(scene):
    text = ask(scene.daemon, "GET", "/metrics")
    assert text[0].getheader(
        "Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = openmetrics.parse(text[1])
    of = {"partition": scene.path}
    status = scene.daemon.api("status")["partitions"][0]
    for term in ("linked", "ghosts", "pool", "inflight", "foreign"):
        assert families["shmstore_survey_term_bytes"].value(
            term=term, **of) == status["survey"][term], term
    assert (families["shmstore_survey_term_bytes"].sum() +
            families["shmstore_survey_residual_bytes"].value(**of) == status["survey"]["used"])
    assert families["shmstore_survey_stranded_bytes"].value(**of) == status["survey"]["stranded"]
    for name in ("size", "used", "used_max"):
        assert families[f"shmstore_{name}_bytes"].value(**of) == status[name], name
    for name in ("put", "get", "delete", "handoff", "adopt"):
        assert families[f"shmstore_{name}s"].value(
            "_total", **of) == status["ledgers"][f"{name}_n"], name
    for worker in scene.daemon.api("workers")["partitions"][0]["workers"]:
        for figure in ("linked", "pss", "uss", "pool", "stranded", "mapped"):
            assert families[f"shmstore_store_{figure}_bytes"].value(
                store=worker["name"], path=worker["path"], label="", **of) == worker[figure]
    for limit in scene.daemon.api("quota")["partitions"][0]["limits"]:
        for figure in ("hard", "used", "outstanding"):
            assert families[f"shmstore_limit_{figure}_bytes"].value(
                kind=limit["kind"], id=limit["id"], **of) == (limit[figure] or 0)
    daemon = scene.daemon.api("status")["daemon"]
    assert families["shmstored_grants"].value("_total") == daemon["counters"]["grants"] > 0
    assert families["shmstored_events"].value("_total", event="store-came") == daemon["events"][
        "store-came"] == 2
    assert families["shmstored_loop_lateness_seconds"].value("_count") > 0


def test_metrics_in_the_older_format(scene):
    answer, text = ask(scene.daemon, "GET", "/metrics", {"Accept": "text/plain;version=0.0.4"})
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in text and b"# TYPE shmstore_puts_total counter\n" in text
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed (Debian: prometheus); the strict reader has read "
                    "the other format")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                             check=False, timeout=60)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr.decode()


def test_history_and_events_grow(scene):
    first = scene.daemon.api("history")["partitions"][0]["fine"]
    last = first["time"][-1]
    assert {len(values) for values in first.values() if isinstance(values, list)} == {
        len(first["time"])}
    more = wait_for("another second",
                    lambda: (fine := scene.daemon.api(f"history?since={last:.3f}")["partitions"][0][
                        "fine"])["time"] and fine)
    assert all(time > last for time in more["time"])
    events = scene.daemon.api("events")
    assert [event["event"] for event in events["events"]].count("store-came") == 2
    assert scene.daemon.api(f"events?since={events['last']}")["events"] == []
    scene.a("put", "late", 4096, 1)
    tool = scene.cluster.tool("worker-c")
    fresh = wait_for("the event",
                     lambda: scene.daemon.api(f"events?since={events['last']}")["events"])
    assert fresh[0]["event"] == "store-came" and fresh[0]["sequence"] == events["last"] + 1
    tool.end()


# ---- who may see what ----------------------------------------------------------------------------

def as_nobody(daemon, path):
    """The answer that another user of the host gets."""
    code = ("import os,sys,urllib.request\nos.setgroups([])\nos.setgid(%d)\nos.setuid(%d)\n"
            "sys.stdout.write(urllib.request.urlopen(sys.argv[1],timeout=120).read().decode())") % (
                NOBODY, NOBODY)
    return subprocess.run([sys.executable, "-c", code, f"http://127.0.0.1:{daemon.port}{path}"],
                          capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(not ROOT, reason="needs root to be another user")
def test_others_see_totals(scene):
    assert scene.daemon.api("status")["daemon"]["view"] == "all"
    assert json.loads(as_nobody(scene.daemon, "/api/v1/status"))["daemon"]["view"] == "own"
    theirs = json.loads(as_nobody(scene.daemon, "/api/v1/workers"))["partitions"][0]
    ours = scene.daemon.api("workers")["partitions"][0]
    assert theirs["workers"] == [] and theirs["labels"] == [] and theirs["users"] == ours["users"]
    assert json.loads(as_nobody(scene.daemon, "/api/v1/holders"))["partitions"][0]["holders"] == []
    for path in ("/metrics", "/api/v1/workers", "/api/v1/holders", "/api/v1/quota",
                 "/api/v1/events", "/api/v1/status", "/api/v1/history"):
        assert "worker-" not in as_nobody(scene.daemon, path), path
    families = openmetrics.parse(as_nobody(scene.daemon, "/metrics"))
    assert (not families["shmstore_store_pss_bytes"].samples and
            families["shmstore_user_pss_bytes"].sum() == ours["users"][0]["pss"])


@pytest.mark.skipif(not ROOT, reason="needs root to be another user")
@pytest.mark.parametrize("detail, nobody, root",
                         [("full", "all", "all"), ("totals", "totals", "totals"),
                          ("user", "own", "all")])
def test_detail(plain_cluster, detail, nobody, root):
    daemon = webscene.start(plain_cluster.place.path, http=f"detail = {detail}")
    try:
        assert json.loads(as_nobody(daemon, "/api/v1/status"))["daemon"]["view"] == nobody
        assert daemon.api("status")["daemon"]["view"] == root
    finally:
        daemon.close()


# ---- health --------------------------------------------------------------------------------------

def test_health(daemon):
    answer, body = ask(daemon, "GET", "/healthz")
    assert answer.status == 200 and json.loads(body) == {"status": "ok", "reasons": []}


def test_a_loop_that_was_late_is_not_well(daemon):
    wait_for("the loop's first second", lambda: openmetrics.parse(
        daemon.get("/metrics"))["shmstored_loop_lateness_seconds"].value("_count"))
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        time.sleep(2.5)  # is what makes it late
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    answer, body = wait_for("503", lambda: (both := ask(daemon, "GET", "/healthz"))[0].status ==
                            503 and both, timeout=8)
    assert answer.getheader("Content-Type").startswith("application/json")
    assert json.loads(body)["status"] == "unwell" and "loop late" in json.loads(body)["reasons"][0]
    assert openmetrics.parse(daemon.get("/metrics"))["shmstored_loop_lateness_seconds"].value(
        "_sum") > 1
    wait_for("well again", lambda: ask(daemon, "GET", "/healthz")[0].status == 200)


# ---- strangers and wrong requests ----------------------------------------------------------------

@pytest.mark.parametrize("host, status", [
    ("localhost", 200), ("localhost:9477", 200), ("LOCALHOST:1", 200), ("127.0.0.1", 200),
    ("127.9.9.9:80", 200), ("[::1]:9477", 200),
    ("example.org", 421), ("127.0.0.1.example.org", 421), ("localhost.example.org:9477", 421),
    ("::1", 421), ("[::1", 421), ("[::1]x", 421),
    ("127.0.0.1@example.org", 421), ("", 421), ("10.0.0.1", 421), ("x" * 300, 421)])
def test_another_origins_name_is_refused(daemon, host, status):
    for path in ("/", "/api/v1/workers", "/metrics", "/healthz"):
        answer, body = ask(daemon, "GET", path, {"Host": host})
        assert answer.status == status, (path, body)
        assert status == 200 or b"partition" not in body


def test_headers_keep_strangers_out(daemon):
    for path in ("/", "/api/v1/status", "/metrics", "/healthz", "/none"):
        answer, _ = ask(daemon, "GET", path, {"Origin": "http://example.org",
                                              "Sec-Fetch-Site": "cross-site"})
        headers = {name.lower(): value for name, value in answer.getheaders()}
        assert not [name for name in headers if name.startswith("access-control-")]
        assert (headers["x-content-type-options"] == "nosniff" and
                headers["cross-origin-resource-policy"] == "same-origin")
        assert headers["cache-control"] == ("no-cache" if path == "/" else "no-store")
    policy = ask(daemon, "GET", "/")[0].getheader("Content-Security-Policy")
    assert (policy.startswith("default-src 'none';") and "unsafe" not in policy and
            "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy)


def test_only_get_and_head(daemon):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"):
        answer, _ = ask(daemon, method, "/api/v1/status")
        assert answer.status == 405 and answer.getheader("Allow") == "GET, HEAD", method
    assert ask(daemon, "POST", "/", body=b"x" * 100000)[0].status == 405
    assert ask(daemon, "GET", "/", body=b"x")[0].status == 405
    get, body = ask(daemon, "GET", "/")
    head, none = ask(daemon, "HEAD", "/")
    assert (head.status == 200 and none == b"" and int(head.getheader("Content-Length")) == len(
        body) == int(get.getheader("Content-Length")))


def test_what_is_not_there(daemon):
    for path in ("/index.html", "/api/v1/", "/api/v1/nothing", "/api/v2/status", "/../etc/passwd",
                 "//", "/api/v1/status/"):
        assert ask(daemon, "GET", path)[0].status == 404, path
    for path in ("/api/v1/status?partition=/nowhere", "/api/v1/status?partition=/etc/../proc"):
        assert ask(daemon, "GET", path)[0].status in (400, 404), path
    for since in ("x", "-1", "1x", "99999999999999999999999", "%20"):
        assert ask(daemon, "GET", f"/api/v1/events?since={since}")[0].status == 400, since
    for since in ("nan", "inf", "-1", "1e99"):
        assert ask(daemon, "GET", f"/api/v1/history?since={since}")[0].status == 400, since


def test_the_page_is_cached_by_its_hash(daemon):
    answer, body = ask(daemon, "GET", "/")
    assert (answer.getheader("Content-Type") == "text/html; charset=utf-8" and
            body.startswith(b"<!DOCTYPE html>"))
    again, nothing = ask(daemon, "GET", "/", {"If-None-Match": answer.getheader("ETag")})
    assert again.status == 304 and nothing == b""
    assert ask(daemon, "GET", "/", {"If-None-Match": '"other"'})[0].status == 200


def test_a_connection_is_kept(daemon):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    first = connection.sock.getsockname()
    for path in ("/", "/metrics", "/api/v1/status", "/none"):
        connection.request("GET", path)
        connection.getresponse().read()
        assert connection.sock and connection.sock.getsockname() == first
    connection.close()


def test_half_requests_keep_nobody_out(daemon):
    """
    More than there are places, and than the kernel keeps in its queue, and a byte comes from each
    now and then: the oldest that owe headers go, and who asks is answered.
    """
    half, stop = [], threading.Event()

    def trickle():
        while not stop.wait(1):
            for s in list(half)[:-1]:
                with contextlib.suppress(OSError):
                    s.send(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        for _ in range(300):
            half.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=60))
            half[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-a: ")
        assert ask(daemon, "GET", "/healthz")[0].status == 200
        with contextlib.suppress(ConnectionResetError):
            assert half[0].recv(1) == b""
    finally:
        stop.set()
        thread.join()
        for s in half:
            s.close()


def test_headers_that_come_byte_by_byte_end(daemon):
    """A byte now and then is no reason to stay."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-a: ")
        s.settimeout(0.2)

        def ended():
            try:
                s.sendall(b"x")
                return s.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_for("it is ended", ended)


@pytest.mark.parametrize("junk", [b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  b"GET / HTTP/1.1\r\n\r\n", b"A" * 100000,
                                  b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
                                  b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10000 +
                                  b"\r\n",
                                  b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                                  b"chunked\r\n\r\nffffffffffffffff\r\n"],
                         ids=["zeros", "no path", "version", "no host", "no line", "long path",
                              "many headers", "bad chunk"])
def test_junk_ends_its_connection_only(daemon, junk):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=120) as s:
        try:
            s.sendall(junk)
            s.shutdown(socket.SHUT_WR)
            answer = s.recv(65536)
        except OSError:  # ended while we still wrote
            answer = b""
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4", b"HTTP/1.1 5")), (
        answer[:200])
    assert ask(daemon, "GET", "/healthz")[0].status == 200


def test_slow_clients_disturb_nobody(daemon):
    """More connections than there is room for, each with half a request: the socket's clients feel
    nothing, HTTP is back when they go."""
    slow = []
    try:
        for _ in range(80):
            s = socket.create_connection(("127.0.0.1", daemon.port), timeout=120)
            s.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: local")
            slow.append(s)
        with daemon.wire() as wire:
            for cookie in range(200):
                wire.ping(cookie)
        # A client that is silent for ten seconds is disconnected, with an answer or without.
        slow[0].settimeout(60)
        while slow[0].recv(1000):
            pass
    finally:
        for s in slow:
            s.close()
    wait_for("HTTP again", lambda: reachable(daemon))


def test_who_asks_fast_gets_a_part_of_the_loop_only(daemon):
    """Twelve clients that ask without end: each is answered, in turn, and the socket's
    clients go on meanwhile."""
    connections = [http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
                   for _ in range(12)]
    with daemon.wire() as wire:
        for turn in range(10):
            for connection in connections:
                connection.request("GET", "/metrics")
            for cookie in range(20):
                wire.ping(cookie)
            for connection in connections:
                answer = connection.getresponse()
                assert answer.status == 200 and answer.read().endswith(b"# EOF\n"), turn
    # Some that wait when they go, and when the daemon does.
    for connection in connections:
        connection.request("GET", "/metrics")
    for connection in connections[:6]:
        connection.close()
    daemon.stop()
    for connection in connections:
        connection.close()


def reachable(daemon):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/healthz",
                                      timeout=5).status == 200
    except OSError:
        return False


def test_off(plain_cluster):
    daemon = webscene.start(plain_cluster.place.path, http="enabled = no")
    try:
        with pytest.raises(OSError):
            daemon.get("/healthz")
        with daemon.wire() as wire:
            assert wire.query("status")["partitions"][0]["partition"] == plain_cluster.place.path
    finally:
        daemon.close()


def test_a_port_that_is_taken(plain_cluster):
    """The daemon says what is wrong and what to do, and does the rest of its work."""
    daemon = webscene.Daemon(start=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        try:
            daemon.write_config(webscene.config(plain_cluster.place.path).replace(
                "%PORT%", str(taken.getsockname()[1])))
            daemon.start()
            assert "choose another port" in daemon.log()
            with daemon.wire() as wire:
                assert wire.query(
                    "status")["partitions"][0]["partition"] == plain_cluster.place.path
        finally:
            daemon.close()
