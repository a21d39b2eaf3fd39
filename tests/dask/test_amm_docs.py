# SPDX-License-Identifier: Apache-2.0
"""docs/dask.md: its own policy is the one that is tested, its table has every policy and argument,
and ranks are as it says."""

from __future__ import annotations

import inspect
import os
import re

import dask
import yaml
from distributed import Client

from shmstore.dask import amm

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "..", "..", "docs", "dask.md"), encoding="utf-8") as _file:
    PAGE = re.split(r"^## ", _file.read().partition("## The Active Memory Manager\n")[2],
                    maxsplit=1, flags=re.M)[0]
POLICIES = {name: getattr(amm, name) for name in amm.__all__
            if inspect.isclass(getattr(amm, name)) and name not in ("Policy", "PolicyState")}


def test_the_example_is_the_one_that_is_tested():
    with open(os.path.join(HERE, "amm_example.py"), encoding="utf-8") as file:
        tested = file.read()
    example = re.search(r"```python\n(from shmstore\.dask\.amm import Policy\n.*?)```", PAGE,
                        re.S)[1]
    assert example.strip() in tested


def test_every_policy_and_argument_is_listed():
    rows = dict(re.findall(r"^- `(\w+)`\n((?: +.*\n)+)", PAGE, re.M))
    assert set(POLICIES) <= set(rows)
    for name, policy in POLICIES.items():
        arguments = set(inspect.signature(policy).parameters) - {"period"}
        assert arguments == set(re.findall(r"`(\w+)`\s+\(", rows[name])) - {"period"}, name


def test_ranks_are_as_it_says():
    said = {name: int(rank) for name, rank in re.findall(r"`(\w+)` \((\d+)\)", PAGE.partition(
        "### When policies disagree")[2])}
    assert said == {name: policy.rank for name, policy in POLICIES.items()}


def test_the_recommended_set_and_a_policy_that_is_added_at_run_time():
    recommended = yaml.safe_load(re.search(r"```yaml\n(distributed: \{.*?)```", PAGE, re.S)[1])
    names = {}
    part = "distributed.scheduler.active-memory-manager"
    whole = dask.config.merge({part: dask.config.get(part)},
                              {part: dask.config.get(part, config=recommended)})
    with dask.config.set(whole), Client(n_workers=1, processes=False,
                                        dashboard_address=None) as client:
        names["client"] = client
        exec(re.search(r"```python\n(def add\(.*?)```", PAGE, re.S)[1], names)
        found = [policy.policy.partition("(")[0] for policy in client.shmstore.policies()]
    assert sorted(found) == ["HostReduceReplicas", "InDemand", "Insurance", "Retire"]
