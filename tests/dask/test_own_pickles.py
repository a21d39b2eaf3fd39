# SPDX-License-Identifier: Apache-2.0
"""Values whose pickle leaves something out arrive as on stock, and their maker keeps its own."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import PREFIX
from distributed.protocol import dask_deserialize, dask_serialize, register_generic
from together import together

import shmstore.dask

_N = 1 << 17


class Image:
    """Its registered serializers carry the unit; its pickle, for files, leaves it out."""

    def __init__(self, unit: str | None = "Jy", data=None) -> None:
        self.data, self.unit = np.arange(float(_N)) if data is None else data, unit

    def __getstate__(self):
        return {"data": self.data, "unit": None}

    def __sizeof__(self):
        return self.data.nbytes


@dask_serialize.register(Image)
def _serialize(image):
    return {"unit": image.unit}, [image.data.data.cast("B")]


@dask_deserialize.register(Image)
def _deserialize(header, frames):
    return Image(header["unit"], np.frombuffer(b"".join(map(bytes, frames))))


class Traversed(Image):
    """Registered by Dask's way for whole instances."""


register_generic(Traversed)


class Cached:
    """Not registered: a peer gets what its pickle has, on stock, too."""

    def __init__(self) -> None:
        self.data, self.cache = np.arange(float(_N)), {"a": 1}

    def __getstate__(self):
        return {"data": self.data, "cache": None}

    def __sizeof__(self):
        return self.data.nbytes


class Plain(shmstore.dask.Worker):
    """Its data are a plain dict."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, data=dict, **kwargs)


@pytest.mark.parametrize("worker", [shmstore.dask.Worker, Plain])
@pytest.mark.parametrize("share", ["auto", "eager"])
@pytest.mark.parametrize("make", [Image, Traversed, lambda: [Image()]],
                         ids=["own", "generic", "in-a-list"])
def test_registered_serializers_are_used(place, share, make, worker):
    async def job(client, a, b):
        def unit(value):
            return (value[0] if isinstance(value, list) else value).unit

        made = client.submit(make, workers=[a.address])
        for where in (b, a, b):
            assert await client.submit(unit, made, workers=[where.address], pure=False) == "Jy"
        assert unit(await made) == "Jy"

    together(place, job, settings={f"{PREFIX}.share": share}, worker=worker)


@pytest.mark.parametrize("worker", [shmstore.dask.Worker, Plain])
@pytest.mark.parametrize("share", ["auto", "eager"])
def test_the_maker_keeps_its_own(place, share, worker):
    async def job(client, a, b):
        made = client.submit(Cached, workers=[a.address], key="made")
        same = client.submit(lambda value: value, made, workers=[a.address], key="same")
        for key in (made, same):
            assert await client.submit(lambda value: value.cache, key, workers=[b.address],
                                       pure=False) is None
            assert await client.submit(lambda value: value.cache, key, workers=[a.address],
                                       pure=False) == {"a": 1}
        assert b.data["made"].data.base is not None, "its array is not shared"
        assert b.data["made"].data[-1] == _N - 1

    together(place, job, settings={f"{PREFIX}.share": share}, worker=worker)


def test_memory_of_a_maker_that_is_short(place):
    """Where private memory is short the value goes, as it goes to a file on stock."""

    async def job(client, a):
        made = [client.submit(Cached, pure=False) for _ in range(8)]
        await client.gather([client.submit(lambda value: value.data[-1], each) for each in made])
        return a.data.private_weight

    target = 4 * _N * 8
    assert together(place, job, 1, {"distributed.worker.memory.target": target / (1 << 30)},
                    memory_limit=1 << 30) <= target
