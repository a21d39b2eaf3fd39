# SPDX-License-Identifier: Apache-2.0
"""One copy of the data on a host: who holds what, and that every job gives
what it gives on stock Dask."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tasks
from conftest import PREFIX, cluster, fallbacks, on_workers, wait_until, workers
from dask.sizeof import sizeof
from distributed import wait
from tasks import MIB
from together import together


def test_all_pairs_take_the_data_once_and_give_the_right_numbers(place, memory_limit):
    with cluster(place, 3, memory_limit=memory_limit) as client:
        chunks = [client.submit(tasks.make, i, key=f"chunk-{i}") for i in range(6)]
        # Each chunk is wanted by each worker; left to the scheduler one
        # may be wanted by its own only.
        addresses = workers(client)
        place_of = {(i, j): addresses[(i + j) % 3] for i in range(6) for j in range(6)}
        dots = [client.submit(tasks.dot, chunks[i], chunks[j], workers=[w], pure=False)
                for (i, j), w in place_of.items()]
        expected = [tasks.dot(tasks.make(i), tasks.make(j)) for i in range(6) for j in range(6)]
        assert client.gather(dots) == pytest.approx(expected)
        assert set(on_workers(client, tasks.kind_of_data).values()) == {
            "SharedBuffer" if memory_limit else "dict"}
        usage = place.partition.usage(full=True)
        assert 6 * 4 * MIB <= usage.linked < 6 * 4 * MIB + MIB
        assert usage.n_objects == 3 * 6, "each worker has a link of each object"
        assert not any(fallbacks(client).values())
        del dots, chunks
        wait_until(lambda: place.partition.usage().n_objects == 0, "objects go with their keys")
    assert place.partition.stores() == []


def test_what_the_workers_report_adds_up_to_what_the_partition_holds(place, memory_limit):
    settings = {"distributed.admin.system-monitor.interval": "100ms",
                "distributed.worker.heartbeat-interval": "100ms"}
    with cluster(place, 3, memory_limit=memory_limit, settings=settings) as client:
        chunks = [client.submit(tasks.make, i, key=f"chunk-{i}") for i in range(6)]
        for _ in range(2):  # the second time every worker has what it was handed, mapped
            client.gather([client.submit(tasks.total, *chunks, workers=[w], pure=False)
                           for w in workers(client)])
        objects = {}
        for store in place.stores():
            with place.partition.open(store.name, readonly=True) as view:
                for info in view.objects():
                    objects[info.inode] = info.blocks
        assert len(objects) == 6
        memory = 6 * sizeof(tasks.make(0))

        def adds_up():
            found = [worker["metrics"]["spilled_bytes"] for worker in client.sync(
                client.scheduler.identity)["workers"].values()]
            shares = sum(spilled["disk"] for spilled in found)
            return (abs(shares - sum(objects.values())) <= 4096 * len(found) and
                    {s["memory"] for s in found} == {memory})

        wait_until(adds_up, "the workers' shares are the objects' blocks")
        if memory_limit:
            assert {memory for memory, _ in on_workers(client, tasks.spilled).values()} == {memory}


def test_small_and_non_shareable_values_stay_private(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit) as client:
        a, b = workers(client)
        values = [b"x" * 1000, np.zeros(100), "text" * 100_000, list(range(100_000)),
                  np.array(["a", "b"] * 50_000, dtype=object)]
        futures = [client.submit(tasks.identity, value, workers=[a], key=f"v{i}")
                   for i, value in enumerate(values)]
        moved = client.submit(tasks.identity, futures, workers=[b], pure=False).result()
        assert moved[0] == values[0] and moved[2] == values[2] and moved[3] == values[3]
        assert set(on_workers(client, tasks.n_objects).values()) == {0}


def test_kinds_of_values_arrive_whole(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit) as client:
        a, b = workers(client)
        frame = client.submit(tasks.make_frame, 1, workers=[a], key="frame")
        arrays = client.submit(tasks.make_list, 1, workers=[a], key="list")
        data = client.submit(bytes, 1 << 20, workers=[a], key="bytes")
        strided = client.submit(_strided, workers=[a], key="strided")
        got = client.submit(tasks.identity, [frame, arrays, data, strided], workers=[b],
                            pure=False).result()
        pd.testing.assert_frame_equal(got[0], tasks.make_frame(1))
        assert all((x == y).all() for x, y in zip(got[1], tasks.make_list(1)))
        assert got[2] == bytes(1 << 20) and (got[3] == _strided()).all()
        assert client.submit(lambda df: df.groupby("k").a.sum().sum(), frame, workers=[b],
                             pure=False).result() == pytest.approx(
                                 tasks.make_frame(1).a.sum()
        )


def _strided():
    return np.arange(400_000).reshape(400, 1000)[::2, ::2]


def test_a_task_that_returns_its_input_is_a_second_link(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        y = client.submit(tasks.identity, x, workers=[b], key="y")
        z = client.submit(tasks.identity, y, workers=[b], key="z")
        assert (z.result() == tasks.make(1)).all()
        wait_until(lambda: place.partition.usage(full=True).n_objects >= 4, "x twice, y and z")
        assert place.partition.usage(full=True).linked < 5 * MIB
        del x, y
        assert client.submit(tasks.total, z, workers=[a], pure=False).result() == pytest.approx(
            tasks.make(1).sum())


def test_eager_puts_results_into_the_partition_at_once(place):
    with cluster(place, 1, settings={f"{PREFIX}.share": "eager"}) as client:
        x = client.submit(tasks.make, 1, key="x")
        x.result()
        assert set(on_workers(client, tasks.n_objects).values()) == {1}
        assert client.submit(tasks.total, x).result() == pytest.approx(tasks.make(1).sum())


def test_lazy_keeps_results_that_nobody_asks_for_private(place, memory_limit):
    with cluster(place, 1, memory_limit=memory_limit) as client:
        x = client.submit(tasks.make, 1, key="x")
        assert client.submit(tasks.total, x).result() == pytest.approx(tasks.make(1).sum())
        assert set(on_workers(client, tasks.n_objects).values()) == {0}


def test_memory_of_values_goes_back_with_their_keys(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
            tasks.make(1).sum())
        assert place.partition.usage(full=True).linked > 4 * MIB
        x.release()
        wait_until(lambda: place.partition.usage().n_objects == 0, "released")
        usage = place.partition.usage(full=True)
        assert usage.pool == 0, "no worker keeps it for what may come"
        assert usage.used < MIB


def test_a_key_that_takes_the_name_of_another_value(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        for i in range(3):
            x = client.submit(tasks.make, i, workers=[a], key="same")
            assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
                tasks.make(i).sum())
            x.release()
            wait_until(lambda: place.partition.usage().n_objects == 0, "released")


def test_long_and_strange_keys(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        for key in ("k" * 5000, "a/../b", "ü\n\x00", "('x', 1, 2)", "."):
            x = client.submit(tasks.make, 1, workers=[a], key=key)
            assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
                tasks.make(1).sum())
        assert not any(fallbacks(client).values())


def test_a_small_slice_does_not_keep_a_whole_object(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        part = client.submit(lambda a: a[:10], x, workers=[b], key="part")
        assert (part.result() == tasks.make(1)[:10]).all()
        x.release()
        wait_until(lambda: place.partition.usage(full=True).ghosts == 0 and
                   place.partition.usage().n_objects == 0, "no ghost")


def test_retire_workers_moves_the_last_copy(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        x.result()
        client.retire_workers([a], close_workers=True)
        wait_until(lambda: workers(client) == [b], "one worker left")
        assert (x.result() == tasks.make(1)).all()
        assert on_workers(client, tasks.n_objects) == {b: 1}
        wait_until(lambda: len(place.stores()) == 1, "its store is gone")


def test_keys_values_and_items_are_views_of_all_tiers(place):
    """As those of stock's dict are: sets can be made with them, and they have a length."""

    async def job(client, a, b):
        large = client.submit(tasks.make, 1, workers=[a.address], key="large")
        small = client.submit(lambda: 7, workers=[b.address], key="small")
        total = client.submit(tasks.total, large, workers=[b.address], key="total")
        await wait([large, small, total])
        data = b.data
        assert "large" in data.shared and data.keys() & {"large", "small", "x"} == {"large",
                                                                                    "small"}
        assert len(data.values()) == len(data.items()) == len(data) == 3
        assert {key: value for key, value in data.items() if key != "large"} == {
            "small": 7, "total": await total}
        assert sum(value is data["large"] for value in data.values()) == 1

    together(place, job)
