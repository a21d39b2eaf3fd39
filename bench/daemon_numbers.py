#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the daemon's cost when nothing happens, and its speed when
something does. Needs root (mounts).

    bench/daemon_numbers.py [--build DIRECTORY] [idle | cycle | kill-worker | kill-daemon]...

  idle          256 registered stores: processor time of the daemon over 60 s, its private memory
  cycle         100,000 registrations and disconnects: its private memory and
                descriptors before and after
  kill-worker   kill -9 of a process that holds 2 GiB: how long until df is down
  kill-daemon   kill -9 of the daemon under eight clients, and a new one: their errors and wrong
                bytes, and how long until the new one's books are the kernel's

Each prints one line of JSON. --seconds, --stores, --cycles, --bytes,
--clients change the numbers above.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processor import processor

TOP = Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")


class Host:
    """A tmpfs of its own, a daemon, and clients."""

    def __init__(self, build, size):
        self.build = Path(build)
        self.base = tempfile.mkdtemp(prefix="shmstore-bench-", dir="/dev/shm")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},huge=within_size",
                        "shmstore-bench", self.base], check=True)
        self.partition = os.path.join(self.base, "partition")
        self.directory = tempfile.mkdtemp(prefix="shmstore-bench-")
        self.socket = os.path.join(self.directory, "socket")
        self.config = os.path.join(self.directory, "conf")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f'daemon {{ socket = "{self.socket}" }}\nhttp {{ enabled = no }}\npartition '
                       f'"{self.partition}" {{ create = yes }}\n')
        self.environment = dict(os.environ, SHMSTORE_SOCKET=self.socket)
        self.children = []
        self.daemon = None

    def start(self, *command, **options):
        child = subprocess.Popen(command, env=self.environment, **options)
        self.children.append(child)
        return child

    def start_daemon(self):
        self.daemon = self.start(str(self.build / "shmstored/shmstored"), "--config", self.config)
        self.wait(lambda: self.ask("status"), 30)

    def client(self, *arguments):
        """A daemon_stores; returns when it is ready."""
        child = self.start(str(self.build / "bench/daemon_stores"), self.partition,
                           *map(str, arguments), stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        if arguments[0] != "cycle":
            assert child.stdout.readline() == "ready\n", arguments
        return child

    def ask(self, *question):
        """The partition's part of the daemon's answer; None where it does not answer."""
        answer = subprocess.run([str(self.build / "tools/shmstore-admin"), *question, "--json",
                                 "--partition", self.partition],
                                env=self.environment, capture_output=True, text=True, check=False)
        return json.loads(answer.stdout)["partitions"][0] if answer.stdout else None

    @staticmethod
    def wait(condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it does not come"
            time.sleep(0.001)

    def used(self):
        fs = os.statvfs(self.base)
        return (fs.f_blocks - fs.f_bfree) * fs.f_frsize

    def processor_seconds(self):
        with open(f"/proc/{self.daemon.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def precise_seconds(self):
        """Over all threads, from the scheduler's own account."""
        total = 0
        for task in os.listdir(f"/proc/{self.daemon.pid}/task"):
            with open(f"/proc/{self.daemon.pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def private_bytes(self):
        total = 0
        with open(f"/proc/{self.daemon.pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Private_"):
                    total += int(line.split()[1]) * 1024
        return total

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def stop(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM if child is self.daemon else signal.SIGKILL)
            child.wait()
        subprocess.run(["umount", "-l", self.base], check=True)
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def registered(host):
    return sum(worker["registered"] for worker in host.ask("workers")["workers"])


def idle(options):
    host = Host(options.build, "1g")
    try:
        host.start_daemon()
        host.client("hold", options.stores)
        host.wait(lambda: registered(host) == options.stores, 30)
        time.sleep(2)
        began, cpu, precise = time.monotonic(), host.processor_seconds(), host.precise_seconds()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        return {"stores": options.stores, "seconds": round(took, 1),
                "percent_of_a_core": round((host.precise_seconds() - precise) / took * 100, 3),
                "percent_by_ticks": round((host.processor_seconds() - cpu) / took * 100, 3),
                "private_MiB": round(host.private_bytes() / 2**20, 2)}
    finally:
        host.stop()


def cycle(options):
    host = Host(options.build, "1g")
    try:
        host.start_daemon()
        warm = host.client("cycle", options.cycles // 10)
        warm.wait()
        time.sleep(2)
        private, descriptors = host.private_bytes(), host.descriptors()
        child = host.client("cycle", options.cycles)
        n, seconds = child.communicate()[0].split()
        time.sleep(2)
        return {"cycles": int(n), "seconds": float(seconds),
                "per_second": round(int(n) / float(seconds)),
                "private_KiB": [private >> 10, host.private_bytes() >> 10],
                "descriptors": [descriptors, host.descriptors()]}
    finally:
        host.stop()


def kill_worker(options):
    host = Host(options.build, f"{options.bytes + (1 << 30)}")
    try:
        host.start_daemon()
        empty = host.used()
        worker = host.client("fill", options.bytes)
        full = host.used()
        began = time.monotonic()
        worker.kill()
        host.wait(lambda: host.used() <= empty + (1 << 20), 60)
        return {"bytes": full - empty, "seconds": round(time.monotonic() - began, 3)}
    finally:
        host.stop()


def kill_daemon(options):
    host = Host(options.build, "2g")
    try:
        host.start_daemon()
        clients = [host.client("load", f"load-{i}") for i in range(options.clients)]
        time.sleep(2)
        host.daemon.kill()
        host.daemon.wait()
        time.sleep(1)
        began = time.monotonic()
        host.start_daemon()
        answers = time.monotonic() - began
        # Right: a reconcile made by the new one says what it found, all stores are there, and
        # nothing is left over. Under load the walk and statfs are of different moments: the
        # residual counts once the clients stand still.
        host.wait(lambda: registered(host) == options.clients, 30)
        registered_after = time.monotonic() - began
        for client in clients:
            client.send_signal(signal.SIGSTOP)
        answer = host.ask("status", "--reconcile")["survey"]
        right_after = time.monotonic() - began
        for client in clients:
            client.send_signal(signal.SIGCONT)
        lines = [client.communicate(timeout=60)[0].split() for client in clients]
        return {"clients": options.clients, "operations": sum(int(line[0]) for line in lines),
                "errors": sum(int(line[1]) for line in lines),
                "wrong_words": sum(int(line[2]) for line in lines),
                "longest_put_ms": max(float(line[3]) for line in lines),
                "answers_after_s": round(answers, 3),
                "all_registered_after_s": round(registered_after, 3),
                "reconciled_after_s": round(right_after, 3), "reconcile": answer}
    finally:
        host.stop()


def main():
    measures = {"idle": idle, "cycle": cycle, "kill-worker": kill_worker,
                "kill-daemon": kill_daemon}
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=TOP / "build/release")
    parser.add_argument("--stores", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cycles", type=int, default=100000)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("measure", nargs="*", choices=[*measures, []], default=[])
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("daemon_numbers.py: needs root, for a file system of its own")
    for name in options.measure or measures:
        print(json.dumps({"measure": name, "cpu": processor(), **measures[name](options)}),
              flush=True)


if __name__ == "__main__":
    main()
