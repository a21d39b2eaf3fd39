# SPDX-License-Identifier: Apache-2.0
"""The policies as users see them: requests of clients, metrics, a page on the scheduler's HTTP
server, and `client.shmstore`.

The functions with `dask_scheduler` run on the scheduler, by `client.run_on_scheduler`. Metrics and
page are made of the result of `describe` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from distributed import Client
from distributed.client import futures_of

from ...richtext import size, table
from ..compat.scheduler import Family, add_page
from .conductor import Conductor, PolicyState
from .policies import Retire, Wishes

if TYPE_CHECKING:
    from distributed.active_memory_manager import ActiveMemoryManagerExtension as Manager
    from distributed.scheduler import Scheduler

    from ..compat.scheduler import Key

_TIMES = 20  # of the last retirements
Figure = Union[int, float, list[float]]


class Described(TypedDict):
    """The policies of a scheduler, for metrics, the page and clients."""

    policies: list[dict[str, Any]]  #: PolicyStates
    stock: list[str]  #: Dask's own
    figures: dict[str, Figure]
    hosts: list[dict[str, Any]]


def describe(dask_scheduler: Scheduler) -> Described:
    """Of one scheduler, now."""
    manager: Manager | None = dask_scheduler.extensions.get("amm")
    conductor = Conductor.known(manager)
    if conductor is None or manager is None:
        return {"policies": [], "stock": sorted(map(repr, manager.policies)) if manager is not None
                else [], "figures": {}, "hosts": []}
    ours = conductor.policies()
    figures: dict[str, Figure] = {**asdict(conductor.ledger.counters),
                                  "coming": len(conductor.ledger),
                                  "longest_slice": conductor.longest}
    for policy in ours:
        if isinstance(policy, Retire):
            seconds = policy.seconds[-_TIMES:]
            figures.update(retired=policy.retired, retire_seconds_sum=round(policy.seconds_sum, 4),
                           retire_seconds=[round(s, 4) for s in seconds])
    hosts = [
        {
            "host": host.name,
            "shared": host.shared,
            "workers": len(host.workers),
            "replicas": sum(len(worker.has_what) for worker in host.workers),
            "used": host.used,
            "size": host.size,
            "private": host.private,
            "pressed": host.pressed,
        }
        for host in conductor.hosts
    ]
    stock = sorted(repr(policy) for policy in manager.policies if policy not in ours)
    return {"policies": [policy.describe()._asdict() for policy in ours], "stock": stock,
            "figures": figures, "hosts": hosts}


def replicate(keys: list[Key], stores: int, hosts: int, on: Iterable[str],
              dask_scheduler: Scheduler) -> None:
    """Keeps the wish. RuntimeError where nobody would fulfil it."""
    manager: Manager | None = dask_scheduler.extensions.get("amm")
    if manager is None or not manager.running:
        raise RuntimeError(
            "the scheduler's memory manager is not started: configure "
            "distributed.scheduler.active-memory-manager.start: true, or call client.amm.start()"
        )
    wishes = _wishes(manager)
    if wishes is None:
        wishes = Wishes()
        manager.add_policy(wishes)
    wishes.wish(keys, stores, hosts, on)
    wishes.conductor.kick(0.0)


def withdraw(keys: list[Key], dask_scheduler: Scheduler) -> int:
    """How many wishes there were."""
    wishes = _wishes(dask_scheduler.extensions.get("amm"))
    return wishes.withdraw(keys) if wishes is not None else 0


def _wishes(manager: Manager | None) -> Wishes | None:
    return next((policy for policy in getattr(manager, "policies", ())
                 if isinstance(policy, Wishes)), None)


#: figure -> (name, whether it is a counter, meaning)
_FIGURE_METRICS = {
    "links": ("links", True, "Replicas made by hard link"),
    "copies": ("copies", True, "Replicas made over the network"),
    "bytes_linked": ("linked_bytes", True, "Bytes that links did not copy"),
    "bytes_copied": ("copied_bytes", True, "Bytes of replicas made over the network"),
    "lost": ("lost", True, "Replicas that were asked for and did not come in time"),
    "drops": ("drops", True, "Replicas that workers were asked to drop"),
    "bytes_dropped": ("dropped_bytes", True, "Bytes of the values whose replicas were dropped"),
    "drops_refused": ("drops_refused", True, "Drops that workers refused"),
    "suggestions_refused": ("suggestions_refused", True, "Suggestions of policies that Dask's "
                                                         "manager refused"),
    "coming": ("coming", False, "Replicas that were asked for and are under way"),
    "longest_slice": ("longest_slice_seconds", False, "Longest time for which the policies held "
                                                      "the scheduler's event loop"),
    "retired": ("retired", True, "Workers that were retired"),
    "retire_seconds_sum": ("retire_seconds", True, "Seconds that retirements took, all together"),
}
_HOST_METRICS = {
    "workers": ("workers", "Workers of a host"),
    "replicas": ("replicas", "Replicas of keys that a host's workers have"),
    "used": ("used_bytes", "Bytes of a host's partition in use"),
    "size": ("size_bytes", "Bytes of a host's partition"),
    "private": ("private_bytes", "Bytes of the processes of a host's workers"),
    "pressed": ("pressed", "1 where a host's partition is short of room"),
}
_POLICY_METRICS = {
    "runs": ("runs", True, "Runs of a policy"),
    "accepted": ("accepted", True, "Suggestions of a policy that Dask's manager took"),
    "failures": ("failures", True, "Runs of a policy that failed"),
    "took": ("run_seconds", False, "Seconds of the scheduler's event loop that a policy's last run "
                                   "took"),
}


def families(described: Described) -> list[Family]:
    """Those of which there is something."""
    figures, hosts, policies = described["figures"], described["hosts"], described["policies"]
    found = [
        Family(f"shmstore_amm_{name}", counts, meaning, (), [((), float(value))])
        for figure, (name, counts, meaning) in _FIGURE_METRICS.items()
        if isinstance(value := figures.get(figure), (int, float))
    ]
    for field, (name, meaning) in _HOST_METRICS.items() if hosts else ():
        samples = [((str(host["host"]),), float(host[field])) for host in hosts]
        found.append(Family(f"shmstore_amm_host_{name}", False, meaning, ("host",), samples))
    # Two of one class and arguments are one series.
    last = {str(policy["policy"]): policy for policy in policies}
    for field, (name, counts, meaning) in _POLICY_METRICS.items() if last else ():
        samples = [((label,), float(policy[field])) for label, policy in last.items()]
        found.append(Family(f"shmstore_amm_policy_{name}", counts, meaning, ("policy",), samples))
    return found


PATH = "shmstore"
_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:0 0 "
    "2em}caption{text-align:left;font-weight:bold;padding:.4em 0}"
    "th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ccc}"
)
_POLICY_COLUMNS = ("policy", "rank", "state", "period", "runs", "accepted", "failures", "last run")
_HOST_COLUMNS = ("host", "workers", "replicas", "partition used", "of", "private memory", "")


def publish(scheduler: Scheduler) -> None:
    """The page, and metrics among Dask's."""
    add_page(
        scheduler, PATH, lambda found: page(describe(dask_scheduler=found)),
        lambda found: families(describe(dask_scheduler=found))
    )


def page(described: Described) -> str:
    """HTML of what `describe` found."""
    policies = [
        (p["policy"], p["rank"], p["state"], f"{p['period']:g} s", p["runs"], p["accepted"],
         p["failures"], f"{1e3 * p['took']:.1f} ms")
        for p in described["policies"]
    ]
    hosts = [
        (
            host["host"],
            host["workers"],
            host["replicas"],
            size(host["used"]) if host["shared"] else "shares nothing",
            size(host["size"]) if host["shared"] else "",
            size(host["private"]),
            "short of room" if host["pressed"] else "",
        )
        for host in described["hosts"]
    ]
    figures = [(name.replace("_", " "), _figure(name, value))
               for name, value in described["figures"].items()]
    stock = (f"<p>Dask's own: {escape(', '.join(described['stock']))}</p>" if described["stock"]
             else "")
    tables = table("Policies, in the order in which they run", _POLICY_COLUMNS, policies) + stock
    tables += (table("What they did since the scheduler's start", ("figure", "value"), figures) +
               table("Hosts", _HOST_COLUMNS, hosts))
    head = (f"<meta charset='utf-8'><meta http-equiv='refresh' "
            f"content='5'><title>shmstore.dask.amm</title><style>{_STYLE}</style>")
    return (f"<!DOCTYPE html><html "
            f"lang='en'><head>{head}</head><body><h1>shmstore.dask.amm</h1>{tables}</body></html>")


def _figure(name: str, value: Figure) -> str:
    if name.startswith("bytes_"):
        return size(int(value))  # type: ignore[arg-type]
    if isinstance(value, list):
        return ", ".join(f"{one:.3f} s" for one in value)
    return f"{value:.3f} s" if isinstance(value, float) else str(value)


class Proxy:
    """Of one client. Where the client is asynchronous all of it is awaited."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def replicate(self, futures: object, n: int = 2,
                  hosts: int | str | Iterable[str] = 1) -> object:
        """Keeps futures' values on n workers until the futures are gone or `withdraw` is called,
        whatever happens to workers.

        n      workers that are to have each value; on one host a further one is a hard link
        hosts  hosts that are to have each; or names of the workers or hosts that
               may: then n of these have it

        It returns at once; replicas come as the values do. Raises RuntimeError where the
        scheduler's memory manager is not started.
        """
        n_hosts, on = ((hosts, []) if isinstance(hosts, int)
                       else (1, [hosts] if isinstance(hosts, str)
                             else [str(host) for host in hosts]))
        if n < 1 or n_hosts < 1:
            raise ValueError(f"n and hosts must be 1 or more, not {n} and {n_hosts}")
        return self._ask(replicate, _keys(futures), n, n_hosts, on)

    def withdraw(self, futures: object) -> object:
        """Takes wishes back: how many there were. Replicas that are there go when the
        policies see no use for them."""
        return self._ask(withdraw, _keys(futures))

    def policies(self) -> object:
        """A PolicyState for each policy of ours in the scheduler, in the
        order in which they run."""
        return self._client.sync(self._policies)

    def figures(self) -> object:
        """Counts since the scheduler's start: links, copies, bytes that links saved, drops,
        refusals, times of retirements."""
        return self._client.sync(self._part, "figures")

    def hosts(self) -> object:
        """The hosts as the policies see them: workers, replicas, use of the partition."""
        return self._client.sync(self._part, "hosts")

    def _ask(self, function: Callable[..., object], *arguments: object) -> object:
        return self._client.run_on_scheduler(function, *arguments)

    async def _policies(self) -> list[PolicyState]:
        return states_of(await described_to(self._client))

    async def _part(self, name: Literal["figures", "hosts"]) -> object:
        return (await described_to(self._client))[name]


def _keys(futures: Any) -> list[Key]:
    """Of futures, collections and keys."""
    if isinstance(futures, (str, bytes, tuple)) and not futures_of(futures):
        return [futures]  # type: ignore[list-item]
    return [future.key for future in futures_of(futures)] or list(futures)


async def described_to(client: Client) -> Described:
    """Calls `describe` on the scheduler."""
    found: Described = await client._run_on_scheduler(describe)
    return found


def states_of(described: Described) -> list[PolicyState]:
    """Of what `describe` found."""
    return [PolicyState(**policy) for policy in described["policies"]]
