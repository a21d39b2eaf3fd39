# SPDX-License-Identifier: Apache-2.0
"""The configuration `distributed.worker.memory.shared.*`: its defaults, and one worker's settings read from it."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

PREFIX = "distributed.worker.memory.shared"

with open(os.path.join(os.path.dirname(__file__), "shmstore.yaml"), encoding="utf-8") as _file:
    _defaults = yaml.safe_load(_file)
# `shared: true`, as Dask's own proposal has it, is `enabled`: a tree of defaults cannot be laid under it.
if isinstance(dask.config.get(PREFIX, default={}), (bool, str)):
    dask.config.set({PREFIX: {"enabled": dask.config.get(PREFIX)}})
dask.config.update_defaults(_defaults)

logger = logging.getLogger("distributed.worker.shared")
_warned: set[str] = set()


@dataclass(frozen=True)
class TierSettings:
    """The disk tier that a worker gives the partition where it has none."""

    enabled: bool
    path: str | None
    max: int | None  # bytes; None: from max-spill
    min_free: int  # bytes
    level: int
    fsync: bool
    high: int  # percent
    low: int

    @classmethod
    def read(cls) -> TierSettings:
        """The settings of now. ValueError where one makes no sense."""
        high, low = _percent("tier.high"), _percent("tier.low")
        if low >= high:
            raise ValueError(f"{PREFIX}.tier.low must be less than tier.high, not {low} % and {high} %")
        level = int(_get("tier.level"))
        if not 0 <= level <= 19:
            raise ValueError(f"{PREFIX}.tier.level must be from 0 to 19, not {level}")
        return cls(
            enabled=_switch("tier.enabled"),
            path=_get("tier.path") or None,
            max=None if _get("tier.max") is None else _bytes("tier.max"),
            min_free=_bytes("tier.min-free"),
            level=level,
            fsync=_switch("tier.fsync"),
            high=high,
            low=low,
        )


@dataclass(frozen=True)
class Settings:
    """Settings of one worker or client; read once, so that no change splits a worker in two."""

    enabled: bool  # False: the worker stays stock's, though it was made one of ours
    partition: str | None
    daemon: str  # auto, required or off
    arbitrate: str  # auto or off
    arbitrate_size: int  # bytes
    pressure: bool  # keys are tasks of the daemon's gate
    queue: bool  # tasks with large results wait at the scheduler where all workers share one partition
    p2p: bool  # shards of P2P shuffles and rechunks go through the partition
    cow: bool
    min_size: int  # bytes
    share: str  # auto, lazy or eager
    most: int | None  # bytes of a partition; None: by the memory limits of its workers
    born: bool | None  # None: where the partition has huge pages
    lease: float  # seconds
    recycle: int  # bytes
    max_maps: int
    message_bytes: int
    sweep_interval: float  # seconds
    log_interval: float  # seconds
    tier: TierSettings

    @classmethod
    def read(cls) -> Settings:
        """The settings of now. ValueError where one makes no sense."""
        warn_of_unknown()
        return cls(
            enabled=enabled() is not False,
            partition=_get("partition") or None,
            daemon=_choice("daemon", "auto", "required", "off"),
            arbitrate=_choice("arbitrate", "auto", "off"),
            arbitrate_size=_bytes("arbitrate-size"),
            pressure=_switch("pressure"),
            queue=_switch("queue"),
            p2p=_switch("p2p"),
            cow=_choice("map", "cow", "ro") == "cow",
            min_size=_bytes("min-size"),
            share=_share(),
            most=None if _get("max") is None else _bytes("max"),
            born=None if _get("born") == "auto" else _switch("born"),
            lease=_positive("lease", _seconds("lease")),
            recycle=_bytes("recycle"),
            max_maps=int(_positive("max-maps", int(_get("max-maps")))),
            message_bytes=_bytes("message-bytes"),
            sweep_interval=_seconds("sweep-interval"),
            log_interval=_seconds("log-interval"),
            tier=TierSettings.read(),
        )


@dataclass(frozen=True)
class ManagerSettings:
    """Settings of all policies of a scheduler's memory manager."""

    high: float  # of a partition, from 0.01 to 1
    low: float
    slice: float  # seconds
    delay: float  # seconds
    in_flight: float  # seconds

    @classmethod
    def read(cls) -> ManagerSettings:
        """The settings of now. ValueError where one makes no sense."""
        high, low = _percent("amm.high"), _percent("amm.low")
        if low >= high:
            raise ValueError(f"{PREFIX}.amm.low must be less than amm.high, not {low} % and {high} %")
        return cls(
            high=high / 100,
            low=low / 100,
            slice=_positive("amm.slice", _seconds("amm.slice")),
            delay=_positive("amm.delay", _seconds("amm.delay")),
            in_flight=_positive("amm.in-flight", _seconds("amm.in-flight")),
        )


def enabled() -> bool | None:
    """`enabled`: True, False, or None where nobody said either."""
    return None if _get("enabled") is None else _switch("enabled")


def preload() -> None:
    """Workers and nannies that this process starts preload the module that asks `enabled`."""
    package = f"{__package__}.switch"
    for key in ("distributed.worker.preload", "distributed.nanny.preload"):
        named = dask.config.get(key, default=None) or []
        named = [named] if isinstance(named, str) else list(named)
        if package not in named:
            dask.config.set({key: [*named, package]})


_ELSEWHERE = {  # what other systems call it: Ray, vineyard, distributed
    "object-store-memory": "max", "limit": "max", "size": "max", "plasma-directory": "partition", "directory": "partition",
    "socket": "daemon", "object-spilling-config": "tier.path", "object-spilling-directory": "tier.path", "spill": "tier.high",
    "max-spill": "tier.max", "target": "share", "memory-usage-threshold": "pressure", "memory-monitor-refresh-ms": "pressure",
}


def warn_of_unknown() -> None:
    """Says once of each key below ours that there is no such, and which one may be meant."""
    known = set(_flat(_defaults["distributed"]["worker"]["memory"]["shared"]))
    given = dask.config.get(PREFIX, default=None)
    for key in _flat(given) if isinstance(given, Mapping) else ():
        if key in known or key in _warned:
            continue
        _warned.add(key)
        near = [_ELSEWHERE[key]] if key in _ELSEWHERE else difflib.get_close_matches(key, known, 1, 0.5)
        near = near or [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
        meant = f"; did you mean {PREFIX}.{near[0]}?" if near else ""
        logger.warning("shmstore: there is no configuration key %s.%s: it does nothing%s", PREFIX, key, meant)


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        key = above + str(name).replace("_", "-")
        if isinstance(value, Mapping):
            yield from _flat(value, key + ".")
        else:
            yield key


def _get(key: str) -> Any:
    if isinstance(whole := dask.config.get(PREFIX), (bool, str)):  # `shared: true`, set after the import
        return whole if key == "enabled" else dask.config.get(f"{PREFIX}.{key}", config=_defaults)
    return dask.config.get(f"{PREFIX}.{key}")


def _share() -> str:
    share = _choice("share", "auto", "lazy", "eager")
    target = dask.config.get("distributed.worker.memory.target", default=None)
    # A target of 0 bytes of private memory; `false` is that there is none.
    return "eager" if share == "auto" and target == 0 and target is not False else share


def _choice(key: str, *choices: str) -> str:
    value = _get(key)
    if value is False and "off" in choices:  # as YAML reads an off without quotes
        value = "off"
    if value not in choices:
        raise ValueError(f"{PREFIX}.{key} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def _switch(key: str) -> bool:
    value = _get(key)
    if isinstance(value, str) and value.lower() in ("true", "false"):  # as the environment gives it
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{PREFIX}.{key} must be true or false, not {value!r}")
    return value


def _percent(key: str) -> int:
    """A share between 0 and 1, in percent."""
    value = float(_get(key))
    if not 0.01 <= value <= 1:
        raise ValueError(f"{PREFIX}.{key} must be a share of the partition, from 0.01 to 1, not {value!r}")
    return round(value * 100)


def _bytes(key: str) -> int:
    return int(parse_bytes(_get(key)))


def _seconds(key: str) -> float:
    return float(parse_timedelta(_get(key), default="s") or 0)


def _positive(key: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{PREFIX}.{key} must be more than 0, not {value!r}")
    return value
