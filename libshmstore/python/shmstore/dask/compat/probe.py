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


def _hooks(text: str) -> tuple[Hook, ...]:
    """Of words: "module:" before the paths in it, each with the parameters that it must take."""
    found, module = [], ""
    for word in text.split():
        path, _, parameters = word.rstrip(")").partition("(")
        if word.endswith(":"):
            module = word[:-1]
        else:
            found.append(Hook(module, path, tuple(parameters.split(",")) if parameters else ()))
    return tuple(found)


#: In all supported versions.
HOOKS = _hooks("""
    distributed.worker: Worker.get_data(comm,keys,who,serializers)
        Worker.gather_dep(worker,to_gather,total_nbytes) Worker.gather(who_has)
        Worker.update_data(data) Worker.execute(key) Worker.data Worker.handle_stimulus
        Worker.listen Worker.get_metrics Worker.plugin_add(plugin)
        Worker.digest_metric(name,value)
        Worker._update_metrics_received_data(start,stop,data,worker)
        get_data_from_worker(rpc,keys,worker,who)
    distributed.utils_comm: gather_from_workers(who_has,rpc,who) pack_data
    distributed.utils: offload
    distributed.threadpoolexecutor: ThreadPoolExecutor.submit(fn)
    distributed.worker_state_machine: ComputeTaskEvent ExecuteSuccessEvent(key,value,nbytes)
        ExecuteFailureEvent.from_exception(key,stimulus_id)
        GatherDepSuccessEvent(data,total_nbytes,stimulus_id)
        GatherDepBusyEvent(worker,total_nbytes,stimulus_id)
        GatherDepFailureEvent.from_exception(worker,total_nbytes,stimulus_id)
        UpdateDataEvent(data) AcquireReplicasEvent(who_has,nbytes,stimulus_id)
        RescheduleEvent(key,stimulus_id) UnpauseEvent(stimulus_id)
    distributed.collections: HeapSet(key) HeapSet.sorted HeapSet.pop HeapSet.discard
    distributed.worker_memory: WorkerMemoryManager.memory_monitor(worker)
    distributed.nanny: Nanny._on_worker_exit
    distributed.spill: SpillBuffer(spill_directory,target,max_spill) SpillBuffer.evict
        SpillBuffer.spilled_total SpillBuffer._slow_uncached SpillBuffer.fast_to_slow
        SpilledSize Slow
    distributed.protocol: dask_serialize.register dask_deserialize.register
    distributed.protocol.serialize: Serialized
    distributed.sizeof: safe_sizeof
    distributed.client: Client._scatter(data,workers,broadcast,direct,hash)
        Client._gather_remote(direct,local_worker) Client._replicate(futures,workers,n)
    dask.core: istask
    dask.utils: apply key_split
""")

#: One of each group, whole: it is done in either way (worker.py).
EITHER = (_hooks("""
    distributed.worker: _run_task(task,data,execution_state,key,active_threads,time_delay)
    dask._task_spec: Task TaskRef NestedContainer Alias DataNode Dict GraphNode.is_coro
"""), _hooks("""
    distributed.worker:
        apply_function(function,args,kwargs,execution_state,key,active_threads,time_delay)
        execute_task Worker._maybe_deserialize_task(ts) Worker._prepare_args_for_execution(ts)
"""))

#: Of the scheduler's side, for shmstore.dask.amm. Where one is absent its policies do
#: nothing; workers share all the same.
MANAGER = _hooks("""
    distributed.active_memory_manager: ActiveMemoryManagerPolicy.run
        ActiveMemoryManagerExtension(scheduler,policies,register,start,interval)
        ActiveMemoryManagerExtension.run_once ActiveMemoryManagerExtension.running
        ActiveMemoryManagerExtension.add_policy(policy) RetireWorker(address)
        Suggestion(op,ts,candidates)
    distributed.core: rpc(arg,connection_args)
    distributed.diagnostics.plugin: SchedulerPlugin.transition(key,start,finish)
        SchedulerPlugin.add_worker(scheduler,worker)
        SchedulerPlugin.remove_worker(scheduler,worker)
    distributed.scheduler: Scheduler.add_plugin(plugin,name,idempotent)
        Scheduler.retire_workers(workers,close_workers,remove)
        Scheduler.remove_worker(address,close,stimulus_id)
    distributed.nanny: Nanny.restart(timeout)
    distributed.client: Client._run_on_scheduler(function) futures_of
""")

#: Of P2P shuffles and rechunks (p2p.py). Where one is absent, as in 2022.12, these are stock's.
P2P = _hooks("""
    distributed.shuffle._worker_plugin:
        ShuffleWorkerPlugin.shuffle_receive(shuffle_id,run_id,data)
        _ShuffleRunManager._refresh(shuffle_id)
    distributed.shuffle._core: ShuffleRun.send(address,shards) ShuffleRun._send(address,shards)
        ShuffleRun.receive(data) ShuffleRun._receive(data) ShuffleRun.raise_if_closed
        ShuffleRun.deserialize(buffer) ShuffleRun._shard_partition(data,partition_id)
        ShuffleRun._write_to_disk(data) ShuffleRun.offload(func)
    distributed.shuffle._rechunk: ArrayRechunkRun(worker_for,old,new) split_axes(old,new)
    distributed.shuffle._shuffle: DataFrameShuffleRun(worker_for,column,meta,drop_column)
    distributed.shuffle._arrow: serialize_table(table) _INPUT_PARTITION_ID_COLUMN
    distributed.metrics: context_meter.digest_metric(label,value,unit)
    distributed.shuffle._comms: CommShardsBuffer(send,max_message_size)
    distributed.shuffle._disk: DiskShardsBuffer
""")

#: Of what workers ask their scheduler (ask_scheduler).
ASKING = _hooks("""
    distributed.protocol.pickle: dumps
    distributed.scheduler: Scheduler.run_function(function,args,kwargs,wait)
""")

#: Of the scheduler's queue (scheduler.py). Where one is absent, tasks go to workers as on stock.
QUEUE = _hooks("""
    distributed.scheduler: Scheduler.is_rootish(ts) Scheduler._add_to_processing(ts,ws)
        Scheduler.decide_worker_rootish_queuing_enabled
        Scheduler.stimulus_queue_slots_maybe_opened(stimulus_id)
        Scheduler.transitions(recommendations,stimulus_id) TaskGroup.nbytes_total
    distributed.collections: HeapSet.peek
""")

#: Of a worker's process whose nanny ends (close_when_orphaned). Where it is absent, what its store
#: held waits for the next look of gc.
ORPHAN = _hooks("distributed.process: os._exit")


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
