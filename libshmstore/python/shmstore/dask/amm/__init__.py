# SPDX-License-Identifier: Apache-2.0
"""Policies for the Active Memory Manager of Dask's scheduler, on hosts whose workers share memory.
They are named in the configuration:

    distributed:
      scheduler:
        active-memory-manager:
          start: true
          policies:
            - class: shmstore.dask.amm.HostReduceReplicas

docs/dask.md says which are for what. Workers that share nothing may be in the same
cluster: each is a host of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import config as _config  # noqa: F401: the defaults
from ..compat import probe as _probe

#: Hooks that this Dask's manager lacks: if there are any, the policies do nothing.
missing_hooks = _probe.missing_of(_probe.MANAGER)

if TYPE_CHECKING or not missing_hooks:
    from ..compat.scheduler import give_clients as _give_clients
    from .conductor import Policy, PolicyState
    from .policies import Cycle, InDemand, Insurance, Newcomers, Offload, Retire, Wishes
    from .reduce import HostReduceReplicas
    from .serving import Proxy as _Proxy

    _give_clients(_Proxy)
else:
    from ..compat.probe import (
        Cycle, HostReduceReplicas, InDemand, Insurance, Newcomers, Offload, Policy, PolicyState,
        Retire, Wishes,
    )

    _probe.say(missing_hooks, __name__, "Its policies do nothing", "distributed.scheduler.shmstore")

__all__ = [
    "Cycle",
    "HostReduceReplicas",
    "InDemand",
    "Insurance",
    "Newcomers",
    "Offload",
    "Policy",
    "PolicyState",
    "Retire",
    "Wishes",
    "missing_hooks",
]
