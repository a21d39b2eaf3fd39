# SPDX-License-Identifier: Apache-2.0
"""Daemons that are each other's peers, each with a partition of its own, places for actors
under them, and callers."""
import contextlib
import os

import pytest
from actorscene import Process
from daemon import ACTORD, Daemon, wait_for
from fixture import Place

shmstore = pytest.importorskip("shmstore")

KEYS = "frequency = 10ms\n recover-after = 300ms\n timeout = 5s\n"


@contextlib.contextmanager
def as_client_of(daemon):
    """Stores that are opened within it ask this daemon."""
    before = os.environ.get("SHMSTORE_SOCKET")
    os.environ["SHMSTORE_SOCKET"] = daemon.socket
    try:
        yield
    finally:
        os.environ.pop("SHMSTORE_SOCKET")
        if before is not None:
            os.environ["SHMSTORE_SOCKET"] = before


class Host:
    """A daemon, its partition, and what runs under it."""

    def __init__(self, name, place, daemon):
        self.name = name
        self.place = place
        self.daemon = daemon
        self.processes = []
        self.stores = []

    def process(self, name, *actors, **options):
        self.processes.append(Process(self.daemon, self.place.path, name, *actors, **options))
        return self.processes[-1]

    def store(self, name="caller"):
        with as_client_of(self.daemon):
            self.stores.append(shmstore.Partition(self.place.path).open(name))
        return self.stores[-1]

    def document(self):
        return self.daemon.api("actors")["actors"]

    def actor(self, name="log"):
        found = [a for a in self.document()["actors"] if a["name"] == name]
        return found[0] if found else None

    def kill(self):
        """The host is gone: the daemon and all that ran under it."""
        self.daemon.kill()
        self.end()

    def end(self):
        for process in self.processes:
            if process.popen.poll() is None:
                process.kill()
        self.processes = []
        for store in self.stores:
            store.close()
        self.stores = []


def connected(*hosts):
    for host in hosts:
        wait_for(f"the peers of {host.name}", lambda host=host: len(host.document()["peers"]) ==
                 len(hosts) - 1)


def settled(host, names, name="log"):
    """Until the actor at host was saved after all that it ran, and these daemons have that copy:
    none is on its way any more."""
    def look():
        a = host.actor(name)
        newest = {c["daemon"] for c in a["copies"] if c["version"] == a["saved"]} if a else set()
        return a and not a["unsaved"] and newest and newest >= set(names)
    wait_for(f"copies at {names}", look, 60)


def died(host, process, name="log"):
    """Kills the process, until its daemon knows that the actor is there no more: a call that is
    given to a process that dies is lost."""
    if process.popen.poll() is None:
        process.kill()
    wait_for("the news of its end", lambda: (host.actor(name) or {}).get("pid") != process.pid, 60)


def outlasting(actor, *call):
    """The answer, also if the call meets the actor's death on its way."""
    while True:
        try:
            return actor.call(*call)
        except shmstore.actors.ActorLost:
            pass


def path_of(name, directory):
    return os.path.join(directory, name)


@pytest.fixture
def make_hosts(tmp_path):
    """make_hosts("a", "b", ..., keys): daemons that know each other, on a
    partition of 64 MiB each."""
    made = []

    def config(name, names, keys):
        others = ",".join(path_of(n, tmp_path) for n in names if n < name)
        return (f'peers {{\n name = {name}\n listen = "{path_of(name, tmp_path)}"\n' +
                (f' connect = "{others}"\n' if others else "") + f" {keys}\n}}\n")

    def make(*names, keys="copies = yes\n", size="64m", more=""):
        for name in names:
            place = Place(size=size)
            text = config(name, names, KEYS + keys)
            text += f'partition "{place.path}" {{ create = yes }}\n'
            if more:
                text += more % path_of(f"profiles-{name}", tmp_path)
            made.append(Host(name, place, Daemon(config=text, program=ACTORD)))
        connected(*made)
        return made

    yield make
    for host in made:
        host.end()
    for host in made:
        host.daemon.close()
        host.place.remove()
