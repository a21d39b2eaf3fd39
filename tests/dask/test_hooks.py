# SPDX-License-Identifier: Apache-2.0
"""A Dask that lacks something the plug-in needs of it: it says what, and works as stock Dask."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import dask
from distributed import Client, LocalCluster

from conftest import HERE, PREFIX

import shmstore.dask
from shmstore.dask.compat import probe

JOB = sum(range(10)) + 64 * 64


def hookless(place, *arguments):
    """Reports of hookless.py: on the whole Dask, and on one without each hook."""
    env = {**os.environ, "SHMSTORE_PARTITION": place.path,
           "DASK_DISTRIBUTED__WORKER__MEMORY__SHARED__DAEMON": "off"}
    program = [sys.executable, os.path.join(HERE, "hookless.py"), *arguments]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_hook_that_is_missing_is_named_and_the_job_runs_as_stock(place):
    whole, *others = hookless(place)
    assert (whole["missing"] == [] and whole["shares"] and not whole["stock"] and
            whole["total"] == JOB), whole
    assert len(others) > 40
    for found in others:
        assert found["hook"] in found["missing"], found
        assert found["stock"] and not found["shares"] and found["total"] == JOB, found
        said = [line for line in found["said"] if "lacks what shmstore.dask needs of it" in line]
        assert len(said) == 1 and found["hook"] in said[0], found


def test_without_a_hook_of_the_manager_policies_do_nothing_and_workers_share(place):
    whole, *others = hookless(place, "manager")
    assert (whole["missing"] == [] and whole["said"] == [] and not whole["idle"] and
            whole["shares"] and whole["total"] == JOB), whole
    assert len(others) == len(probe.MANAGER)
    for found in others:
        assert (found["hook"] in found["missing"] and found["workers miss"] == [] and
                found["idle"]), found
        assert found["shares"] and found["total"] == JOB and found["kept"], found
        assert (len(found["said"]) == 1 and found["hook"] in found["said"][0] and
                "do nothing" in found["said"][0]), found


def test_a_worker_process_that_preloads_us_goes_on_without(place, tmp_path):
    (tmp_path / "no_replicate.py").write_text(
        textwrap.dedent(
            """
            import distributed.client
            if hasattr(distributed.client.Client, "_replicate"):
                del distributed.client.Client._replicate
            def dask_setup(server):
                pass
            """
        )
    )
    config = {"distributed.worker.preload": [str(tmp_path / "no_replicate.py"), "shmstore.dask"],
              f"{PREFIX}.partition": place.path}
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True,
               "dashboard_address": ":0"}
    with dask.config.set(config), LocalCluster(**options) as cluster, Client(cluster) as client:
        assert client.submit(sum, range(10)).result() == 45
        kinds = client.run(lambda dask_worker: (type(dask_worker).__module__,
                                                sys.modules["shmstore.dask"].missing_hooks))
    assert [found[0] for found in kinds.values()] == ["distributed.worker"] * 2
    assert all(name.startswith("distributed.client.Client._replicate") for found in kinds.values()
               for name in found[1])
    assert place.stores() == []


# Names that Dask documents for its users, or has had in this form since long before 2022.12: they
# are used without being looked for.
PUBLIC = {
    "dask": {"config"},
    "dask.base": {"tokenize"},
    "dask.dataframe.dispatch": {"to_pyarrow_table_dispatch"},
    "dask.config": {"collect_yaml", "get", "set", "update_defaults"},
    "dask.sizeof": {"sizeof"},
    "dask.utils": {"parse_bytes", "parse_timedelta", "typename"},
    "distributed": {"Actor", "Client", "Future", "Nanny", "Reschedule", "Worker", "__version__",
                    "get_client", "get_worker", "performance_report"},
    "distributed.client": {"Future"},
    "distributed.core": {"Status"},
    "distributed.diagnostics.plugin": {"SchedulerPlugin"},
}
#: Of stock's classes that ours derive from.
PUBLIC_METHODS = {"__init__", "close", "finished", "kill", "__setitem__", "__getitem__",
                  "__delitem__", "__contains__", "__len__", "__iter__", "values", "items"}
BASES = {"distributed.Worker": "distributed.worker.Worker", "distributed.Nanny":
             "distributed.nanny.Nanny", "SpillBuffer": "distributed.spill.SpillBuffer",
         "HeapSet": "distributed.collections.HeapSet"}  # fmt: skip


def _of_dask(module):
    return module is not None and module.partition(".")[0] in ("dask", "distributed")


def _dotted(node):
    """"a.b.c" of an expression that is only that."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


class _Running(ast.NodeTransformer):
    """Without the blocks that only type checkers read, and without annotations: no version of Dask
    is asked for their names."""

    def visit_If(self, node):
        self.generic_visit(node)
        return node.orelse or None if _dotted(node.test) == "TYPE_CHECKING" else node

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef


def _used(tree):
    """Of Dask: (module, name) of what is imported, of what is taken of an imported module, and of
    what is asked of super()."""
    tree = _Running().visit(tree)
    modules = {"dask", "distributed"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if _of_dask(alias.name)}
        elif isinstance(node, ast.ImportFrom) and not node.level and _of_dask(node.module):
            yield from ((node.module, alias.name) for alias in node.names)
    imported = {alias.name.partition(".")[0] for node in ast.walk(tree)
                if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        module, _, name = (_dotted(node) or "").rpartition(".")
        if (module in modules and f"{module}.{name}" not in modules and
            module.partition(".")[0] in imported):
            yield module, name
        if isinstance(node, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            for stock in [BASES[_dotted(base)] for base in bases if _dotted(base) in BASES]:
                for each in ast.walk(node):
                    if (isinstance(each, ast.Attribute) and isinstance(each.value, ast.Call) and
                        _dotted(each.value.func) == "super"):
                        if each.attr not in PUBLIC_METHODS:
                            yield stock.rpartition(
                                ".")[0], f"{stock.rpartition('.')[2]}.{each.attr}"


def test_the_list_of_hooks_is_complete():
    """Each name that the package takes of Dask is looked for before, or is public."""
    of_parts = (*probe.MANAGER, *probe.P2P, *probe.ASKING, *probe.QUEUE, *probe.ORPHAN)
    hooks = {(hook.module, hook.path)
             for hook in (*probe.HOOKS, *(hook for way in probe.EITHER for hook in way), *of_parts)}
    hooks |= {(module, path.partition(".")[0]) for module, path in hooks}
    package = pathlib.Path(shmstore.dask.__file__).parent
    unknown, n = set(), 0
    for file in package.rglob("*.py"):
        for module, name in _used(ast.parse(file.read_text())):
            n += 1
            if ((module, name) not in hooks and name not in PUBLIC.get(module, ()) and
                f"{module}.{name}" not in PUBLIC):
                unknown.add(f"{file.relative_to(package)}: {module}.{name}")
    assert not unknown, sorted(unknown)
    assert n > 60, "it was looked at"
