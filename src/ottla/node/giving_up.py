"""When a node cannot go on, and how it says so: its metadata, or its place in the cluster, is gone.

Owns the one failure of a node. A log directory that does not hold the metadata is no reason: what
is in the others serves on.
"""

import asyncio
import logging
from collections.abc import Sequence

from ottla.log.directories.directory import LogDirectory, LogDirectoryUnusable

logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"


class GivingUp:
    """Whether a node goes on."""

    def __init__(self, log_dirs: Sequence[str], *, has_metadata: bool = True) -> None:
        """``has_metadata``: the cluster's metadata is in the first of ``log_dirs``."""
        self._has_metadata = has_metadata
        self._working = set(log_dirs)
        """Use: a node whose last directory fails has nothing to serve."""
        self._first = log_dirs[0]
        self._file = f"{self._first}/{METADATA_FILE}"
        self._what = "the cluster's metadata" if len(log_dirs) > 1 else "all data"
        self.failed = asyncio.Event()
        """Set when this node cannot go on, and should be stopped; then ``failure`` tells why."""
        self.failure: LogDirectoryUnusable | None = None

    def give_up(self, failure: LogDirectoryUnusable) -> None:
        """Say that the node cannot go on. The first reason counts."""
        if self.failure is None:
            self.failure = failure
            logger.critical("this node cannot go on: %s", failure)
            self.failed.set()

    def without_metadata(self, why: str) -> LogDirectoryUnusable:
        """Return the error for a directory of the metadata that cannot be used."""
        fix = f"it holds {self._what}: see what is wrong with the disk, then start again"
        return LogDirectoryUnusable(self._first, why, fix)

    def directory_changed(self, directory: LogDirectory) -> None:
        """Give up when the disk took the metadata; what is in other directories serves on else."""
        failure = self.why_not_without(directory)
        if failure is not None:
            self.give_up(failure)

    def why_not_without(self, directory: LogDirectory) -> LogDirectoryUnusable | None:
        """Return why the node cannot go on if ``directory`` has failed; None: it can."""
        if directory.failure is None:
            return None
        self._working.discard(directory.path)
        if self._has_metadata and directory.path == self._first:
            return self.without_metadata(str(directory.failure))
        if self._working:
            return None
        fix = "no other one is left: see what is wrong with the disk, then start again"
        return LogDirectoryUnusable(directory.path, str(directory.failure), fix)

    def store_broke(self, why: str) -> None:
        """Give up: nothing can be changed any more."""
        fix = "see what is wrong with the disk, then start again; ottla doctor looks at the rest"
        why = f"the metadata is out of use ({why})"
        self.give_up(LogDirectoryUnusable(self._file, why, fix))

    def cluster_broke(self, where: str, why: str) -> None:
        """Give up: what the cluster knows is not what this node knows."""
        fix = "put a newer backup of etcd back; when all is well there, start this node again"
        self.give_up(LogDirectoryUnusable(where, why, fix))

    def mirror_ended(self, error: BaseException | None) -> None:
        """Give up: topics would be made and deleted in the store, and this node not do it."""
        why = f"what it says could not be followed, by a fault of ours ({error!r})"
        fix = "start again, and please report it with the traceback in the log"
        self.give_up(LogDirectoryUnusable(self._file, why, fix))

    def membership_ended(self, error: BaseException) -> None:
        """Give up: no client would find this node."""
        why = f"this node is no member of its cluster, by a fault of ours ({error!r})"
        fix = "start again, and please report it with what the log says"
        self.give_up(LogDirectoryUnusable(self._file, why, fix))
