# SPDX-License-Identifier: Apache-2.0
"""Sharing by name: open without a name, a key that another process is about to put, what a notebook
shows, a name that is our own."""

import errno
import os
import subprocess
import sys
import time

import pytest

import shmstore

PRODUCER = """
import sys, time
import shmstore
store = shmstore.Partition(sys.argv[1]).open("producer")
print("open", flush=True)
sys.stdin.readline()
store["x"] = list(range(1000))
print("put", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def producer(partition):
    process = subprocess.Popen(
        [sys.executable, "-c", PRODUCER, partition.path], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_key_of_another_process_is_waited_for(partition, producer):
    with partition.open("producer", readonly=True) as store:
        begin = time.monotonic()
        assert store.get("x", "nothing", timeout=0.2) == "nothing"
        assert 0.2 <= time.monotonic() - begin < 5
        producer.stdin.write("put\n")
        producer.stdin.flush()
        assert store.get("x", timeout=60) == list(range(1000))
        assert store["x"] == list(range(1000))


def test_waiting_is_not_busy(store):
    before = time.process_time()
    assert store.get("never", None, timeout=0.5) is None
    with pytest.raises(TimeoutError):  # without a default
        store.get("never", timeout=0.1)
    assert time.process_time() - before < 0.2
    assert store.get("never", 7, timeout=0) == 7 and store.get("never", 7) == 7


def test_a_store_needs_no_name(partition):
    with partition.open() as a, partition.open() as b:
        assert a.name != b.name and str(os.getpid()) in a.name
        a["x"] = 1
        b.adopt("x", a.handoff("x"))
        assert b["x"] == 1
    for how in ({"readonly": True}, {"keep": True}, {"adopt": True}):
        with pytest.raises(ValueError, match="needs a name"):
            partition.open(**how)


def test_a_name_that_this_process_holds_says_so(partition, producer):
    with partition.open("mine"):
        with pytest.raises(shmstore.Error, match="this very process") as caught:
            partition.open("mine")
        assert caught.value.errno == errno.EBUSY
    with pytest.raises(shmstore.Error, match=f"process {producer.pid}"):
        partition.open("producer")


def test_the_default_partition_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("SHMSTORE_PARTITION", "/dev/shm/no-such-partition")
    with pytest.raises(shmstore.Error) as caught:
        shmstore.Partition()
    assert "None" not in str(caught.value)
    assert "/dev/shm/no-such-partition" in str(caught.value) and "create=True" in str(caught.value)


def test_what_a_notebook_shows_is_escaped(partition, store):
    store["<script>"] = 1
    html = store._repr_html_()
    assert "&lt;script&gt;" in html and "<script>" not in html and "1 objects" in html
    assert store.name in partition._repr_html_()
    for i in range(30):
        store[f"k{i}"] = i
    assert store._repr_html_().count("<tr>") == 21
    store.close()
    assert "closed" in store._repr_html_()
