# SPDX-License-Identifier: Apache-2.0
"""A user's own policy, as docs/dask.md has it."""

from shmstore.dask.amm import Policy


class Pinned(Policy):
    """Keys whose names begin with a prefix are on every host."""

    def __init__(self, prefix, period=1):
        super().__init__(period)
        self.prefix = prefix

    def suggest(self):
        for i, task in enumerate(list(self.scheduler.tasks.values())):
            if not i % 100:
                yield None  # the scheduler may do something else
            if task.state == "memory" and str(task.key).startswith(self.prefix):
                yield from self.ensure(task, len(self.hosts), len(self.hosts))

    def keeps(self, task):
        return (len(self.hosts), len(self.hosts)) if str(task.key).startswith(self.prefix) else None


class Broken(Policy):
    """Raises."""

    def suggest(self):
        yield None
        raise RuntimeError("broken on purpose")


class Once(Policy):
    """Removes itself."""

    def suggest(self):
        yield None
        self.finish()
