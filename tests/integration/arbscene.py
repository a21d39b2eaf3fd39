# SPDX-License-Identifier: Apache-2.0
"""A daemon with an arbiter for a partition of its own, and clients made by hand (arbwire.py), which
can do what no library would."""
import pytest
from arbwire import Client, Process
from fixture import Place

MIB = 1 << 20
SIZE = 64 * MIB


class Host:
    """A partition of 64 MiB, its daemon, and clients on it."""

    def __init__(self, make_daemon, place, arbiter="", more="", daemon="", **options):
        self.place = place
        self.settings = daemon
        self.arbiter = arbiter
        self.daemon = make_daemon(config=self.text(arbiter, more), **{"http": False, **options})
        self.clients = []
        self.wire = self.daemon.wire()
        self.uuid = self.wire.query("status")["partitions"][0]["uuid"]
        # the first survey is over: foreign files are found when a test asks, or
        # somebody waits because of them
        self.wire.query("reconcile")

    def text(self, arbiter, more=""):
        return (f'daemon {{\n{self.settings}\n}}\narbiter {{\n{arbiter}\n}}\npartition '
                f'"{self.place.path}" {{ create = yes\n{more}\n}}')

    def client(self, name, **options):
        self.clients.append(Client(self.daemon.socket, self.place.path, self.uuid, name, **options))
        return self.clients[-1]

    def process(self, name):
        self.clients.append(Process(self.daemon.socket, self.place.path, self.uuid, name))
        return self.clients[-1]

    def document(self, what="arbiter"):
        return self.wire.query(what)["partitions"][0]

    def pool(self, name="shm:"):
        return next(pool for pool in self.document()["pools"] if pool["name"].startswith(name))

    def contexts(self):
        return {(c["store"], c["context"]): c for c in self.document()["contexts"]}

    def somebody_runs(self):
        """A task that holds nothing and does not wait: else one that waits
        alone is stuck, and told so."""
        self.client("runs").task(1)

    def events(self, name):
        return [event for event in self.wire.query("events")["events"] if event["event"] == name]

    def reload(self, arbiter):
        self.daemon.write_config(self.text(arbiter))
        self.daemon.reload()
        while "READY=1" not in self.daemon.listen(30):
            pass

    def close(self):
        for client in self.clients:
            client.close()
        self.wire.close()


@pytest.fixture
def make_host(make_daemon):
    places, hosts = [], []

    def make(*arguments, **options):
        places.append(Place(size=f"{SIZE}"))
        hosts.append(Host(make_daemon, places[-1], *arguments, **options))
        return hosts[-1]

    try:
        yield make
        for host in hosts:
            assert host.daemon.process.poll() is None, host.daemon.log()
    finally:
        for host in hosts:
            host.close()
            if host.daemon.process.poll() is None:
                host.daemon.stop()
        for place in places:
            place.remove()


@pytest.fixture
def host(make_host):
    return make_host()
