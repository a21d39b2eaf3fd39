# SPDX-License-Identifier: Apache-2.0
"""A partition where each term of the df equation is something, under a real daemon, and what the
daemon's documents say of it."""
import os

from daemon import Daemon, wait_for
from fixture import Tool

TERMS = ("used", "linked", "ghosts", "pool", "inflight", "foreign", "residual")
WORKER = ("objects", "linked", "pss", "uss", "pool", "mapped")
MIB = 1 << 20


def config(path, http="", partition=""):
    """HTTP's keys come with the port of the daemon that reads it."""
    return (f'http {{ {http}\n port = %PORT% }}\npartition "{path}" {{ create = yes\n '
            f'survey-interval = 1s\n {partition} }}\n')


def start(path, http="", partition="", more="", **options):
    """A daemon whose surveys come each second. Ready when it is."""
    daemon = Daemon(start=False, **options)
    daemon.write_config((config(path, http, partition) + more).replace("%PORT%", str(daemon.port)))
    try:
        daemon.start()
    except BaseException:
        daemon.close()
        raise
    return daemon


def settle(daemon, index=0):
    """Waits for a survey that began after this call: the one that runs may have begun before it."""
    first = daemon.api("status")["partitions"][index]["survey"]
    return wait_for("two more surveys",
                    lambda: (now := daemon.api("status")["partitions"][index]["survey"]) and
                    now["sequence"] >= (first["sequence"] if first else 0) + 2 and now)


class Scene:
    """Two stores that share an object, a ghost with an odd key, a writer in flight, a pool,
    a file that is not ours."""

    def __init__(self, cluster, daemon):
        self.cluster, self.daemon, self.path = cluster, daemon, cluster.place.path
        os.environ["SHMSTORE_SOCKET"] = daemon.socket
        self.a, self.b = cluster.tool("worker-a"), cluster.tool("worker-b")
        self.a("put", "shared", 3 * MIB + 17, 1)
        self.a("put", "own", MIB, 2)
        self.b("put", "pooled", 2 * MIB, 3)
        self.b("delete", "pooled")
        self.b("adopt", "shared", self.a("handoff", "shared", 60000)[0])
        self.b("put", "<img/src=x/onerror=alert(1)>", MIB + 4096, 4)
        self.b("hold", "view", "<img/src=x/onerror=alert(1)>")
        self.b("delete", "<img/src=x/onerror=alert(1)>")
        self.a("create", "half", MIB, 5)
        self.foreign = os.path.join(cluster.place.base, "foreign.bin")
        with open(self.foreign, "wb") as file:
            file.write(os.urandom(123456))

    def end(self):
        """Lets go, so that the cluster can find nothing left."""
        if self.b.alive:
            self.b("drop", "view")
        if self.a.alive:
            self.a("abort")
        if os.path.exists(self.foreign):
            os.unlink(self.foreign)


def books(path):
    """The kernel's word, by the library in another process: no daemon has a part in it."""
    tool = Tool(path)
    try:
        return tool.books()
    finally:
        tool.end()
