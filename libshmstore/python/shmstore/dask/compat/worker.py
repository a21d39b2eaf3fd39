# SPDX-License-Identifier: Apache-2.0
"""A worker's side of Dask: what its state machine is told, what a key is to run, asking others for
values, which task is next, its data mapping.

    run_id                 2023.10 and later: of the attempt, in what a key's execution ends with
    run_spec               to 2023.7 a pickled (function, args, kwargs), keys of inputs stand in
                           it as they are; the worker reads it by _maybe_deserialize_task and
                           puts values in place of keys by _prepare_args_for_execution. From
                           2024.12 a graph's node (dask._task_spec), in which inputs are
                           TaskRefs; it is called with their values
    gather_from_workers    returns (values, …): what else, and how much of it, changed in 2023.9
    max_connections        of Worker.get_data, and report of Worker.update_data: to 2023.3
    WorkerState.ready      a HeapSet by priority, of which the state
                           machine pops the next task to run
    SpillBuffer            zict's Buffer, which is an LRU of private values over what spills
    LRU.heap               zict 2; `heavy` and `order` since zict 3 (distributed 2023.9)
    Buffer.n               zict 2: a number beside fast.n. zict 3: fast.n itself
    File                   zict 2 names a file by its key. zict 3 keeps a
                           table, as a name has a counter
    Buffer.pop             raises NotImplementedError since 2023.9
    sizeof._lazy           what Dask, or a program, has registered for a library that is not
                           imported yet: theirs is left alone
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from itertools import islice
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import distributed.process
from dask.core import istask
from dask.sizeof import sizeof
from dask.utils import apply
from distributed.collections import HeapSet
from distributed.spill import Slow, SpillBuffer, SpilledSize
from distributed.utils_comm import gather_from_workers, pack_data
from distributed.worker import Worker, get_data_from_worker
from distributed.worker_state_machine import (
    AcquireReplicasEvent, ComputeTaskEvent, ExecuteFailureEvent, ExecuteSuccessEvent,
    GatherDepBusyEvent, GatherDepFailureEvent, GatherDepSuccessEvent, RescheduleEvent, UnpauseEvent,
    UpdateDataEvent,
)

from .probe import ASKING, ORPHAN, missing_of

if TYPE_CHECKING:
    from dask.typing import Key as Key
    from distributed.core import ConnectionPool
    from distributed.worker_state_machine import StateMachineEvent as StateMachineEvent
    from distributed.worker_state_machine import TaskState as TaskState, WorkerState as WorkerState

    from ..exchange import Exchange

    #: stock's gather_dep of one donor
    Ask = Callable[[Collection[Key]], Awaitable[StateMachineEvent]]

__all__ = [
    "AcquireReplicasEvent", "ComputeTaskEvent", "ExecuteSuccessEvent", "GatherDepBusyEvent",
    "GatherDepFailureEvent", "GatherDepSuccessEvent", "RescheduleEvent", "Slow", "SpillBuffer",
    "SpilledSize", "UnpauseEvent", "UpdateDataEvent",
]  # of Dask's own

try:
    from dask._task_spec import Alias, DataNode, Dict, GraphNode, NestedContainer, Task, TaskRef
    from distributed.worker import _run_task

    NODES = True
except ImportError:
    from distributed.worker import apply_function, execute_task  # type: ignore[attr-defined]

    NODES = False
try:
    from zict.file import _safe_key  # type: ignore[attr-defined]  # zict 2
except ImportError:
    _safe_key = None
if not missing_of(ASKING):
    from distributed.protocol.pickle import dumps

_RUN_ID = "run_id" in inspect.signature(ExecuteFailureEvent.from_exception).parameters
#: Arguments with which stock's get_data answers however many it answers already.
UNLIMITED = ({"max_connections": False}
             if "max_connections" in inspect.signature(Worker.get_data).parameters else {})
#: Arguments with which stock's update_data tells the scheduler nothing.
QUIET: dict[str, Any] = (
    {"report": False} if "report" in inspect.signature(Worker.update_data).parameters else {})
_KEYS = (bytes, str)
_PATIENCE = 5.0  # seconds that closing stores may take
_stores: weakref.WeakSet[Exchange] = weakref.WeakSet()


# -- asking


async def ask_scheduler(worker: Worker, function: Callable[..., object], *args: object) -> object:
    """function(*args, dask_scheduler=…), where the scheduler runs: a round trip. Raises
    RuntimeError with what it answers, or OSError."""
    answer = await worker.scheduler.run_function(function=dumps(function), args=dumps(args),
                                                 kwargs=dumps({}), wait=True)
    if answer["status"] == "error":
        raise RuntimeError(f"the scheduler answers "
                           f"{answer.get('exception') or answer.get('text')!r}")
    return answer["result"]


async def ask_worker(rpc: ConnectionPool, keys: list[Key], worker: str,
                     who: str | None) -> dict[str, Any]:
    """The answer of one worker: "status", and where that is OK "data". OSError."""
    return dict(await get_data_from_worker(rpc=rpc, keys=keys, worker=worker, who=who))


async def ask_workers(rpc: ConnectionPool, who_has: dict[Key, list[str]],
                      who: str | None) -> dict[Key, object]:
    """Those of the values that could be had."""
    found: dict[Key, object] = (await gather_from_workers(who_has, rpc=rpc, who=who))[0]
    return found


def has_workers() -> bool:
    """Whether this process has workers that are not closed: what they have goes by reference,
    or is theirs to ask for."""
    return any(worker.status.name not in ("closed", "failed")
               for worker in tuple(getattr(Worker, "_instances", ())))


# -- what the state machine is told


def execute_failed(task: TaskState, error: BaseException, why: str) -> ExecuteFailureEvent:
    """The key of a task cannot run: error is its result."""
    attempt = {"run_id": task.run_id} if _RUN_ID else {}
    return ExecuteFailureEvent.from_exception(error, key=task.key, stimulus_id=f"{why}-{time()}",
                                              **attempt)


def gather_succeeded(event: GatherDepSuccessEvent | None, data: dict[Key, object], worker: str,
                     nbytes: int) -> GatherDepSuccessEvent:
    """With all of data: event, which has a part of it; or where there is none one in answer
    to gather_dep's arguments."""
    if event is None:
        event = GatherDepSuccessEvent(worker=worker, total_nbytes=nbytes, data={},
                                      stimulus_id=f"shmstore-gather-{time()}")
    event.data.update(data)
    return event


# -- what a key is to run


class Call(NamedTuple):
    """A task as a plain call. Among the arguments of one it is a nested task."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]


async def call_of(worker: Worker, task: TaskState, inputs: Mapping[Key, object]) -> Call:
    """A task's call with inputs in place of keys. Raises errors of reading, or TypeError."""
    if NODES:
        return node_call(task.run_spec, inputs)
    found = await worker._maybe_deserialize_task(task)  # type: ignore[attr-defined]
    return packed(plain_call(*found), inputs)


def is_nested(thing: object) -> bool:
    """Whether an argument is a nested task in the form of a tuple."""
    return not NODES and bool(istask(thing))


def plain_call(function: Callable[..., object], args: tuple[Any, ...],
               kwargs: dict[str, object]) -> Call:
    """To 2023.7: what Dask hands over as a nested task of one level, too."""
    if not NODES and function is execute_task and len(args) == 1 and istask(args[0]):
        task = args[0]
        if task[0] is apply:
            return Call(task[1], tuple(task[2]) if len(task) > 2 else (), dict(task[3])
                        if len(task) > 3 else {})
        return Call(task[0], tuple(task[1:]), {})
    return Call(function, tuple(args), dict(kwargs))


def packed(call: Call, inputs: Mapping[Key, object]) -> Call:
    """To 2023.7: the same with inputs in place of their keys."""
    return Call(call.function, pack_data(call.args, inputs, key_types=_KEYS),
                pack_data(call.kwargs, inputs, key_types=_KEYS))


def node_call(node: object, inputs: Mapping[Key, object]) -> Call:
    """From 2024.12: of a node of a graph."""
    if not isinstance(node, Task) or isinstance(node, NestedContainer):
        raise TypeError(f"{node!r} is no call")
    args = tuple(_argument(item, inputs) for item in node.args)
    return Call(node.func, args, {name: _argument(item, inputs)
                                  for name, item in node.kwargs.items()})


def _argument(item: object, inputs: Mapping[Key, object]) -> Any:
    if isinstance(item, TaskRef):
        return inputs[item.key]
    if isinstance(item, Alias):
        return inputs[item.target]
    if isinstance(item, DataNode):
        return item.value
    if isinstance(item, Dict):
        # 2024.12: pairs; later: one after the other
        parts = [_argument(each, inputs) for each in item.args]
        return dict(zip(parts[::2], parts[1::2])) if issubclass(Dict, Mapping) else dict(parts)
    if isinstance(item, NestedContainer):
        return item.klass(_argument(each, inputs) for each in item.args)
    return node_call(item, inputs) if isinstance(item, GraphNode) else item


async def run_in_thread(worker: Worker, task: TaskState, function: Callable[..., object],
                        args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, int]:
    """(result, its sizeof) of function(*args, **kwargs) as a task: it may ask for its worker, its
    key and its span, and is seen by profiles. From 2024.12 what is measured of it is its key's,
    by a variable of the context.
    """
    executor = worker.executors[(task.annotations or {}).get("executor", "default")]
    where = (worker.execution_state, task.key, worker.active_threads, worker.active_threads_lock,
             worker.scheduler_delay)
    run: Callable[..., Any] = _run_task if NODES else apply_function
    what: tuple[object, ...] = ((lambda data: function(*args, **kwargs), {}) if NODES
                                else (function, args, kwargs))
    result = await asyncio.get_running_loop().run_in_executor(
        executor, partial(copy_context().run, run, *what, *where))
    if result["op"] != "task-finished":
        raise result["actual_exception" if NODES else "actual-exception"]
    return result["result"], int(result["nbytes"])


class OnLoop:
    """From 2024.12: a run_spec that is awaited on the worker's event loop, as
    a coroutine of a user is."""

    is_coro = True

    def __init__(self, run: Callable[[], Awaitable[object]], whole: object) -> None:
        self._run = run
        self._whole = whole

    def __call__(self, data: object) -> Awaitable[object]:
        return self._run()

    def __repr__(self) -> str:
        return repr(self._whole)


@contextmanager
def run_as(task: TaskState, run: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """From 2024.12: within, the worker runs that in place of what its task says."""
    whole = task.run_spec
    ours: object = OnLoop(run, whole)
    task.run_spec = ours  # type: ignore[assignment]
    try:
        yield
    finally:
        if task.run_spec is ours:  # nobody gave it another one meanwhile
            task.run_spec = whole


class NoInputs:
    """A worker's data to who shall read no inputs from it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def __getitem__(self, key: Key) -> None:
        return None


# -- the tasks that may run


class Ready(HeapSet["TaskState"]):
    """The same set. next_of: of its tasks, by priority, the one that is to be
    popped; None for the first one."""

    def __init__(self, tasks: HeapSet[TaskState],
                 next_of: Callable[[Iterator[TaskState]], TaskState | None]) -> None:
        super().__init__(key=tasks.key)
        for task in tasks.sorted():
            self.add(task)
        self.next_of = next_of

    def in_order(self) -> Iterator[TaskState]:
        """As `sorted`, but it costs nothing as long as the first one only is
        wanted. Not of an empty set."""
        yield self.peek()
        yield from islice(self.sorted(), 1, None)

    def pop(self) -> TaskState:
        task = self.next_of(self.in_order()) if len(self) > 1 else None
        if task is None:
            return super().pop()
        self.discard(task)
        return task


def choose_next(state: WorkerState, next_of: Callable[[Iterator[TaskState]],
                                                      TaskState | None]) -> Ready | None:
    """From here on next_of chooses the task that runs next. None where the state machine keeps
    its tasks in another way."""
    if type(getattr(state, "ready", None)) is not HeapSet:
        return None
    ready = state.ready = Ready(state.ready, next_of)
    return ready


# -- the data mapping


def keep_all(data: SpillBuffer, at_once: Callable[[Key], bool]) -> None:
    """From here on no value leaves private memory by itself; the target `n` stays. From zict 3 on a
    value above the target goes at once if at_once(key), and fails there if it cannot be pickled.
    """
    fast: Any = data.fast
    if hasattr(fast, "heap"):
        fast.n = math.inf
    else:
        fast.evict_until_below_target = partial(_evict_heavy, fast, at_once)


def _evict_heavy(fast: Any, at_once: Callable[[Key], bool], n: float | None = None) -> None:
    for key in [key for key in fast.heavy if at_once(key)]:
        fast.evict(key)


def oldest_private(data: SpillBuffer) -> Key:
    """The key that evict() would take. Only where `fast` is not empty."""
    fast: Any = data.fast
    if hasattr(fast, "heap"):
        return fast.heap.peekitem()[0]  # type: ignore[no-any-return]
    return next(iter(fast.heavy or fast.order))  # type: ignore[no-any-return]


def slow_of(data: SpillBuffer) -> Slow:
    """The mapping that writes and reads spill files. TypeError where that is not as we know it."""
    slow = getattr(data.slow, "data", None)
    if (isinstance(slow, Slow) and hasattr(data.slow, "cache") and hasattr(slow.d, "directory") and
        (_safe_key is not None or hasattr(slow.d, "filenames"))):
        return slow
    raise TypeError(f"spill files are written by {data.slow!r}")


def file_of(slow: Slow, key: Key) -> str:
    """The file in which the value of a key lies."""
    files: Any = slow.d
    name = _safe_key(key) if _safe_key is not None else files.filenames[key]
    return str(os.path.join(files.directory, name))


# -- sizes of libraries that Dask knows nothing of (2026.8 does not, either),
# and so takes for a few bytes


def _polars() -> None:
    import polars

    sizeof.register((polars.DataFrame, polars.Series), lambda frame: int(frame.estimated_size()))


def _torch() -> None:
    import torch

    sizeof.register(torch.Tensor, lambda tensor: int(tensor.numel() * tensor.element_size()))


def _xarray() -> None:
    """2022.12.1 does not know it, later versions do."""
    import xarray

    def size_of(variable: xarray.Variable) -> int:
        # its property `data` would read what is lazy
        return int(sizeof(getattr(variable, "_data", None)))

    def of_array(array: xarray.DataArray) -> int:
        return (size_of(array.variable) + sum(size_of(coordinate.variable)
                                              for coordinate in array.coords.values()))

    sizeof.register(xarray.DataArray, of_array)
    sizeof.register(xarray.Dataset, lambda dataset: sum(map(size_of, dataset.variables.values())))


def register_sizes() -> None:
    """Once, at import."""
    known = getattr(sizeof, "_lazy", {})
    for library, function in (("polars", _polars), ("torch", _torch), ("xarray", _xarray)):
        if library not in known:
            sizeof.register_lazy(library, function)


# -- a process that loses its nanny


def close_when_orphaned(store: Exchange) -> None:
    """store.close(), before this process ends for want of its parent."""
    _stores.add(store)
    if not missing_of(ORPHAN) and not isinstance(getattr(distributed.process, "os"), _Os):
        setattr(distributed.process, "os", _Os())


class _Os:
    """The module os, as Dask's module of processes sees it."""

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    @staticmethod
    def _exit(status: int) -> None:
        try:
            closing = threading.Thread(target=_close, daemon=True)
            closing.start()
            closing.join(_PATIENCE)
        finally:
            os._exit(status)


def _close() -> None:
    for store in list(_stores):
        store.close()
