# SPDX-License-Identifier: Apache-2.0
"""The store as a mutable mapping: what collections.abc promises, its keys, and what
happens under many hands."""

import collections.abc
import random

import numpy as np
import pytest

import shmstore


def test_is_a_mutable_mapping(store):
    assert isinstance(store, collections.abc.MutableMapping)
    assert isinstance(store, shmstore.Store)


def test_behaves_as_a_dict_does(store):
    model = {}
    rng = random.Random(1)
    keys = [f"key {i}" for i in range(20)] + ["", "ü/%\n", "x" * 500]
    for step in range(2000):
        key, action = rng.choice(keys), rng.randrange(8)
        if action < 3:
            store[key] = model[key] = step
        elif action == 3:
            assert store.pop(key, None) == model.pop(key, None)
        elif action == 4:
            assert store.setdefault(key, -step) == model.setdefault(key, -step)
        elif action == 5:
            assert store.get(key, "none") == model.get(key, "none")
        elif action == 6 and key in model:
            del store[key], model[key]
        elif action == 7 and key not in model:
            for act in (lambda: store[key], lambda: store.__delitem__(key), lambda: store.pop(key)):
                with pytest.raises(KeyError) as caught:
                    act()
                assert caught.value.args == (key,)
        assert (key in store) == (key in model)
        if step % 100 == 0:
            assert len(store) == len(model) and sorted(store) == sorted(model)
            assert dict(store.items()) == model and sorted(store.values()) == sorted(model.values())
            assert store == model
    assert sorted(store.keys()) == sorted(model)
    store.update({"a": 1}, b=2)
    assert store["a"] == 1 and store["b"] == 2
    store.clear()
    assert len(store) == 0 and list(store) == [] and store == {}
    assert bool(store), "an empty store is still a store"
    with pytest.raises(KeyError):
        store.popitem()


def test_keys_come_back_as_they_were_put(store):
    keys = ["", "a", "with space", "ü€😀", "a/b/../c", ".", "..", "%41", "\0", "new\nline",
            "('x', 0, 1)", "k" * 4096]
    raw = [b"\xff", b"\x80abc", b"\0\xfe" * 300, bytes(range(256))]
    for key in keys + raw:
        store[key] = key
    assert set(store) == set(keys + raw)
    assert all(store[key] == key for key in keys + raw)
    assert {o.key for o in store.objects()} == set(keys + raw)
    assert {o.raw_key for o in store.objects()} == {k.encode() if isinstance(k, str) else k
                                                    for k in keys + raw}


def test_str_and_its_utf8_are_one_key(store):
    store["ü"] = 1
    assert store["ü".encode()] == 1
    store["ü".encode()] = 2
    assert store["ü"] == 2 and list(store) == ["ü"]


def test_adopted_keys_come_back_too(store, other):
    long = "long " * 200
    for key in ("short", long, b"\xff" * 400):
        store["x"] = key
        other.adopt(key, store.handoff("x"))
    assert set(other) == {"short", long, b"\xff" * 400}
    assert all(other[key] == key for key in other)


@pytest.mark.parametrize("key", [5, None, 2.5, ("a",), bytearray(b"x"), memoryview(b"x")],
                         ids=lambda key: type(key).__name__)
def test_other_types_are_no_keys(store, key):
    for act in (
        lambda: store[key],
        lambda: store.__setitem__(key, 1),
        lambda: store.__delitem__(key),
        lambda: key in store,
        lambda: store.get(key),
        lambda: store.handoff(key),
    ):
        with pytest.raises(TypeError, match="a key must be str or bytes"):
            act()


def test_keys_that_are_too_long_or_no_text(store):
    for act in (lambda: store.__setitem__("k" * 4097, 1), lambda: store["k" * 4097],
                lambda: store.create("k" * 4097, 0, [])):
        with pytest.raises(shmstore.Error, match="Errno 22"):
            act()
    with pytest.raises(UnicodeEncodeError):
        store["\udcff"] = 1
    assert len(store) == 0


def test_setting_a_key_replaces_its_object(store):
    store["k"] = np.zeros(100000)
    old = store["k"]
    store["k"] = np.ones(100000)
    assert (store["k"] == 1).all() and (old == 0).all() and len(store) == 1


def test_put_refuses_to_replace_unless_told(store):
    store.put("k", 1)
    with pytest.raises(shmstore.Error, match="replace=True"):
        store.put("k", 2)
    assert store["k"] == 1
    store.put("k", 3, replace=True, checksum=True)
    assert store["k"] == 3 and next(store.objects()).checksum


def test_a_walk_is_a_snapshot(store):
    for i in range(100):
        store[str(i)] = i
    for key in store:
        del store[key]
    assert len(store) == 0


def test_a_value_that_cannot_be_read_does_not_pass_as_missing(store):
    store["k"] = Raises()
    with pytest.raises(KeyError, match="from inside"):
        store.get("k", "default")


class Raises:
    def __reduce__(self):
        return _raise, ()


def _raise():
    raise KeyError("from inside")
