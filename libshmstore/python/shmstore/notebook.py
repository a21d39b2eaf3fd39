# SPDX-License-Identifier: Apache-2.0
"""Variables shared between notebooks: `%load_ext shmstore`, then `%share frame` in one of them and
`%shared frame` in another."""

from __future__ import annotations

import os

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from .errors import Error
from .partition import Partition
from .richtext import size
from .store import Store

_LABEL = "notebook"


@magics_class
class Sharing(Magics):  # type: ignore[misc]
    """The store of a kernel that shares variables, opened with the first one. It
    goes when the kernel ends."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._partition = Partition(create=True)
        self._store: Store | None = None

    @line_magic  # type: ignore[untyped-decorator]
    def share(self, line: str) -> None:
        """%share NAME...: puts these variables into shared memory, for %shared in other notebooks.
        %share -d NAME...: takes them out again.

        Later changes are seen by others when the variable is shared again. Classes and functions of
        the notebook go along where cloudpickle is installed.
        """
        names = line.split()
        taken = "-d" in names[:1]
        if not names[taken:]:
            raise UsageError("%share NAME...: which variables?")
        for name in names[taken:]:
            if taken:
                if self._store is None or name not in self._store:
                    raise UsageError(f"%share -d {name}: this notebook does not share it")
                del self._store[name]
                continue
            if name not in self.shell.user_ns:
                raise UsageError(f"%share {name}: there is no such variable")
            if self._store is None:
                self._store = self._partition.open(f"notebook-{os.getpid()}", label=_LABEL)
            self._store.put(name, self.shell.user_ns[name], replace=True, by_value=True)

    @line_magic  # type: ignore[untyped-decorator]
    def shared(self, line: str) -> None:
        """%shared: lists what notebooks share. %shared NAME...: makes these variables here, over
        the shared memory: arrays may be written to, copy-on-write, and nobody else sees it. Of
        several notebooks that share a name the one is taken that opened its store last.
        """
        names = line.split()
        found = self._found()
        if not names:
            for name, (store, nbytes, pid) in sorted(found.items()):
                print(f"{name:24} {size(nbytes):>12}   process "
                      f"{pid}{' (this notebook)' if store == self._name() else ''}")
            if not found:
                print(f"nothing is shared in {self._partition.path}; %share NAME in another "
                      f"notebook does it")
        for name in names:
            if name not in found:
                raise UsageError(f"%shared {name}: no notebook shares it; %shared lists what there "
                                 f"is")
            with self._partition.open(found[name][0], readonly=True) as reader:
                self.shell.user_ns[name] = reader.get(name, cow=True)

    def _name(self) -> str | None:
        return None if self._store is None else self._store.name

    def _found(self) -> dict[str, tuple[str, int, int]]:
        """By variable: the store, bytes, the process."""
        found: dict[str, tuple[str, int, int]] = {}
        for info in sorted(self._partition.stores(), key=lambda info: info.created_ns):
            if info.label != _LABEL or not info.alive:
                continue
            try:
                with self._partition.open(info.name, readonly=True) as reader:
                    objects = reader.objects()
            except Error:  # it ended just now
                continue
            found.update((one.key, (info.name, one.buffer_size, info.pid)) for one in objects
                         if isinstance(one.key, str))
        return found


def load(shell: InteractiveShell) -> None:
    """Makes the magics known."""
    shell.register_magics(Sharing(shell))
