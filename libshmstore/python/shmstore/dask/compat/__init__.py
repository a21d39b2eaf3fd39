# SPDX-License-Identifier: Apache-2.0
"""All that this package uses of Dask which Dask does not promise: one module per subject, each name with the versions it holds for.

    probe      is every hook there? asked before anything else of this package is imported
    stock      what the package is where one is missing: Dask as it is, which says so
    asking     a worker asks its scheduler
    events     what a worker's state machine is told
    leaving    the scheduler is told that a worker leaves
    manager    the scheduler's Active Memory Manager
    p2p        a run of a shuffle or a rechunk on one worker
    queue      where tasks wait for a worker, in the scheduler
    ready      the tasks that may run, and which is next
    sizes      how large values are of libraries that Dask does not know
    spill      stock's data mapping, in which ours lives
    tasks      what a key is to run, and running a part of it
    transfers  asking workers for values

Supported are 2022.12.1, and 2024.12 to 2026.8. Where two ways of doing one thing exist, it is asked for what is there, not for a version.
"""
