#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""multiprocessing.shared_memory between two processes, for bench_peers.

Reads lines "cycle SIZE" or "put SIZE" and answers each with two numbers: nanoseconds of
all, nanoseconds of the put. The consumer is a forked child; both use one resource
tracker, started before the fork.
"""

import os
import socket
import sys
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from time import monotonic_ns

LARGEST = 64 << 20
PAGE = 4096


def consume(sock: socket.socket) -> None:
    while message := sock.recv(256):
        name, size = message.decode().split()
        memory = SharedMemory(name)
        touched = memory.buf[: int(size) : PAGE]
        bytes(touched)  # one byte of each page, without a Python loop
        touched.release()
        memory.close()
        sock.send(b"done")


def put(data: memoryview, size: int) -> SharedMemory:
    memory = SharedMemory(create=True, size=size)
    memory.buf[:size] = data[:size]
    return memory


def main() -> None:
    producer, consumer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    resource_tracker.ensure_running()
    if os.fork() == 0:
        producer.close()
        consume(consumer)
        os._exit(0)
    consumer.close()
    data = memoryview(os.urandom(1 << 20) * (LARGEST >> 20))
    for line in sys.stdin:
        words = line.split()
        if words == ["hello"]:
            print("ready", flush=True)
            continue
        size = int(words[1])
        begin = monotonic_ns()
        memory = put(data, size)
        written = monotonic_ns()
        if words[0] == "cycle":
            producer.send(f"{memory.name} {size}".encode())
            producer.recv(16)
        memory.close()
        memory.unlink()
        print(monotonic_ns() - begin, written - begin, flush=True)
    producer.close()
    os.wait()


if __name__ == "__main__":
    main()
