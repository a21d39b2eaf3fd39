# SPDX-License-Identifier: Apache-2.0
"""The policies' work as metrics: made of the result of `serving.describe` alone."""

from __future__ import annotations

from typing import Any

from ..compat.web import Family

#: figure -> (name, whether it is a counter, meaning)
_FIGURES = {
    "links": ("links", True, "Replicas made by hard link"),
    "copies": ("copies", True, "Replicas made over the network"),
    "bytes_linked": ("linked_bytes", True, "Bytes that links did not copy"),
    "bytes_copied": ("copied_bytes", True, "Bytes of replicas made over the network"),
    "lost": ("lost", True, "Replicas that were asked for and did not come in time"),
    "drops": ("drops", True, "Replicas that workers were asked to drop"),
    "bytes_dropped": ("dropped_bytes", True, "Bytes of the values whose replicas were dropped"),
    "drops_refused": ("drops_refused", True, "Drops that workers refused"),
    "suggestions_refused": ("suggestions_refused", True, "Suggestions of policies that Dask's manager refused"),
    "coming": ("coming", False, "Replicas that were asked for and are under way"),
    "longest_slice": ("longest_slice_seconds", False, "Longest time for which the policies held the scheduler's event loop"),
    "retired": ("retired", True, "Workers that were retired"),
    "retire_seconds_sum": ("retire_seconds", True, "Seconds that retirements took, all together"),
}
_HOSTS = {
    "workers": ("workers", "Workers of a host"),
    "replicas": ("replicas", "Replicas of keys that a host's workers have"),
    "used": ("used_bytes", "Bytes of a host's partition in use"),
    "size": ("size_bytes", "Bytes of a host's partition"),
    "private": ("private_bytes", "Bytes of the processes of a host's workers"),
    "pressed": ("pressed", "1 where a host's partition is short of room"),
}
_POLICIES = {
    "runs": ("runs", True, "Runs of a policy"),
    "accepted": ("accepted", True, "Suggestions of a policy that Dask's manager took"),
    "failures": ("failures", True, "Runs of a policy that failed"),
    "took": ("run_seconds", False, "Seconds of the scheduler's event loop that a policy's last run took"),
}


def families(described: dict[str, Any]) -> list[Family]:
    """Those of which there is something."""
    figures, hosts, policies = described["figures"], described["hosts"], described["policies"]
    found = [
        Family(f"shmstore_amm_{name}", counts, meaning, (), [((), float(figures[figure]))])
        for figure, (name, counts, meaning) in _FIGURES.items()
        if figure in figures
    ]
    for field, (name, meaning) in _HOSTS.items() if hosts else ():
        samples = [((str(host["host"]),), float(host[field])) for host in hosts]
        found.append(Family(f"shmstore_amm_host_{name}", False, meaning, ("host",), samples))
    # Two of one class and arguments are one series.
    last = {str(policy["policy"]): policy for policy in policies}
    for field, (name, counts, meaning) in _POLICIES.items() if last else ():
        samples = [((label,), float(policy[field])) for label, policy in last.items()]
        found.append(Family(f"shmstore_amm_policy_{name}", counts, meaning, ("policy",), samples))
    return found


def names() -> list[str]:
    """Of all there may be, as Prometheus has them."""
    found = [(name, counts) for name, counts, _ in _FIGURES.values()]
    found += [(f"host_{name}", False) for name, _ in _HOSTS.values()] + [(f"policy_{name}", counts) for name, counts, _ in _POLICIES.values()]
    return [f"shmstore_amm_{name}" + "_total" * counts for name, counts in found]
