# SPDX-License-Identifier: Apache-2.0
"""The schema of the configuration: of the same keys as the defaults, the code and the page, and it
refuses what the code refuses."""

from __future__ import annotations

import os
import re

import dask
import pytest
import yaml
from conftest import PREFIX

import shmstore.dask
from shmstore.dask.config import Settings

HERE = os.path.dirname(shmstore.dask.__file__)
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "dask.md")
KINDS = {"boolean": bool, "null": type(None), "string": str, "integer": int, "number": (int, float),
         "object": dict}


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return yaml.safe_load(file)


def ours(tree, below="properties"):
    """The part of the tree under distributed.worker.memory.shared."""
    for name in PREFIX.split("."):
        tree = (tree[below] if below else tree)[name]
    return tree


def leaves(schema, above=""):
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield from leaves(part, f"{above}{name}.")
        else:
            yield above + name, part


def flat(tree, above=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value


SCHEMA = dict(leaves(ours(read("shmstore-schema.yaml"))))


def allows(part, value):
    kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
    right = any(isinstance(value, KINDS[kind]) and
                (kind == "boolean" or not isinstance(value, bool)) for kind in kinds)
    inside = (not isinstance(value, (int, float)) or part.get("minimum", value) <= value <=
              part.get("maximum", value))
    return (right and inside and ("enum" not in part or
                                  any(value is choice or (value == choice and type(value) is type(
                                      choice)) for choice in part["enum"])))


def test_its_keys_are_those_of_the_defaults_and_of_the_page():
    defaults = dict(flat(ours(read("shmstore.yaml"), "")))
    assert list(defaults) == list(SCHEMA)
    assert [key for key, value in defaults.items() if not allows(SCHEMA[key], value)] == []
    assert all(part["description"].strip() for part in SCHEMA.values())
    with open(DOCS, encoding="utf-8") as file:
        section = re.search(r"^## Configuration\n(.*?)^## ", file.read(), re.S | re.M)[1]
    documented = [key for row in re.findall(r"^- (`[^(]+`) \(", section, re.M)
                  for key in re.findall(r"`([^`]+)`", row)]
    assert sorted(documented) == sorted(SCHEMA)


WRONG = [
    ("daemon", "always"), ("arbitrate", "on"), ("map", "rw"), ("share", "never"), ("max-maps", 0),
    ("tier.level", 20), ("tier.level", -1), ("tier.high", 1.5), ("tier.low", 0),
    ("tier.enabled", "perhaps"), ("tier.fsync", 3), ("enabled", "perhaps"),
]  # fmt: skip


@pytest.mark.parametrize("key, value", WRONG)
def test_it_refuses_what_the_code_refuses(key, value):
    assert not allows(SCHEMA[key], value)
    with dask.config.set({f"{PREFIX}.{key}": value}), pytest.raises(ValueError, match=re.escape(
        key.rpartition(".")[2])):
        Settings()


@pytest.mark.parametrize("key", ["daemon", "arbitrate"])
def test_off_in_a_file_is_off(key):
    value = yaml.safe_load("off")
    assert value is False and allows(SCHEMA[key], value)
    with dask.config.set({f"{PREFIX}.{key}": value}):
        assert getattr(Settings(), key) == "off"


def test_it_is_a_json_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = read("shmstore-schema.yaml")
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(read("shmstore.yaml"), schema)
    for key, value in [*WRONG, ("no-such", 1)]:
        tree = value
        for name in reversed(f"{PREFIX}.{key}".split(".")):
            tree = {name: tree}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tree, schema)
