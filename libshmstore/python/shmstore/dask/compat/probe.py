# SPDX-License-Identifier: Apache-2.0
"""Is every hook there? Asked before the modules that use them are imported: a Dask that
lacks one works as stock, and is told which. And the package on such a Dask: the same names,
which do as stock Dask does.

Hooks on a running worker's objects are seen there: if its set-up fails, it stays stock (worker.py).
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Generator
from typing import Any, NamedTuple

import distributed
from distributed import Client, Worker, performance_report

__all__ = ["Worker", "performance_report"]  # of Dask's own


class Hook(NamedTuple):
    """One name: where it is, and parameters that it must take."""

    module: str
    path: str
    parameters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return (f"{self.module}.{self.path}" + (f"({', '.join(self.parameters)})" if self.parameters
                                                else ""))

    def there(self) -> bool:
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.path.split("."):
                found = getattr(found, part)
            taken = inspect.signature(found).parameters if self.parameters else {}
        except (ImportError, AttributeError, TypeError, ValueError):
            return False
        return all(name in taken for name in self.parameters)


_WORKER = "distributed.worker"
_MACHINE = "distributed.worker_state_machine"

#: In all supported versions.
HOOKS = (
    Hook(_WORKER, "Worker.get_data", ("comm", "keys", "who", "serializers")),
    Hook(_WORKER, "Worker.gather_dep", ("worker", "to_gather", "total_nbytes")),
    Hook(_WORKER, "Worker.gather", ("who_has",)),
    Hook(_WORKER, "Worker.update_data", ("data",)),
    Hook(_WORKER, "Worker.execute", ("key",)),
    Hook(_WORKER, "Worker.data"),
    Hook(_WORKER, "Worker.handle_stimulus"),
    Hook(_WORKER, "Worker.listen"),
    Hook(_WORKER, "Worker.get_metrics"),
    Hook(_WORKER, "Worker.plugin_add", ("plugin",)),
    Hook(_WORKER, "Worker.digest_metric", ("name", "value")),
    Hook(_WORKER, "Worker._update_metrics_received_data", ("start", "stop", "data", "worker")),
    Hook(_WORKER, "get_data_from_worker", ("rpc", "keys", "worker", "who")),
    Hook("distributed.utils_comm", "gather_from_workers", ("who_has", "rpc", "who")),
    Hook("distributed.utils_comm", "pack_data"),
    Hook("distributed.utils_comm", "unpack_remotedata", ("byte_keys",)),
    Hook("distributed.utils", "offload"),
    Hook("distributed.threadpoolexecutor", "ThreadPoolExecutor.submit", ("fn",)),
    Hook(_MACHINE, "ComputeTaskEvent"),
    Hook(_MACHINE, "ExecuteSuccessEvent", ("key", "value", "nbytes")),
    Hook(_MACHINE, "ExecuteFailureEvent.from_exception", ("key", "stimulus_id")),
    Hook(_MACHINE, "GatherDepSuccessEvent", ("data", "total_nbytes", "stimulus_id")),
    Hook(_MACHINE, "GatherDepBusyEvent", ("worker", "total_nbytes", "stimulus_id")),
    Hook(_MACHINE, "GatherDepFailureEvent.from_exception",
         ("worker", "total_nbytes", "stimulus_id")),
    Hook(_MACHINE, "UpdateDataEvent", ("data",)),
    Hook(_MACHINE, "AcquireReplicasEvent", ("who_has", "nbytes", "stimulus_id")),
    Hook(_MACHINE, "RescheduleEvent", ("key", "stimulus_id")),
    Hook(_MACHINE, "UnpauseEvent", ("stimulus_id",)),
    Hook("distributed.collections", "HeapSet", ("key",)),
    Hook("distributed.collections", "HeapSet.sorted"),
    Hook("distributed.collections", "HeapSet.pop"),
    Hook("distributed.collections", "HeapSet.discard"),
    Hook("distributed.worker_memory", "WorkerMemoryManager.memory_monitor", ("worker",)),
    Hook("distributed.nanny", "Nanny._on_worker_exit"),
    Hook("distributed.spill", "SpillBuffer", ("spill_directory", "target", "max_spill")),
    Hook("distributed.spill", "SpillBuffer.evict"),
    Hook("distributed.spill", "SpillBuffer.spilled_total"),
    Hook("distributed.spill", "SpillBuffer._slow_uncached"),
    Hook("distributed.spill", "SpillBuffer.fast_to_slow"),
    Hook("distributed.spill", "SpilledSize"),
    Hook("distributed.spill", "Slow"),
    Hook("distributed.protocol", "dask_serialize.register"),
    Hook("distributed.protocol", "dask_deserialize.register"),
    Hook("distributed.protocol.serialize", "Serialized"),
    Hook("distributed.sizeof", "safe_sizeof"),
    Hook("distributed.client", "Client._scatter", ("data", "workers", "broadcast", "direct",
                                                   "hash")),
    Hook("distributed.client", "Client._gather", ("futures", "errors", "direct", "local_worker")),
    Hook("distributed.client", "Client._replicate", ("futures", "workers", "n")),
    Hook("dask.core", "istask"),
    Hook("dask.utils", "apply"),
    Hook("dask.utils", "key_split"),
)

#: One of each group, whole: it is done in either way (worker.py).
EITHER = (
    (
        Hook(_WORKER, "_run_task", ("task", "data", "execution_state", "key", "active_threads",
                                    "time_delay")),
        Hook("dask._task_spec", "Task"),
        Hook("dask._task_spec", "TaskRef"),
        Hook("dask._task_spec", "NestedContainer"),
        Hook("dask._task_spec", "Alias"),
        Hook("dask._task_spec", "DataNode"),
        Hook("dask._task_spec", "Dict"),
        Hook("dask._task_spec", "GraphNode.is_coro"),
    ),
    (
        Hook(_WORKER, "apply_function", ("function", "args", "kwargs", "execution_state", "key",
                                         "active_threads", "time_delay")),
        Hook(_WORKER, "execute_task"),
        Hook(_WORKER, "Worker._maybe_deserialize_task", ("ts",)),
        Hook(_WORKER, "Worker._prepare_args_for_execution", ("ts",)),
    ),
)

#: Of the scheduler's side, for shmstore.dask.amm. Where one is absent its policies do
#: nothing; workers share all the same.
_MANAGER = "distributed.active_memory_manager"
MANAGER = (
    Hook(_MANAGER, "ActiveMemoryManagerPolicy.run"),
    Hook(_MANAGER, "ActiveMemoryManagerExtension", ("scheduler", "policies", "register", "start",
                                                    "interval")),
    Hook(_MANAGER, "ActiveMemoryManagerExtension.run_once"),
    Hook(_MANAGER, "ActiveMemoryManagerExtension.running"),
    Hook(_MANAGER, "ActiveMemoryManagerExtension.add_policy", ("policy",)),
    Hook(_MANAGER, "RetireWorker", ("address",)),
    Hook(_MANAGER, "Suggestion", ("op", "ts", "candidates")),
    Hook("distributed.core", "rpc", ("arg", "connection_args")),
    Hook("distributed.diagnostics.plugin", "SchedulerPlugin.transition",
         ("key", "start", "finish")),
    Hook("distributed.diagnostics.plugin", "SchedulerPlugin.add_worker", ("scheduler", "worker")),
    Hook("distributed.diagnostics.plugin", "SchedulerPlugin.remove_worker",
         ("scheduler", "worker")),
    Hook("distributed.scheduler", "Scheduler.add_plugin", ("plugin", "name", "idempotent")),
    Hook("distributed.scheduler", "Scheduler.retire_workers",
         ("workers", "close_workers", "remove")),
    Hook("distributed.scheduler", "Scheduler.remove_worker", ("address", "close", "stimulus_id")),
    Hook("distributed.nanny", "Nanny.restart", ("timeout",)),
    Hook("distributed.client", "Client._run_on_scheduler", ("function",)),
    Hook("distributed.client", "futures_of"),
)

#: Of P2P shuffles and rechunks (p2p.py). Where one is absent, as in 2022.12, these are stock's.
_CORE = "distributed.shuffle._core"
P2P = (
    Hook("distributed.shuffle._worker_plugin", "ShuffleWorkerPlugin.shuffle_receive",
         ("shuffle_id", "run_id", "data")),
    Hook("distributed.shuffle._worker_plugin", "_ShuffleRunManager._refresh", ("shuffle_id",)),
    Hook("distributed.utils", "sync", ("loop", "func")),
    Hook(_CORE, "ShuffleRun.send", ("address", "shards")),
    Hook(_CORE, "ShuffleRun._send", ("address", "shards")),
    Hook(_CORE, "ShuffleRun.receive", ("data",)),
    Hook(_CORE, "ShuffleRun.raise_if_closed"),
    Hook(_CORE, "ShuffleRun._get_output_partition", ("partition_id", "key")),
    Hook(_CORE, "ShuffleRun.deserialize", ("buffer",)),
    Hook(_CORE, "ShuffleRun._shard_partition", ("data", "partition_id")),
    Hook("distributed.shuffle._scheduler_plugin", "ShuffleSchedulerPlugin._fail_on_workers",
         ("shuffle", "message")),
    Hook("distributed.shuffle._scheduler_plugin", "ShuffleSchedulerPlugin._clean_on_scheduler",
         ("id", "stimulus_id")),
    Hook("distributed.shuffle._scheduler_plugin", "ShuffleSchedulerPlugin._restart_shuffle",
         ("id", "scheduler", "stimulus_id")),
    Hook("distributed.shuffle._exceptions", "ShuffleClosedError"),
    Hook("distributed.shuffle._rechunk", "ArrayRechunkRun", ("worker_for", "old", "new")),
    Hook("distributed.shuffle._rechunk", "split_axes", ("old", "new")),
    Hook("distributed.shuffle._shuffle", "DataFrameShuffleRun",
         ("worker_for", "column", "meta", "drop_column")),
    Hook("distributed.shuffle._arrow", "serialize_table", ("table",)),
    Hook("distributed.shuffle._arrow", "_INPUT_PARTITION_ID_COLUMN"),
    Hook("distributed.metrics", "context_meter.digest_metric", ("label", "value", "unit")),
    Hook("distributed.shuffle._comms", "CommShardsBuffer", ("send", "max_message_size")),
    Hook("distributed.shuffle._disk", "DiskShardsBuffer", ("directory", "read")),
    Hook("distributed.shuffle._disk", "DiskShardsBuffer._process", ("id", "shards")),
    Hook("distributed.shuffle._disk", "DiskShardsBuffer.read", ("id",)),
    Hook("distributed.shuffle._disk", "DiskShardsBuffer.close"),
    Hook("distributed.shuffle._disk", "DiskShardsBuffer.raise_on_exception"),
)

#: Of what workers ask their scheduler (ask_scheduler).
ASKING = (
    Hook("distributed.protocol.pickle", "dumps"),
    Hook("distributed.scheduler", "Scheduler.run_function", ("function", "args", "kwargs", "wait")),
)

#: Of the scheduler's queue (scheduler.py). Where one is absent, tasks go to workers as on stock.
QUEUE = (
    Hook("distributed.scheduler", "Scheduler.is_rootish", ("ts",)),
    Hook("distributed.scheduler", "Scheduler._add_to_processing", ("ts", "ws")),
    Hook("distributed.scheduler", "Scheduler.decide_worker_rootish_queuing_enabled"),
    Hook("distributed.scheduler", "Scheduler.stimulus_queue_slots_maybe_opened", ("stimulus_id",)),
    Hook("distributed.scheduler", "Scheduler.transitions", ("recommendations", "stimulus_id")),
    Hook("distributed.scheduler", "TaskGroup.nbytes_total"),
    Hook("distributed.collections", "HeapSet.peek"),
)

#: Of a worker's process whose nanny ends (close_when_orphaned). Where it is absent, what its store
#: held waits for the next look of gc.
ORPHAN = (Hook("distributed.process", "os._exit"),)


def missing_of(hooks: tuple[Hook, ...]) -> list[str]:
    """Names of those of them that this Dask does not have."""
    return [hook.name for hook in hooks if not hook.there()]


def missing() -> list[str]:
    """Names of the hooks that this Dask does not have."""
    absent = missing_of(HOOKS)
    ways = [missing_of(way) for way in EITHER]
    return absent + min(ways, key=len)


# -- by name what clients do, whichever way that is


def scatter(client: Client, data: object, *args: object, **kwargs: object) -> object:
    """As client.scatter(data, …)."""
    return client.scatter(data, *args, **kwargs)


def gather(client: Client, futures: object, *args: object, **kwargs: object) -> object:
    """As client.gather(futures, …)."""
    return client.gather(futures, *args, **kwargs)


# -- the package where one is missing


def say(missing: list[str], package: str, then: str, logger: str) -> None:
    """Once, at import."""
    found = distributed.__version__  # type: ignore[attr-defined]
    logging.getLogger(logger).warning("shmstore: distributed %s lacks what %s needs of it: %s. %s",
                                      found, package, "; ".join(missing), then)


class Nanny(distributed.Nanny):
    """distributed.Nanny."""


class Input:
    """Stands for nothing here: no key is done in pieces."""


def dask_setup(server: object) -> None:
    """A worker or nanny that preloads this package stays as it is."""


def report(client: Client) -> tuple[()]:
    """No worker shares anything."""
    return ()


def register_splitter(func_or_prefix: object, split: object, combine: object) -> None:
    """No key is done in pieces."""


# -- and its policies where the manager lacks one


try:
    from distributed.active_memory_manager import ActiveMemoryManagerPolicy
except ImportError:
    ActiveMemoryManagerPolicy = object  # type: ignore[assignment, misc]


class PolicyState(NamedTuple):
    """Of none."""

    policy: str


class Policy(ActiveMemoryManagerPolicy):
    """Takes any argument, suggests nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def run(self) -> Generator[Any, Any, None]:
        """Nothing. A generator, as the manager sends it what came of each suggestion."""
        yield from ()


Cycle = HostReduceReplicas = InDemand = Insurance = Newcomers = Offload = Retire = Wishes = Policy
