# SPDX-License-Identifier: Apache-2.0
"""Values are pickles, which run what they say, as the reader: another user's are
refused unless asked for."""

import errno
import os

import pytest

import shmstore

EVE = 54321


class Payload:
    """The value that an attacker puts: reading it makes a directory, as the reader."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def store(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file to another user")
    root = f"/dev/shm/shmstore-test-any-user-{os.getpid()}"
    os.mkdir(root)
    try:
        partition = shmstore.Partition(root, create=True, shared=True)
        with partition.open("s") as store:
            yield store
    finally:
        import shutil

        shutil.rmtree(root)


@pytest.mark.usefixtures("files")
def test_pickle_of_another_user_is_not_run(store, tmp_path):
    path = str(tmp_path / "ran")
    store["x"] = Payload(path)
    store["mine"] = [1, 2, 3]
    os.chown(f"{store.path}/objects/x", EVE, EVE)
    assert store.view("x").uid == EVE
    assert store.view("mine").uid == os.geteuid()
    for read in (
        lambda: store["x"],
        lambda: store.get("x"),
        lambda: store.get("x", cow=True),
        lambda: shmstore.loads(store.view("x")),
    ):
        with pytest.raises(shmstore.Error) as raised:
            read()
        assert raised.value.errno == errno.EPERM
    assert not os.path.exists(path)
    assert store["mine"] == [1, 2, 3]
    # Its bytes are data, whoever's they are.
    assert store.view("x").header
    # Asked for, it is run: that is what the word says.
    assert store.get("x", any_user=True) is None
    assert os.path.isdir(path)
    os.rmdir(path)
    shmstore.loads(store.view("x"), any_user=True)
    assert os.path.isdir(path)


@pytest.mark.parametrize("pack_max", [0, 1 << 20])
def test_store_of_another_user_is_not_opened(store, pack_max):
    root = store.partition.path
    os.mkdir(f"{root}/theirs")
    with store.partition.open("theirs", directory="theirs", keep=True, pack_max=pack_max) as theirs:
        theirs["x"] = 1
    for directory, _, files in os.walk(f"{root}/theirs"):
        os.chown(directory, EVE, EVE)
        for name in files:
            os.chown(f"{directory}/{name}", EVE, EVE)
    with pytest.raises(shmstore.Error) as raised:
        store.partition.open("theirs", readonly=True)
    assert raised.value.errno in (errno.EPERM, errno.ENOENT)
    with pytest.raises(shmstore.Error) as raised:
        store.partition.open("theirs", readonly=True, directory="theirs")
    assert raised.value.errno == errno.EPERM
    with store.partition.open("theirs", readonly=True, any_user=True) as theirs:
        with pytest.raises(shmstore.Error):
            theirs["x"]
        assert theirs.get("x", any_user=True) == 1
