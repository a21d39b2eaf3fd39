# SPDX-License-Identifier: Apache-2.0
"""Values over parts of objects that are there: a reshape, a slice, a list around an array are
neither copied nor changed by others' writes."""

from __future__ import annotations

import numpy as np
import pytest
import tasks
from conftest import PREFIX
from tasks import MIB
from together import together

from shmstore.dask.handle import Handle
from shmstore.dask.values import Over
from shmstore.parts import Part

SIZE = 16 * MIB

SHOWN = {
    "reshape": lambda a: a.reshape(1024, -1),
    "half": lambda a: a[: len(a) // 2],
    "gaps": lambda a: a.reshape(1024, -1)[:, 256:1792],
    "backwards": lambda a: a[::-1],
    "transposed": lambda a: a.reshape(1024, -1).T,
    "bytes": lambda a: a.view("u1"),
    "dict": lambda a: {"a": a, "n": 7, "parts": [a[:1000], (a[-5:], None)]},
}


def arrays(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in arrays(item)]
    return [value] if isinstance(value, np.ndarray) else []


def mapped(a):
    assert not a.flags.owndata
    return a


@pytest.mark.parametrize("mode", ["cow", "ro"])
@pytest.mark.parametrize("shown", SHOWN)
def test_what_shows_an_object_is_not_copied(place, shown, mode):
    function = SHOWN[shown]

    async def job(client, a, b):
        x = client.submit(tasks.make, 1, SIZE, key="x", workers=[a.address])
        await client.submit(tasks.total, x, workers=[b.address])
        y = client.submit(function, x, key="y", workers=[b.address])
        await client.submit(len, y, workers=[b.address])
        z = client.submit(lambda v: v, y, key="z", workers=[a.address])
        await z
        assert place.partition.usage(full=True).linked < SIZE + MIB
        expected = function(tasks.make(1, SIZE))
        for found in (b.data["y"], a.data["z"]):
            assert type(found) is type(expected)
            for one, other in zip(arrays(found), arrays(expected), strict=True):
                assert one.shape == other.shape and (one == other).all()
                assert one.flags.writeable == (mode == "cow")
        # The object lives as long as one of its names.
        x.release(), y.release()
        assert await client.submit(lambda v: len(arrays(v)), z, workers=[b.address]) == len(
            arrays(expected))
        z.release()

    together(place, job, settings={f"{PREFIX}.map": mode})
    assert place.partition.usage(full=True).residual == 0


def write(a):
    a[1] = -1
    return a[: len(a) // 2]


def test_what_a_task_wrote_goes_with_its_result(place):
    async def job(client, a, b):
        x = client.submit(tasks.make, 1, SIZE, key="x", workers=[a.address])
        y = client.submit(write, x, key="y", workers=[b.address])
        assert await client.submit(lambda v: float(v[1]), y, workers=[a.address]) == -1
        assert await client.submit(lambda v: float(v[1]), x, workers=[a.address]) == tasks.make(
            1, SIZE)[1]

    together(place, job)


def test_a_small_part_does_not_keep_a_whole_object_once_it_was_handed_on(place):
    async def job(client, a, b):
        x = client.submit(tasks.make, 1, SIZE, key="x", workers=[a.address])
        y = client.submit(lambda v: [v[:20_000]], x, key="y", workers=[b.address])
        assert await client.submit(lambda v: float(v[0][-1]), y, workers=[a.address]) == tasks.make(
            1, SIZE)[19_999]
        x.release()
        await client.submit(int, 1)
        assert a.data["y"][0].nbytes == 160_000
        assert place.partition.usage(full=True).linked < 2 * MIB

    together(place, job)


def test_a_handle_of_parts_is_none_for_who_does_not_know_of_them():
    from distributed.protocol import dask_serialize, deserialize, serialize

    import shmstore

    over = Over(b"header", (Part(0, 8, 16),))
    handle = Handle(shmstore.Ticket("/p", 1, 2), 16, "a:b", over)
    header, frames = serialize(handle)
    back = deserialize(header, frames)
    assert back.over == over and back.ticket == shmstore.Ticket("/p", 1, 2)
    own, _ = dask_serialize.dispatch(Handle)(handle)  # serialize() puts it into a header of its own
    assert "ticket" not in own and own["ticket_of_parts"] == ["/p", 1, 2]
    whole, _ = dask_serialize.dispatch(Handle)(Handle(shmstore.Ticket("/p", 1, 2), 16, "a:b"))
    assert whole["ticket"] == ["/p", 1, 2]
