# SPDX-License-Identifier: Apache-2.0
"""Errors: their class, errno and words; a full partition."""

import errno
import os
import pickle
import threading

import numpy as np
import pytest

import shmstore
from conftest import Place


def test_error_is_an_oserror():
    assert issubclass(shmstore.Error, OSError)
    error = shmstore.Error(errno.ENOSPC, "words")
    assert (error.errno == errno.ENOSPC and error.strerror == "words" and
            type(error) is shmstore.Error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is shmstore.Error and again.errno == errno.ENOSPC


def test_message_says_what_where_why_and_what_to_do(partition, store):
    store["x"] = 1
    with pytest.raises(shmstore.Error) as caught:
        store.put("x", 2)
    message = str(caught.value)
    for part in ("put 'x'", "store 'main'", partition.path, "the key is held", "replace=True"):
        assert part in message
    with pytest.raises(shmstore.Error) as caught:
        store.put("k" * 5000, 2)
    assert len(str(caught.value)) < 800


@pytest.mark.usefixtures("files")
def test_damaged_object_is_an_error_not_a_crash(store):
    for damage in (b"", b"garbage" * 100, b"\0" * 5000):
        store["x"] = b"x" * 10000
        path = os.path.join(store.path, "objects", "x")
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(damage)
        with pytest.raises(shmstore.Error) as caught:
            store["x"]
        assert caught.value.errno == errno.EBADMSG and "'x'" in str(caught.value)
        assert next(store.objects()).error == errno.EBADMSG
        del store["x"]


@pytest.fixture
def small():
    place = Place(size=8 << 20)
    if not place.mounted:
        place.remove()
        pytest.skip("needs a tmpfs of its own, hence root")
    with shmstore.Partition(place.path, create=True).open("small") as store:
        yield store
    place.remove()


def test_full_partition(small):
    small["first"] = np.arange(100000)
    view = small["first"]
    used = small.partition.usage().used
    for _ in range(300):
        for act in (
            lambda: small.__setitem__("big", np.zeros(2 << 20)),
            lambda: small.create("big", 0, [16 << 20]),
        ):
            with pytest.raises(shmstore.Error) as caught:
                act()
            assert caught.value.errno == errno.ENOSPC
            assert "the partition is full" in str(caught.value) and "gc" in str(caught.value)
    assert list(small) == ["first"] and (view == np.arange(100000)).all()
    assert small.partition.usage().used <= used


def test_full_partition_names_whose_stores_it_has(small):
    small["first"] = np.zeros(500000)

    def text():
        with pytest.raises(shmstore.Error) as caught:
            small.create("big", 0, [small.partition.usage().size - (64 << 10)])
        return str(caught.value)

    assert "user" not in text()
    for i in range(5):
        path = f"{small.partition.path}/stores/theirs{i}"
        os.mkdir(path)
        os.chown(path, 54321, 54321)
    assert text().count("user 54321's theirs") == 3 and "gc --all" in text()


def test_filling_up_to_the_last_byte(small):
    n = 0
    with pytest.raises(shmstore.Error) as caught:
        while True:
            small[str(n)] = np.full(10000, n)
            n += 1
    assert caught.value.errno == errno.ENOSPC and n > 50
    assert all((small[str(i)] == i).all() for i in range(n))
    small.clear()
    small["again"] = np.zeros(500000)


def test_full_partition_in_many_threads(small):
    failures = []

    def work(i):
        for j in range(50):
            try:
                small[f"{i}"] = np.full(200000, i)
            except shmstore.Error as error:
                if error.errno != errno.ENOSPC:
                    failures.append(error)
            else:
                if not (small[f"{i}"] == i).all():
                    failures.append(i)
            small.pop(f"{i}", None)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(small) == 0


def test_absurd_sizes_are_refused(store):
    with pytest.raises((MemoryError, OverflowError, shmstore.Error)):
        store.create("x", 0, [(1 << 63) - 1])
    with pytest.raises(shmstore.Error):
        store.create("x", 1 << 40, [])
