# SPDX-License-Identifier: Apache-2.0
"""Client scatter and gather through the partition: `Client.scatter`, `Client.gather` and
`Future.result` go this way where this package is imported, and so `scatter(client, data, …)` and
`gather(client, futures, …)`, which call them.

They take and return what stock's do. Stock sends small or non-shareable values, those of workers of
other hosts or without shmstore, and all with a full partition, or none, or workers in this process.

A client has a store only while it scatters or gathers large values: afterwards the workers hold the
objects, or the mapped values do.

`report` says where the values of a cluster's workers are.
"""

from __future__ import annotations

import functools
import html
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import distributed
from dask.base import tokenize
from distributed import Actor, Client, Future
from distributed.sizeof import safe_sizeof

from ..richtext import size, table
from .compat.worker import ask_workers, has_workers
from .config import Fallbacks, Guard, Settings, enabled, offload
from .exchange import NEVER_SHAREABLE, Entry, Exchange
from .handle import Handle

if TYPE_CHECKING:
    from .amm import PolicyState
    from .compat.worker import Key

Workers = Union[str, int, Iterable[object], None]  #: addresses, names or hosts
_counter = itertools.count()
_guard = Guard(Fallbacks(60.0, "client"))
_stock_gather_remote: Callable[..., Awaitable[dict[str, Any]]] = Client._gather_remote
_stock_scatter: Callable[..., Awaitable[Any]] = Client._scatter


def attach() -> None:
    """From here on stock's ways of this process's clients are these, unless `enabled` is false."""
    Client._gather_remote = _gather_remote  # type: ignore[assignment, method-assign]
    Client._scatter = _scatter  # type: ignore[assignment, method-assign]


@functools.wraps(_stock_scatter)
async def _scatter(
    client: Client, data: object, workers: Workers = None, broadcast: bool | int = False,
    direct: bool | None = None, local_worker: object = None, hash: bool = True, **kwargs: object
) -> object:
    stock = functools.partial(_stock_scatter, client, direct=direct, **kwargs)
    if local_worker is not None or has_workers() or enabled() is False:
        return await stock(data, workers=workers, broadcast=broadcast, local_worker=local_worker,
                           hash=hash)
    if isinstance(data, (range, Iterator)):
        data = list(data)
    if not _has_large(data):
        return await stock(data, workers=workers, broadcast=broadcast, hash=hash)
    with _exchange(client) as exchange:
        peers = [] if exchange is None else await _peers(client, exchange, workers)
        named, rebuild = _named(data, hash) if peers else ({}, None)
        shared = await offload(_shared, exchange, named) if exchange is not None else {}
        if exchange is None or rebuild is None or not shared:
            return await stock(data, workers=workers, broadcast=broadcast, hash=hash)
        try:
            placed = await stock({**named, **shared}, workers=peers)
        except Exception as e:
            # what a worker raised comes through the scheduler as a plain Exception
            exchange.fallbacks.note("scatter-failed", e, next(iter(shared)), "sent as on stock")
            for handle in shared.values():
                handle.revoke()
            placed = await stock(named, workers=workers)
    for key in shared:
        client.futures[key].type = type(named[key])
    if broadcast:
        await client._replicate(list(placed.values()), workers=workers,
                                n=None if broadcast is True else broadcast)
    return rebuild(placed)


def _shared(exchange: Exchange, named: dict[str, object]) -> dict[str, Handle]:
    """Handles for those values that are worth it. The handle's lease is then
    all that holds the object."""
    shared = {}
    for key, value in named.items():
        entry = (exchange.guard.call("scatter", exchange.put, key, value, key=key)
                 if exchange.candidate(value) else None)
        if not isinstance(entry, Entry):
            continue
        handle = exchange.handoff(key, entry)
        exchange.drop(entry)
        if handle is not None:
            shared[key] = handle
    return shared


def _has_large(data: object) -> bool:
    """Whether any of them may be worth it. Client.scatter handles other containers."""
    if type(data) is dict and all(isinstance(key, str) for key in data):
        values = list(data.values())
    elif type(data) is list or type(data) is tuple:
        values = list(data)
    else:
        values = [] if isinstance(data, (dict, list, tuple, set, frozenset)) else [data]
    min_size = Settings().min_size
    return any(not isinstance(value, NEVER_SHAREABLE) and safe_sizeof(value) >= min_size
               for value in values)


def _named(data: object, hash: bool) -> tuple[dict[str, object],
                                              Callable[[dict[str, object]], object]]:
    """The data as Client.scatter names it, and how to make its result of the futures by name."""
    if isinstance(data, dict):
        return data, lambda placed: {name: placed[name] for name in data}
    kind = type(data) if isinstance(data, (list, tuple)) else None
    values = list(data) if isinstance(data, (list, tuple)) else [data]
    keys = [f"{type(value).__name__}-{tokenize(value) if hash else uuid.uuid4().hex}"
            for value in values]
    return dict(zip(keys, values)), lambda placed: (
        placed[keys[0]] if kind is None else kind(placed[key] for key in keys))


async def _peers(client: Client, exchange: Exchange, workers: Workers) -> list[str]:
    """Addresses of the running workers that share our partition, of those
    that are named if some are."""
    if isinstance(workers, (str, int)):
        workers = [workers]
    wanted = None if workers is None else {str(worker) for worker in workers}
    identity = await _scheduler(client).identity()
    peers = []
    for address, info in identity["workers"].items():
        names = {address, str(info.get("name")), str(info.get("host"))}
        if ((wanted is None or names & wanted) and info.get("status", "running") == "running" and
            exchange.is_peer(address)):
            peers.append(address)
    return peers


def _scheduler(client: Client) -> Any:
    """Calls of it."""
    return client.scheduler


@functools.wraps(_stock_gather_remote)
async def _gather_remote(client: Client, direct: bool, local_worker: bool) -> dict[str, Any]:
    keys = client._gather_keys
    if local_worker or has_workers() or enabled() is False or keys is None:
        return await _stock_gather_remote(client, direct, local_worker)
    # those who gather from here on do not wait for these
    client._gather_keys = client._gather_future = None
    data = await _guard.wait("gather", _large, client, keys) or {}
    if not keys - data.keys():
        return {"status": "OK", "data": data}
    response = await _stock_gather_remote(_Asked(client, keys - data.keys()), direct, local_worker)
    if response["status"] == "OK":
        response["data"].update(data)
    return response


class _Asked:
    """A client, of which these keys are to be gathered."""

    def __init__(self, client: Client, keys: set[Key]) -> None:
        self._client, self._gather_keys = client, keys

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)


async def _large(client: Client, keys: set[Key]) -> dict[Key, object]:
    """Those values that are large and came by link."""
    wanted = [key for key in keys if (state := client.futures.get(key)) is not None and
              not (isinstance(state.type, type) and
                   issubclass(state.type, (*NEVER_SHAREABLE, Actor)))]
    # the scheduler is away, or has forgotten one: stock says so
    with suppress(OSError, LookupError):
        sizes = await _scheduler(client).nbytes(keys=wanted, summary=False) if wanted else {}
        min_size = Settings().min_size
        wanted = [key for key in wanted if sizes[key] >= min_size]
    if not wanted:
        return {}
    with _exchange(client) as exchange:
        return await _fetch(client, exchange, wanted) if exchange is not None else {}


async def _fetch(client: Client, exchange: Exchange, keys: list[Key]) -> dict[Key, object]:
    """The values of those keys that a worker of this host has; handles mapped."""
    who_has = await _scheduler(client).who_has(keys=keys)
    here = {key: [address for address in addresses if exchange.is_peer(address)]
            for key, addresses in who_has.items()}
    here = {key: addresses for key, addresses in here.items() if addresses}
    if not here:
        return {}
    data = await ask_workers(client.rpc, here, exchange.fallbacks.who)
    for key, value in list(data.items()):
        if not isinstance(value, Handle):
            continue
        del data[key]
        if not exchange.adopt(key, value):
            continue
        entry = value.take()
        try:
            data[key] = await offload(exchange.map, entry)
        except (OSError, KeyError) as e:
            exchange.fallbacks.note("map-failed", e, key, "fetched as on stock")
        exchange.drop(entry)
    return data


@contextmanager
def _exchange(client: Client) -> Iterator[Exchange | None]:
    """A store for one call, None where there can be none."""
    try:
        exchange = Exchange(Settings(), "dask-client")
    except (OSError, ValueError) as e:
        _guard.fallbacks.note("no-store", e, then="sent as on stock")
        yield None
        return
    try:
        exchange.set_address(f"client://{client.id}/{next(_counter)}")
        yield exchange
    finally:
        exchange.close()


_HEAD = ("worker", "private memory", "shared memory", "disk tier", "spill files")
_NOTE = ('Dask\'s "spilled" is the sum of the last three; shared memory is memory, on no disk, '
         'counted once over the workers of a host.')


class WorkerReport(NamedTuple):
    """Of one worker, in bytes. A value that several workers link counts a part in each."""

    worker: str
    shares: bool  #: it is one of ours, and has its store
    private: int  #: the process's own memory
    partition: int  #: in shared memory
    tier: int  #: in the partition's disk tier, as it is in memory
    spill: int  #: in spill files of Dask's kind
    #: why values were not shared -> how many of min-size and more, and their bytes
    not_shared: Mapping[str, tuple[int, int]] = {}


class Report(tuple[WorkerReport, ...]):
    """One WorkerReport for each worker. As text, and in notebooks, a table with a line of sums, and
    one of the scheduler's policies."""

    policies: tuple[PolicyState, ...] = ()  #: a PolicyState of each policy of shmstore.dask.amm
    figures: Mapping[str, object] = {}  #: what they did; client.shmstore.figures()

    @property
    def not_shared(self) -> dict[str, tuple[int, int]]:
        """Of all workers: why values were not shared -> how many, and their
        bytes; most bytes first."""
        found: dict[str, tuple[int, int]] = {}
        for why, (n, nbytes) in (item for worker in self for item in worker.not_shared.items()):
            before = found.get(why, (0, 0))
            found[why] = before[0] + n, before[1] + nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "workers": [worker._asdict() for worker in self],
            "policies": [policy._asdict() for policy in self.policies],
            "figures": dict(self.figures),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [
            (w.worker, size(w.private), size(w.partition) if w.shares else "shares nothing",
             size(w.tier), size(w.spill)) for w in self
        ]
        sums = [sum(getattr(w, field) for w in self) for field in WorkerReport._fields[2:6]]
        return [*rows, ("all", *map(size, sums))]

    def __str__(self) -> str:
        rows = [_HEAD, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(
            zip(row, widths))) for row in rows]
        return "\n".join([*lines, _NOTE, *self._further_lines()])

    def _further_lines(self) -> list[str]:
        lines = [f"not shared: {n} values, {size(nbytes)}: {why}"
                 for why, (n, nbytes) in self.not_shared.items()]
        lines += [f"policy {p.policy}: {p.state}, period {p.period:g} s, runs {p.runs}, accepted "
                  f"{p.accepted}, failures {p.failures}" for p in self.policies]
        return (lines + [", ".join(f"{name.replace('_', ' ')} {value}"
                                   for name, value in self.figures.items())] * bool(self.figures))

    def _repr_html_(self) -> str:
        page = table("shmstore.dask. " + _NOTE, _HEAD, self._rows())
        return page + "".join(f"<p>{html.escape(line)}</p>" for line in self._further_lines())


def report(client: Client) -> Report:
    """Where the values of all workers are, by what each said of itself last
    (every half second or so)."""
    return client.sync(_report, client)  # type: ignore[no-any-return]


async def _report(client: Client) -> Report:
    identity = await _scheduler(client).identity()
    found = Report(_row_of(address, info.get("metrics") or {}) for address, info in sorted(
        identity["workers"].items()))
    # Dask has no such manager, or shmstore is not installed where the scheduler runs, or
    # nobody may run anything there
    with suppress(Exception):
        from .amm.serving import described_to, states_of

        policies = await described_to(client)
        found.policies, found.figures = tuple(states_of(policies)), policies["figures"]
    return found


def _row_of(address: str, metrics: dict[str, Any]) -> WorkerReport:
    ours = metrics.get("shmstore") or {}
    spilled = metrics.get("spilled_bytes") or {}
    disk = (spilled.get("disk", 0) if isinstance(spilled, dict)
            else metrics.get("spilled_nbytes", {}).get("disk", 0))
    partition, tier = int(ours.get("memory", 0)), int(ours.get("tier", 0))
    return WorkerReport(address, bool(ours), int(metrics.get("memory", 0)), partition, tier,
                        max(0, int(disk) - partition - tier), ours.get("not-shared") or {})


class performance_report(distributed.performance_report):
    """distributed.performance_report whose file says where the values were at its end, too."""

    async def __aexit__(self, *args: object, **kwargs: object) -> None:
        found = await _guard.wait("report", _report, distributed.get_client())
        await super().__aexit__(*args, **kwargs)  # type: ignore[no-untyped-call]
        if found is not None:
            add_to(self.filename, found)


def add_to(filename: str, found: Report) -> None:
    """Puts the report at the top of a page that Dask has written."""
    with open(filename, encoding="utf-8") as file:
        page = file.read()
    at = page.find(">", page.find("<body")) + 1 if "<body" in page else 0
    text = (f"<section "
            f"id='shmstore'><h2>shmstore.dask</h2><pre>{html.escape(str(found))}</pre></section>")
    with open(filename, "w", encoding="utf-8") as file:
        file.write(page[:at] + text + page[at:])
