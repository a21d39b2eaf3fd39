# SPDX-License-Identifier: Apache-2.0
"""Jobs of the tests' processes: functions that a process of any start method can import."""

import multiprocessing
import os
import signal
import time

import numpy

import shmstore
import shmstore.multiprocessing as smp
from shmstore import messages
from shmstore.caching import Cache


class Box:
    """A class of a program's own."""

    def __init__(self, array):
        self.array = array


def same(value):
    return value


def tail(array):
    return array[10:]


def doubled(array):
    array *= 2
    return array


def summed(pair):
    shared, i = pair
    return float(shared.value.sum()) + i


def writes_into(shared):
    shared.value[:] = -1.0
    return float(shared.value.sum())


def is_readonly(shared):
    return not shared.value.flags.writeable


def is_installed(_):
    return smp.installed() is not None


def puts(queue, n):
    for i in range(n):
        queue.put(numpy.full(1 << 17, float(i)))


def lives_on(queue, ready):
    """Sends a message, and waits to be killed; the message is in the pipe by then."""
    queue.put(numpy.arange(1 << 17, dtype=float))
    ready.set()
    time.sleep(600)


def adds_to(tensor, model, queue):
    tensor += 1
    model.running_mean += 1
    model.weight.data += 1
    again = queue.get(timeout=60)
    again += 1


def failure_of(queue, answers):
    try:
        queue.get(timeout=60)
    except Exception as error:
        answers.put(f"{type(error).__name__}: {error}")


def killed(_):
    os.kill(os.getpid(), signal.SIGKILL)


def job_that_is_killed(path, method, sender):
    """A pool at work, whose messages are under way when all of its processes are killed."""
    smp.install(partition=path)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=lives_on, args=(queue, event := context.Event()))
    process.start()
    event.wait()
    queue.put(numpy.ones(1 << 17))
    kept = smp.share(numpy.ones(1 << 17), partition=path)
    sender.send((process.pid, kept._where is not None))
    time.sleep(600)


def caches(path, key, seconds, queue):
    cache = Cache("test", partition=path)
    built = []

    def build():
        built.append(1)
        time.sleep(seconds)
        return numpy.full(1 << 17, 3.0)

    queue.put((float(cache.get_or_create(key, build).sum()), len(built)))


def builds_for_ever(path, key, event):
    def build():
        event.set()
        time.sleep(600)

    Cache("test", partition=path).get_or_create(key, build)


def box_of(path):
    return messages.mailbox(path)


def leave(path):
    """Ends this process's part in the job whose messages lie there, as its end would."""
    box = messages._boxes.pop(path, None)
    messages._roots.pop(path, None)
    if box is not None:
        box.close()


def usage_of(path):
    return shmstore.Partition(path).usage(full=True)


def item_sum(data, i):
    return float(data[i].sum())


def file_and_sum(array, *others):
    """The inode of the file that the array is in, and the sum of all arrays."""
    at = array.ctypes.data
    with open("/proc/self/maps") as file:
        for line in file:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= at < end:
                return int(line.split()[4]), float(array.sum() + sum(other.sum()
                                                                     for other in others))


def fitted(a, scale):
    return a * scale, a.flags.writeable


def count(array, queue, lock, connection):
    """Says what it got by everything else that it got."""
    with lock:
        queue.put(float(array.sum()))
    connection.send("counted")
