# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of shmstore.dask.amm."""

from __future__ import annotations

import os

from conftest import wait_until  # noqa: F401

MIB = 1 << 20
POLICIES = "distributed.scheduler.active-memory-manager"


def amm(*policies, start=False, interval="2s"):
    """Settings of a cluster whose scheduler has these policies: names, or dicts
    as in the configuration."""
    named = [dict(policy) if isinstance(policy, dict) else {"class": policy} for policy in policies]
    for policy in named:
        if "." not in policy["class"]:
            policy["class"] = f"shmstore.dask.amm.{policy['class']}"
    return {f"{POLICIES}.policies": named, f"{POLICIES}.start": start,
            f"{POLICIES}.interval": interval}


def conductor(client):
    """Of the scheduler, which runs in this process."""
    from shmstore.dask.amm.conductor import Conductor

    return Conductor.of(client.cluster.scheduler.extensions["amm"])


def replicas(client, futures):
    """{key: on how many workers}, as the scheduler knows it."""
    return {key: len(who) for key, who in client.who_has(futures).items()}


def used(place):
    """Bytes of the partition's tmpfs, as df has them."""
    status = os.statvfs(place.path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
