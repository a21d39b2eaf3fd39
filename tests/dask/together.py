# SPDX-License-Identifier: Apache-2.0
"""A scheduler, workers and a client in the event loop of the test itself: for what needs
no processes of its own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile

import dask
import distributed
from conftest import PREFIX
from distributed import Client

import shmstore.dask


def together(place, test, n: int = 2, settings=None, memory_limit: object = "2 GiB",
             worker=shmstore.dask.Worker, patience: float = 60):
    """Runs `await test(client, *workers)`."""
    config = {
        f"{PREFIX}.partition": place.path,
        "temporary-directory": tempfile.gettempdir(),
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.worker.memory.terminate": False,
        **(settings or {}),
    }

    async def go():
        async with contextlib.AsyncExitStack() as stack:
            scheduler = await stack.enter_async_context(distributed.Scheduler(
                dashboard_address=None, port=0))
            workers = [
                await stack.enter_async_context(
                    worker(scheduler.address, nthreads=1, memory_limit=memory_limit, name=str(i),
                           dashboard_address=None)
                )
                for i in range(n)
            ]
            client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
            return await test(client, *workers)

    with dask.config.set(config):
        return asyncio.run(asyncio.wait_for(go(), patience))
