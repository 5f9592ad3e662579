"""Opening what lies in the log directories: at the start all of it, later one that was set apart.

Owns in which order a directory's names are looked at, and what becomes of a partition that cannot
be opened: it is offline with its reason, a directory whose disk fails with all that lies in it; the
others serve. Part of the log manager, above log.directories.recovery. Source: Kafka's LogManager;
reliability rules 2, 7, 15, 16 and 18.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import run_all
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.directory import DuplicatePartition, Fault, LogDirectory
from ottla.log.directories.futures import settle_futures
from ottla.log.directories.offline import Offline
from ottla.log.directories.offset_checkpoints import (
    OFFSET_CHECKPOINTS,
    OffsetCheckpoints,
    Offsets,
)
from ottla.log.directories.recovery import open_log
from ottla.log.files.faults import SyncFailed, is_out_of_space, is_passing, is_shortage
from ottla.log.files.layout import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
    is_deleted_directory,
    parse_partition_directory,
)
from ottla.log.log import Log

logger = logging.getLogger(__name__)

_Points = dict[str, Offsets]
"""What the checkpoint files of one log directory say, by their names."""


class Opened(NamedTuple):
    """A log, and the high watermark that the checkpoint says; 0: it says nothing."""

    log: Log
    high_watermark: int


class Opening:
    """Opens partitions in the log directories of one node."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        checkpoints: OffsetCheckpoints,
        offline: Offline,
        config_for: Callable[[str], LogConfig],
        *,
        directories: dict[str, LogDirectory],
        refused: Callable[[str, OSError], None],
        threads: int,
    ) -> None:
        """``refused`` is told of what passes by itself, with the log directory.

        ``threads``: logs recovered side by side, since each waits for its own syncs.
        """
        self._disk = disk
        self._clock = clock
        self._checkpoints = checkpoints
        self._offline = offline
        self._config_for = config_for
        self._directories = directories
        self._refused = refused
        self._threads = threads
        self.deleted: list[str] = []
        """Paths found that are to be removed."""
        self.copies_alone: dict[str, TopicPartition] = {}
        """Copies found, by path, of partitions that were not found: see ``settle_futures``."""

    def open_all(self, take: Callable[[Opened], None]) -> None:
        """Open every partition in the directories that are online; hand each to ``take``. Blocks.

        Raises LogDirectoryUnusable when the process is short of something.
        """
        listed = {directory: self._names_in(directory) for directory in self._online()}
        names = self._settle_futures(listed)
        self._set_duplicates_apart(names)
        for directory, found in names.items():
            if directory.is_online:
                for opened in self._open_directory(directory, found):
                    take(opened)

    def open_again(self, where: TopicPartition, log_dir: str) -> list[Opened]:
        """Open a partition that was offline, in ``log_dir``; none if that fails again. Blocks.

        Its entries in the checkpoints of ``log_dir`` hold.
        """
        points: _Points = {
            name: dict(self._checkpoints.says(f"{log_dir}/{name}") or {})
            for name in OFFSET_CHECKPOINTS
        }
        return self._open_found(log_dir, [where], points, is_clean=False)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories.values() if directory.is_online]

    def _names_in(self, directory: LogDirectory) -> list[str]:
        try:
            return self._disk.list_directory(directory.path)
        except OSError as error:
            directory.set_failure(error)
            return []

    def _settle_futures(
        self, listed: dict[LogDirectory, list[str]]
    ) -> dict[LogDirectory, list[str]]:
        """Finish or drop copies that were being made when the process ended."""
        by_path = {directory.path: found for directory, found in listed.items()}
        try:
            names, dropped, alone = settle_futures(self._disk, by_path)
        except OSError as error:
            if is_shortage(error):
                raise self._online()[0].short(error) from error
            logger.error("copies of partitions are left as they are: %s", error)  # noqa: TRY400
            return {directory: self._names_in(directory) for directory in self._online()}
        self.deleted.extend(dropped)
        self.copies_alone.update(alone)
        return {directory: names[directory.path] for directory in listed}

    def _set_duplicates_apart(self, names: dict[LogDirectory, list[str]]) -> None:
        """Take what two directories hold for offline, before anything of it is touched."""
        holders: dict[TopicPartition, list[str]] = {}
        for directory, found in names.items():
            for name in found:
                where = parse_partition_directory(name)
                if where is not None:
                    holders.setdefault(where, []).append(directory.path)
        for where, paths in holders.items():
            if len(paths) > 1:
                self._offline[where] = DuplicatePartition(where, paths)

    def _open_directory(self, directory: LogDirectory, names: list[str]) -> list[Opened]:
        try:
            return self._open_names(directory.path, names)
        except OSError as error:
            directory.set_failure(error)
            self._offline.drop_directory(directory.path)
            return []

    def _open_names(self, log_dir: str, names: list[str]) -> list[Opened]:
        """Open every partition of a directory. Raises OSError when the directory itself fails."""
        disk = self._disk
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and not disk.is_directory(f"{log_dir}/{name}"):
                disk.remove(f"{log_dir}/{name}")
        is_clean = CLEAN_SHUTDOWN in names
        if is_clean:
            # From the first write on it is no longer true.
            disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")
        # Nor is a name that is found durable because it is found: its sync may never have come.
        disk.sync_directory(log_dir)
        points = self._checkpoints.read(log_dir)
        found = []
        for name in names:
            if is_deleted_directory(name):
                self.deleted.append(f"{log_dir}/{name}")
                continue
            where = parse_partition_directory(name)
            if where is None or not disk.is_directory(f"{log_dir}/{name}"):
                continue
            if where in self._offline:
                self._offline.held_by_one_more(where, log_dir)
            else:
                found.append(where)
        return self._open_found(log_dir, found, points, is_clean=is_clean)

    def _open_found(
        self, log_dir: str, found: list[TopicPartition], points: _Points, *, is_clean: bool
    ) -> list[Opened]:
        """Open the partitions ``found``. Raises SyncFailed: the disk is not to be trusted then."""
        outcomes: dict[TopicPartition, Log | Fault] = {}

        def open_one(where: TopicPartition) -> None:
            outcomes[where] = self._open(log_dir, where, points, is_clean=is_clean)

        # After a clean stop nothing is synced, so that threads would gain nothing.
        run_all(
            [partial(open_one, where) for where in found], threads=1 if is_clean else self._threads
        )
        opened = []
        high_watermarks = points[HIGH_WATERMARK_CHECKPOINT]
        for where, outcome in outcomes.items():
            if isinstance(outcome, Log):
                opened.append(Opened(outcome, high_watermarks.get(where, 0)))
                continue
            self._offline.set_apart(where, log_dir, outcome)
            if isinstance(outcome, OSError) and is_passing(outcome):
                self._refused(log_dir, outcome)  # It is tried again when that is over.
        for outcome in outcomes.values():
            if isinstance(outcome, SyncFailed):
                for log, _ in opened:
                    log.abandon()
                raise outcome
        return opened

    def _open(
        self, log_dir: str, where: TopicPartition, points: _Points, *, is_clean: bool
    ) -> Log | Fault:
        """Open a partition, or return why that cannot be. Blocks; on any thread."""

        def opened() -> Log:
            return open_log(
                self._disk,
                self._clock,
                f"{log_dir}/{where}",
                where,
                self._config_for(where.topic),
                recovery_point=points[RECOVERY_POINT_CHECKPOINT].get(where, 0),
                log_start_offset=points[LOG_START_CHECKPOINT].get(where, 0),
                is_clean=is_clean,
            )

        try:
            try:
                return opened()
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                # Another log's opening may have given it up just now: that helps this one, too.
                self._directories[log_dir].free_reserve()
                return opened()
        except (OttlaError, OSError) as error:
            return error
