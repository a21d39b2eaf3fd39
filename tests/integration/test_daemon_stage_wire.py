# SPDX-License-Identifier: Apache-2.0
"""Stages by messages that no library would send: five clients send random ones, sensible and
senseless, without waiting for answers. The total is respected at every look, nobody waits for ever,
the daemon lives, and nothing is left of clients that are gone. $SHMSTORE_SEED plays one history,
$SHMSTORE_STAGE_SECONDS says for how long."""
import os
import random
import time

import pytest
from arbwire import Page
from daemon import SHMSTORED, Closed, wait_for
from fixture import Place

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

MOST = 2**64 - 1
CONFIG = """profile {{ private = conservative
 directory = none }}
stage {{ enabled = yes
 private = 32MiB
 shared = 16MiB
 total = 113MiB
 cap = 96MiB
 wait-ms = 30
 conflict = host }}
partition "{path}" {{ create = yes }}
"""
TAILS = [b"s\n", b"s", b"s\n9x9", b"s\n2000x2000", b"\n", b"", b"s\n1x", b"s\n1x1,",
         b"s\n99999999999999999999x1", b"a" * 241, b"s\n%dx%d" % (MOST, MOST)]


class Client:
    """A store made by hand, and its connection."""

    def __init__(self, daemon, place, uuid, name):
        self.page = Page(place.path, name)
        self.wire = daemon.wire(timeout=60)
        answer = self.wire.register(uuid, f"stores/{name}")
        assert answer.name == "REGISTERED", answer
        self.answers = {}

    def close(self):
        self.wire.close()
        self.page.close()

    def send(self, rnd):
        small, wide = rnd.choice([0, 1, 2, 3, 100, 2**32 - 1]), rnd.choice(
            [0, 1, 5, 1000, 2**40, 2**41, 2**63, MOST])
        kind = rnd.randrange(10)
        if kind < 4:
            self.wire.send("STAGE_QUERY", int(rnd.random() < 0.1), rnd.randrange(2),
                           rnd.randrange(2), rnd.randrange(4),
                           rnd.choice([0, 500000, 1000000, 1000001]), rnd.choice([0, 1, wide]),
                           rnd.randrange(3), rnd.randrange(3), small, 0,
                           tail=rnd.choice([*TAILS, b"s", b"s", b"s"]))
        elif kind < 8:
            self.wire.send("STAGE_BEGIN", small, rnd.choice([small, 1, 2]),
                           rnd.choice([0, 10, MOST]),
                           tail=rnd.choice([b"s", b"t", b"", b"a\nb", b"x" * 240]))
        else:
            self.wire.send("STAGE_END", rnd.choice([0, 0, 0, 1, 2, 3, 4]))

    def read(self):
        """Counts the answers that have come so far, by name."""
        self.wire.socket.setblocking(False)
        try:
            while True:
                name = self.wire.receive().name
                self.answers[name] = self.answers.get(name, 0) + 1
        except BlockingIOError:
            self.wire.socket.settimeout(60)


def look(daemon):
    with daemon.wire() as wire:
        document = wire.query("stages")["partitions"][0]
    assert document["held"] <= document["total"], document
    assert document["held"] == sum(s["private"] + s["shared"]
                                   for s in document["sessions"]), document
    return document


def test_random_messages(make_daemon):
    rnd = random.Random(int(os.environ.get("SHMSTORE_SEED", "1")))
    place = Place(size="64m")
    try:
        daemon = make_daemon(config=CONFIG.format(path=place.path), http=False)
        with daemon.wire() as wire:
            uuid = wire.query("status")["partitions"][0]["uuid"]
        clients = [Client(daemon, place, uuid, f"c{i}") for i in range(5)]
        answers, n_came = {}, 5
        until = time.monotonic() + float(os.environ.get("SHMSTORE_STAGE_SECONDS", "5"))
        while time.monotonic() < until:
            for _ in range(100):
                clients[rnd.randrange(5)].send(rnd)
                clients[rnd.randrange(5)].read()
            look(daemon)
            gone = clients.pop(rnd.randrange(5))
            gone.close()
            answers = {name: answers.get(name, 0) + gone.answers.get(name, 0)
                       for name in {*answers, *gone.answers}}
            clients.append(Client(daemon, place, uuid, f"c{n_came}"))
            n_came += 1
        wait_for("nobody waits", lambda: look(daemon)["waiting"] == 0)
        assert answers.get("STAGED", 0) > 20 and answers.get("REFUSED", 0) > 20, answers
        assert look(daemon)["begun"] and look(daemon)["begun_degraded"]
        for client in clients:
            client.close()
        wait_for("nothing is left", lambda: not look(daemon)["sessions"])
        assert look(daemon)["held"] == 0
        # The daemon disconnects a client that breaks the protocol.
        last = Client(daemon, place, uuid, "last")
        with pytest.raises(Closed):
            last.wire.call("STAGE_QUERY", 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, tail=b"s")
    finally:
        place.remove()
