# SPDX-License-Identifier: Apache-2.0
"""Workers killed at random, and what each kill costs, key by key: which keys had their insurance at
that moment, and which of these were computed again.

A key is computed again where it leaves the scheduler's state `memory` while a task or a client
still wants it: its last replica is lost. A key that nobody wants any more leaves it, too, and
does not count. A loss belongs to the last kill before it.
"""
import os
import random
import signal
import time
from collections import Counter

from distributed.diagnostics.plugin import SchedulerPlugin


def insured(policy, task):
    """Whether a key has all that an Insurance is to give it, on workers that run."""
    has = [worker for worker in task.who_has or () if worker in policy.scheduler.running]
    return (policy.insures(task) and len(has) >= policy.stores and
            len(policy.hosts.units(task, has)) >= policy.n_hosts)


class Kills(SchedulerPlugin):
    """Of a client whose cluster is in this process, with nannies. Its scheduler may
    have the policy Insurance."""

    def __init__(self, client, seed=1):
        self._client = client
        self._random = random.Random(seed)
        self._scheduler = client.cluster.scheduler
        self._scheduler.allowed_failures = 1000  # the tasks are not at fault
        self._had = set()  # keys that had their insurance at the last kill
        self._lost = {}  # key -> whether it had its insurance
        self.insured_at = []  #: of each kill: how many keys had their insurance
        #: of each kill: how many keys the victim alone had that the policy insures
        self.alone_at = []
        self.again = []  #: (number of the kill, key): computed again though it had its insurance
        self.again_uninsured = []  #: the same of those that had none, or not yet
        client.sync(self._watch)

    async def _watch(self):
        self._scheduler.add_plugin(self, name="bench-kills")

    def one(self):
        """Kills a worker; its nanny starts another one. Not on the event loop. Returns its address;
        None: there is none that others survive."""
        return self._client.sync(self._one)

    async def _one(self):
        workers = {worker.address: worker for worker in self._scheduler.workers.values()
                   if worker in self._scheduler.running}
        nannies = [nanny for nanny in self._client.cluster.workers.values()
                   if nanny.worker_address in workers]
        if len(workers) < 2 or not nannies:
            return None
        nanny = self._random.choice(nannies)
        victim = workers[nanny.worker_address]
        policy = self._policy()
        tasks = [task for task in self._scheduler.tasks.values() if task.state == "memory" and
                 policy is not None and policy.insures(task)]
        self._had = {task.key for task in tasks if insured(policy, task)}
        os.kill(nanny.pid, signal.SIGKILL)
        self.insured_at.append(len(self._had))
        self.alone_at.append(sum(set(task.who_has) == {victim} for task in tasks))
        return victim.address

    def _policy(self):
        policies = self._scheduler.extensions["amm"].policies
        return next((policy for policy in policies if type(policy).__name__ == "Insurance"), None)

    def transition(self, key, start, finish, *args, **kwargs):
        """Of the scheduler, which calls it for each task."""
        if start == "memory" and finish == "released":
            task = self._scheduler.tasks.get(key)
            if task is not None and (task.waiters or task.who_wants):
                self._lost[key] = key in self._had
        elif finish == "processing" and key in self._lost:
            (self.again if self._lost.pop(key) else self.again_uninsured).append(
                (len(self.insured_at), key))

    def open(self):
        """The keys that the scheduler waits for, and its workers: for people,
        where a job does not end."""
        return self._client.sync(self._open)

    async def _open(self):
        scheduler = self._scheduler
        now = time.time()
        workers = {
            worker.address: {"status": worker.status.name, "seen": round(now - worker.last_seen, 1),
                             "memory": worker.metrics.get("memory"),
                             "processing": [task.key for task in worker.processing][:8],
                             "executing": [task.key for task in worker.executing][:8]}
            for worker in scheduler.workers.values()
        }
        tasks = [task for task in scheduler.tasks.values() if task.state not in (
            "memory", "released", "forgotten")]
        return {
            "workers": workers,
            "nannies": {str(name): [nanny.status.name, nanny.worker_address, nanny.pid]
                        for name, nanny in self._client.cluster.workers.items()},
            "states": dict(Counter(task.state for task in scheduler.tasks.values())),
            "tasks": {str(task.key): [task.state, getattr(task.processing_on, "address", None),
                                      [str(dep.key) for dep in task.waiting_on or ()][:4]]
                      for task in tasks[:20]},
        }

    def report(self):
        """For people."""
        return {
            "killed": len(self.insured_at),
            "keys_insured_at_kills": sum(self.insured_at),
            "of_these_computed_again": len(self.again),
            "which": [f"{key} after kill {n}" for n, key in self.again[:8]],
            "keys_not_insured_yet": sum(self.alone_at),
            "uninsured_computed_again": len(self.again_uninsured),
        }
