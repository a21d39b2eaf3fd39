# SPDX-License-Identifier: Apache-2.0
"""python3 -m shmstore.dask SCHEDULER: where the values of a cluster's workers are, and which
policies its scheduler runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from distributed import Client

from .client import Report, report


async def ask(scheduler: str, timeout: float) -> Report:
    """OSError where it does not answer in so many seconds."""
    async with Client(scheduler, asynchronous=True, timeout=timeout,
                      set_as_default=False) as client:
        return await report(client)  # type: ignore[misc,no-any-return]


def main() -> int:
    """0; 1 where the scheduler does not answer; 2 for what is no command line."""
    parser = argparse.ArgumentParser(prog="python3 -m shmstore.dask",
                                     description=__doc__.partition(": ")[2].capitalize())
    parser.add_argument("scheduler", help="its address, as tcp://10.0.0.1:8786")
    parser.add_argument("--timeout", type=float, default=10,
                        help="seconds in which it has to answer (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="for programs: {workers, policies, "
                                                            "figures}")
    arguments = parser.parse_args()
    try:
        found = asyncio.run(ask(arguments.scheduler, arguments.timeout))
    except (OSError, ValueError) as e:
        print(f"shmstore.dask: {arguments.scheduler} does not answer: {e or type(e).__name__}",
              file=sys.stderr)
        return 1
    print(json.dumps(found.as_dict(), indent=1) if arguments.json else found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
