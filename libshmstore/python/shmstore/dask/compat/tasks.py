# SPDX-License-Identifier: Apache-2.0
"""A key's call, and running a part of it.

    to 2023.7      run_spec is a pickled (function, args, kwargs), keys of inputs stand in it as they are; the worker reads it by
                   _maybe_deserialize_task and puts values in place of keys by _prepare_args_for_execution
    from 2024.12   run_spec is a graph's node (dask._task_spec), in which inputs are TaskRefs; it is called with their values
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, NamedTuple

import distributed.worker
from dask.core import istask
from dask.utils import apply
from distributed.utils_comm import pack_data

try:
    from dask._task_spec import Alias, DataNode, Dict, GraphNode, NestedContainer, Task, TaskRef

    from distributed.worker import _run_task

    NODES = True
except ImportError:
    from distributed.worker import apply_function, execute_task

    NODES = False

_KEYS = (bytes, str)


class Call(NamedTuple):
    """A task as a plain call. Among the arguments of one it is a nested task."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


async def call_of(worker: Any, task: Any, inputs: dict[Any, Any]) -> Call:
    """A task's call with inputs in place of keys. Raises errors of reading, or TypeError."""
    if NODES:
        return node_call(task.run_spec, inputs)
    return packed(plain_call(*await worker._maybe_deserialize_task(task)), inputs)


def is_nested(thing: Any) -> bool:
    """Whether an argument is a nested task in the form of a tuple."""
    return not NODES and bool(istask(thing))


def plain_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """To 2023.7: what Dask hands over as a nested task of one level, too."""
    if not NODES and function is execute_task and len(args) == 1 and istask(args[0]):
        task = args[0]
        if task[0] is apply:
            return Call(task[1], tuple(task[2]) if len(task) > 2 else (), dict(task[3]) if len(task) > 3 else {})
        return Call(task[0], tuple(task[1:]), {})
    return Call(function, tuple(args), dict(kwargs))


def packed(call: Call, inputs: dict[Any, Any]) -> Call:
    """To 2023.7: the same with inputs in place of their keys."""
    return Call(call.function, pack_data(call.args, inputs, key_types=_KEYS), pack_data(call.kwargs, inputs, key_types=_KEYS))


def node_call(node: Any, inputs: dict[Any, Any]) -> Call:
    """From 2024.12: of a node of a graph."""
    if not isinstance(node, Task) or isinstance(node, NestedContainer):
        raise TypeError(f"{node!r} is no call")
    args = tuple(_argument(item, inputs) for item in node.args)
    return Call(node.func, args, {name: _argument(item, inputs) for name, item in node.kwargs.items()})


def _argument(item: Any, inputs: dict[Any, Any]) -> Any:
    if isinstance(item, TaskRef):
        return inputs[item.key]
    if isinstance(item, Alias):
        return inputs[item.target]
    if isinstance(item, DataNode):
        return item.value
    if isinstance(item, Dict):
        parts = [_argument(each, inputs) for each in item.args]  # 2024.12: pairs; later: one after the other
        return dict(zip(parts[::2], parts[1::2])) if issubclass(Dict, Mapping) else dict(parts)
    if isinstance(item, NestedContainer):
        return item.klass(_argument(each, inputs) for each in item.args)
    return node_call(item, inputs) if isinstance(item, GraphNode) else item


async def run_in_thread(worker: Any, task: Any, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, int]:
    """(result, its sizeof) of function(*args, **kwargs) as a task: it may ask for its worker, its key and its span, and is seen by profiles.
    From 2024.12 what is measured of it is its key's, by a variable of the context.
    """
    executor = worker.executors[(task.annotations or {}).get("executor", "default")]
    where = (worker.execution_state, task.key, worker.active_threads, worker.active_threads_lock, worker.scheduler_delay)
    run: Callable[..., Any]
    if NODES:
        run, what = _run_task, (lambda data: function(*args, **kwargs), {})
    else:
        run, what = apply_function, (function, args, kwargs)
    result = await asyncio.get_running_loop().run_in_executor(executor, copy_context().run, run, *what, *where)
    if result["op"] != "task-finished":
        raise result["actual_exception" if NODES else "actual-exception"]
    return result["result"], int(result["nbytes"])


class OnLoop:
    """From 2024.12: a run_spec that is awaited on the worker's event loop, as a coroutine of a user is."""

    is_coro = True

    def __init__(self, run: Callable[[], Awaitable[Any]], whole: Any) -> None:
        self._run = run
        self._whole = whole

    def __call__(self, data: Any) -> Awaitable[Any]:
        return self._run()

    def __repr__(self) -> str:
        return repr(self._whole)


@contextmanager
def run_as(task: Any, run: Callable[[], Awaitable[Any]]) -> Iterator[None]:
    """From 2024.12: within, the worker runs that in place of what its task says."""
    whole = task.run_spec
    ours = task.run_spec = OnLoop(run, whole)
    try:
        yield
    finally:
        if task.run_spec is ours:  # nobody gave it another one meanwhile
            task.run_spec = whole


class NoInputs:
    """A worker's data to who shall read no inputs from it."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def __getitem__(self, key: Any) -> Any:
        return None
