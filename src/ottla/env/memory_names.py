"""The names in a memory disk's directories, and a journal of what was done to them.

The journal has the steps that no sync has covered; from it follows which names a power cut leaves.
Contents are ``memory_inode``'s.
"""

import errno
import os
from functools import lru_cache

from ottla.env.memory_inode import Inode
from ottla.env.rng import Rng


class Directory:
    """Names in a directory, and with durability those that a power cut leaves."""

    __slots__ = ("durable_names", "names", "unsynced")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Directory] = {}
        self.durable_names: dict[str, Inode | Directory] = {}
        self.unsynced: list[int] = []
        """The numbers of the journal's steps that touched it since it was synced."""


Node = Inode | Directory


class Tree:
    """The directories from ``/`` down, and the way along a path."""

    def __init__(self) -> None:
        self.root = Directory()

    def find(self, path: str) -> Node | None:
        """Return what bears the path; None: nothing does."""
        return self._along(parts(path))

    def _along(self, names: tuple[str, ...]) -> Node | None:
        node: Node | None = self.root
        for name in names:
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def directory_at(self, path: str) -> Directory:
        """Return the directory at ``path``. Raises FileNotFoundError, NotADirectoryError."""
        return self._directory_along(parts(path))

    def _directory_along(self, names: tuple[str, ...]) -> Directory:
        node = self._along(names)
        if not isinstance(node, Directory):
            number = errno.ENOENT if node is None else errno.ENOTDIR
            raise os_error(number, "/" + "/".join(names))
        return node

    def parent_of(self, path: str) -> tuple[Directory, str]:
        """Return the directory that has, or would have, the last name of ``path``, and that."""
        found = parts(path)
        if not found:
            raise os_error(errno.EBUSY, path)
        return self._directory_along(found[:-1]), found[-1]


Step = tuple[tuple[Directory, str, Node | None], ...]
"""One atomic change of names: what each touched name means afterwards (None: nothing)."""


class Journal:
    """The steps on names that are not durable yet. A sync costs what was done in its directory."""

    def __init__(self) -> None:
        self._steps: dict[int, Step] = {}
        """By number, oldest first."""
        self._count = 0

    def append(self, step: Step) -> None:
        """Learn of a step that was just done."""
        self._count += 1
        self._steps[self._count] = step
        for directory, _, _ in step:
            directory.unsynced.append(self._count)

    def sync(self, directory: Directory) -> None:
        """Make durable what was done in ``directory``."""
        numbers, directory.unsynced = directory.unsynced, []
        for number in numbers:
            # A rename across directories is one step: it reaches the device whole.
            step = self._steps.pop(number, None)
            if step is not None:
                self._apply(step)

    def _apply(self, step: Step) -> None:
        for directory, name, node in step:
            if node is not None:
                directory.durable_names[name] = node
                continue
            gone = directory.durable_names.pop(name, None)
            if isinstance(gone, Directory) and len(step) == 1:
                self._forget(gone)

    def _forget(self, gone: Directory) -> None:
        """Drop what was done in a directory that no crash brings back."""
        for number in gone.unsynced:
            step = self._steps.get(number, ())
            if step and all(touched is gone for touched, _, _ in step):
                del self._steps[number]

    def surviving_names(self, rng: Rng) -> dict[int, dict[str, Node]]:
        """Return by ``id`` of each touched directory the names it has after the crash."""
        names: dict[int, dict[str, Node]] = {}
        lost: set[int] = set()
        for step in self._steps.values():
            touched = {id(directory) for directory, _, _ in step}
            # A journal keeps the order within a directory: nothing arrives after a loss.
            if touched & lost or not rng.random_below(4):
                lost |= touched
                continue
            for directory, name, node in step:
                surviving = names.setdefault(id(directory), dict(directory.durable_names))
                if node is None:
                    surviving.pop(name, None)
                else:
                    surviving[name] = node
        return names


@lru_cache(maxsize=4096)
def parts(path: str) -> tuple[str, ...]:
    """Return the names along ``path``."""
    names = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in names:
        raise os_error(errno.EINVAL, path)
    return names


def os_error(number: int, path: str) -> OSError:
    """Return the error; OSError picks the subclass (FileNotFoundError, ...) by the number."""
    return OSError(number, os.strerror(number), path)
