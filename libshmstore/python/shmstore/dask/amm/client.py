# SPDX-License-Identifier: Apache-2.0
"""`client.shmstore`: what users ask of the policies in the scheduler, and what these say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed import Client
from distributed.client import futures_of

from . import serving
from .policy import PolicyState


class Proxy:
    """Of one client. Where the client is asynchronous all of it is awaited."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def replicate(self, futures: Any, n: int = 2, hosts: int | str | Iterable[str] = 1) -> Any:
        """Keeps futures' values on n workers until the futures are gone or `withdraw` is called, whatever happens to workers.

        n      workers that are to have each value; on one host a further one is a hard link
        hosts  hosts that are to have each; or names of the workers or hosts that may: then n of these have it

        It returns at once; replicas come as the values do. Raises RuntimeError where the scheduler's memory manager is not started.
        """
        n_hosts, on = (hosts, []) if isinstance(hosts, int) else (1, [hosts] if isinstance(hosts, str) else [str(host) for host in hosts])
        if n < 1 or n_hosts < 1:
            raise ValueError(f"n and hosts must be 1 or more, not {n} and {n_hosts}")
        return self._ask(serving.replicate, _keys(futures), n, n_hosts, on)

    def withdraw(self, futures: Any) -> Any:
        """Takes wishes back: how many there were. Replicas that are there go when the policies see no use for them."""
        return self._ask(serving.withdraw, _keys(futures))

    def policies(self) -> Any:
        """A PolicyState for each policy of ours in the scheduler, in the order in which they run."""
        return self._client.sync(self._policies)

    def figures(self) -> Any:
        """What the policies did since the scheduler's start: links, copies, bytes that links saved, drops, refusals, times of retirements."""
        return self._client.sync(self._part, "figures")

    def hosts(self) -> Any:
        """The hosts as the policies see them: workers, replicas, use of the partition."""
        return self._client.sync(self._part, "hosts")

    def _ask(self, function: Any, *arguments: Any) -> Any:
        return self._client.run_on_scheduler(function, *arguments)

    async def _policies(self) -> list[PolicyState]:
        return states_of(await describe(self._client))

    async def _part(self, name: str) -> Any:
        return (await describe(self._client))[name]


def _keys(futures: Any) -> list[Any]:
    """Of futures, collections and keys."""
    if isinstance(futures, (str, bytes, tuple)) and not futures_of(futures):
        return [futures]
    return [future.key for future in futures_of(futures)] or list(futures)


async def describe(client: Client) -> dict[str, Any]:
    """serving.describe, on the scheduler."""
    found: dict[str, Any] = await client._run_on_scheduler(serving.describe)
    return found


def states_of(described: dict[str, Any]) -> list[PolicyState]:
    """Of what `describe` found."""
    return [PolicyState(**policy) for policy in described["policies"]]
