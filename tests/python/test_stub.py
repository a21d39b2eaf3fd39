# SPDX-License-Identifier: Apache-2.0
"""The extension's stub file says what the extension is."""

import ast
import inspect
import pathlib
import re

import pytest

import shmstore
from shmstore import _shmstore, preempting, profiling, records, staging

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "libshmstore" / "python"
STUB = ast.parse(pathlib.Path(shmstore.__file__).with_name("_shmstore.pyi").read_text())


def parameters(function):
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs +
             [arguments.kwarg] * bool(arguments.kwarg)]
    return [name for name in names if name not in ("self", "cls")]


def check(function, real):
    if not real.__doc__:
        # a private method without a text signature: Python 3.13 makes one up for some of these
        return
    signature = inspect.signature(real)
    assert [p for p in signature.parameters if p not in ("self", "cls")] == parameters(function), (
        function.name)
    given = [p.default for p in signature.parameters.values()
             if p.default is not inspect.Parameter.empty]
    assert given == [ast.literal_eval(d) for d in function.args.defaults], function.name


@pytest.mark.parametrize("node", [n for n in STUB.body if hasattr(n, "name")], ids=lambda n: n.name)
def test_stub_and_module_agree(node):
    real = getattr(_shmstore, node.name)
    if isinstance(node, ast.FunctionDef):
        check(node, real)
        return
    attributes = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
    members = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    for name, function in members.items():
        if name == "__new__":
            check(function, real)
        elif name == "__buffer__":
            assert not hasattr(real, name) or callable(getattr(real, name))
        else:
            check(function, getattr(real, name))
    if not issubclass(real, Exception):
        assert all(inspect.isgetsetdescriptor(getattr(real, name)) for name in attributes)
        public = {n for n, v in vars(real).items() if not n.startswith("__") and callable(v) or
                  inspect.isgetsetdescriptor(v)}
        assert {n for n in public if not n.startswith("__")} <= {*members, *attributes}


def test_types_cannot_be_changed():
    kinds = [kind for kind in vars(_shmstore).values() if inspect.isclass(kind)]
    assert len(kinds) > 4
    for kind in kinds:
        if kind is not shmstore.View:  # arrow.py gives it methods
            with pytest.raises(TypeError):
                setattr(kind, "surprise", 1)


def test_records_have_the_fields_that_the_extension_fills_in_its_order():
    text = (SOURCES / "records.def").read_text()
    rows = re.findall(r"^(?:RECORD|LISTED)\((\w+), \w+,?((?:.|\n)*?)\)\n(?=RECORD|LISTED|\n#undef)",
                      text, flags=re.MULTILINE)
    assert len(rows) == len(re.findall(r"^(?:RECORD|LISTED)\(", text, flags=re.MULTILINE)) > 15
    for name, fields in rows:
        kind = next(vars(module)[name] for module in (records, preempting, profiling, staging)
                    if name in vars(module))
        filled = re.findall(r"\b[A-Z][A-Z0-9_]*\((\w+)", fields)
        assert list(kind._fields[: len(filled)]) == filled, name


def test_everything_public_is_documented():
    for name in shmstore.__all__:
        thing = getattr(shmstore, name)
        assert thing.__doc__, name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if (not member.startswith("_") and
                    (callable(value) or inspect.isgetsetdescriptor(value))):
                    assert inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
