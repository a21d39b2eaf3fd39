# SPDX-License-Identifier: Apache-2.0
"""All that this package uses of Dask which Dask does not promise: one module per subject, each name
with the versions it holds for.

    probe      is every hook there? asked before anything else of this package is imported; and the
               package where one is missing
    worker     a worker's state machine, keys' calls, transfers, its data mapping, its process
    scheduler  the queue, the Active Memory Manager, the HTTP server
    p2p        a run of a shuffle or a rechunk on one worker

Supported are 2022.12.1, and 2024.12 to 2026.8. Where two ways of doing one thing exist, it is asked
for what is there, not for a version.
"""
