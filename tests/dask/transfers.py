#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Transfers in a network namespace of their own, for test_client.py: transfers.py PARTITION
stock|ours|plain ACTION…; plain: Client's own methods on workers that share.

Prints for each action {"bytes": what the loopback carried meanwhile, "right": whether the values
are those that were sent, "copies": workers that have each}.
"""
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
MIB = 1 << 20


def own_network():
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNET | (0 if uid == 0 else CLONE_NEWUSER)
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        print(json.dumps({"skip": f"unshare: {os.strerror(ctypes.get_errno())}"}))
        raise SystemExit
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"),
                           ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def carried():
    with open("/proc/self/net/dev") as file:
        return next(int(line.split(":")[1].split()[0]) for line in file if line.strip().startswith(
            "lo:"))


def main(path, side, *actions):
    import dask
    from distributed import Client, LocalCluster

    import shmstore.dask

    dask.config.set({"distributed.worker.memory.shared.partition": path,
                     "distributed.scheduler.active-memory-manager.start": False})
    options = {"worker_class": shmstore.dask.Nanny} if side != "stock" else {}
    with LocalCluster(n_workers=3, threads_per_worker=1, processes=True, memory_limit="2 GiB",
                      dashboard_address=None,
                      **options) as cluster, Client(cluster) as client:  # fmt: skip
        client.wait_for_workers(3, timeout=60)
        print(json.dumps({action: transfer(client, side, action, range(4 * n, 4 * n + 4))
                          for n, action in enumerate(actions)}))


def transfer(client, side, action, seeds):
    """Of 64 MiB that no worker has."""
    import numpy as np
    from distributed import wait

    import shmstore.dask

    data = [np.random.default_rng(i).random(2 * MIB) for i in seeds]
    send = (client.scatter if side != "ours" else lambda *a,
            **k: shmstore.dask.scatter(client, *a, **k))
    receive = (client.gather if side != "ours" else lambda *a,
               **k: shmstore.dask.gather(client, *a, **k))
    if action in ("scatter", "broadcast", "scatter-direct"):
        before = carried()
        futures = send(data, broadcast=action == "broadcast", direct=True
                       if action == "scatter-direct" else None)
        wait(futures)
    else:
        futures = client.map(lambda i: np.random.default_rng(i).random(2 * MIB), seeds)
        wait(futures)
        before = carried()
        if action == "replicate":
            client.replicate(futures)
        elif action == "gather":
            assert all((a == b).all() for a, b in zip(receive(futures), data))
        elif action == "result":
            assert all((future.result() == b).all() for future, b in zip(futures, data))
    moved = carried() - before
    copies = sorted(len(addresses) for addresses in client.who_has(futures).values())
    right = all((a == b).all() for a, b in zip(client.gather(futures), data))
    return {"bytes": moved, "right": right, "copies": copies}


if __name__ == "__main__":
    own_network()
    main(*sys.argv[1:])
