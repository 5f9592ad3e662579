"""Directories of partitions that come and go, many at a time: the part that blocks.

Jobs are made on the loop by the log manager, which decides what is to be where; they run in an
executor and touch no log that anybody else has; their outcome is taken on the loop. What they make
is durable when they return (reliability rule 3), what they remove bears its name no more (rule 14):

    make    free the names (``OffsetCheckpoints.forget``); per partition: what was left under its
            name in any log directory renamed to ``...-delete``, durably; directory,
            partition.metadata synced, first segment, the directory synced; once: the log directory
    remove  per partition: renamed to ``...-delete``; once: the log directory

The syncs of many partitions go on side by side: the file system makes them durable together. A
partition that the disk refuses does not keep the others from theirs. Below log.manager.
"""

from collections.abc import Sequence
from functools import partial
from posixpath import dirname
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import run_all
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.log.config import LogConfig
from ottla.log.directories.directory import Fault
from ottla.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoints
from ottla.log.directories.recovery import open_log
from ottla.log.files.checkpoints import write_partition_metadata
from ottla.log.files.faults import sync_directory
from ottla.log.files.layout import PARTITION_METADATA
from ottla.log.log import Log


class Wanted(NamedTuple):
    """A partition whose log is to be made."""

    where: TopicPartition
    topic_id: TopicId
    is_new: bool = True
    """False: it may be in a log directory that is offline, and is then not made again, empty."""


class Kept(NamedTuple):
    """A partition that a start could not open for want of something, and what is known of it."""

    log_dir: str
    recovery_point: int
    log_start_offset: int
    high_watermark: int


class NewLog(NamedTuple):
    """Where a wanted log is to be."""

    where: TopicPartition
    topic_id: TopicId
    directory: str
    config: LogConfig
    found: Log | None = None
    """It is open already, but its directory does not say of which topic it is."""
    leftovers: Sequence["Renaming"] = ()
    """What is in the way: two directories of one name are no partition at the next start."""
    kept: Kept | None = None
    """It is there, and only to be opened."""


class Renaming(NamedTuple):
    """A directory that is to lose its name."""

    directory: str
    target: str


class OfAnotherTopic(KafkaError):
    """A directory bears the name of a partition, and is of another topic of that name."""

    def __init__(self, directory: str, topic_id: TopicId) -> None:
        why = f"{directory} is of topic {topic_id_text(topic_id)}"
        super().__init__(ErrorCode.INCONSISTENT_TOPIC_ID, why)
        self.topic_id = topic_id


class MakingJob:
    """Makes logs. ``outcomes`` has each one's, once it ran."""

    def __init__(
        self, disk: Disk, clock: Clock, checkpoints: OffsetCheckpoints, *, threads: int = 1
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._checkpoints = checkpoints
        self._threads = threads
        self.new: list[NewLog] = []
        self.outcomes: dict[TopicPartition, Log | Fault] = {}
        """The log, open and nobody's yet, or why there is none."""
        self.cleared: list[str] = []
        """Directories that have given up their names: to be removed."""
        self.forgotten: CheckpointJob | None = None
        """What was done to the checkpoints, for ``LogManager.checkpointed``."""

    def run(self) -> None:
        """Make them. Blocks; on any thread."""
        self._free_names()
        free = [new for new in self.new if new.where not in self.outcomes]
        run_all([partial(self._make, new) for new in free], threads=self._threads)
        for log_dir in dict.fromkeys(dirname(new.directory) for new in self.new):
            self._sync(log_dir)

    def _free_names(self) -> None:
        """Free the names of what is made anew, or refuse it. What is there already goes on."""
        names = [new.where for new in self.new if new.found is None and new.kept is None]
        self.forgotten = self._checkpoints.forget(names)
        for log_dir, error in self.forgotten.failures.items():
            for where in names:
                why = f"the checkpoints of {log_dir} still tell of a former {where}: {error}"
                self.outcomes[where] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _make(self, new: NewLog) -> None:
        try:
            self.outcomes[new.where] = self._made(new)
        except (OSError, OttlaError) as error:
            self.outcomes[new.where] = error

    def _made(self, new: NewLog) -> Log:
        disk, metadata = self._disk, f"{new.directory}/{PARTITION_METADATA}"
        if new.found is not None:
            write_partition_metadata(disk, metadata, new.topic_id)
            return new.found
        if new.kept is None:
            self._insist_on_free_name(new)
        for directory, target in new.leftovers:
            if disk.exists(directory):
                disk.rename(directory, target)
                self.cleared.append(target)
            sync_directory(disk, dirname(target))  # It may be gone, and not durably.
        if new.kept is None and not disk.exists(new.directory):
            disk.make_directory(new.directory)
            # Made durable with the segment's name, when the log is opened.
            write_partition_metadata(disk, metadata, new.topic_id, is_synced=False)
        log = open_log(
            disk,
            self._clock,
            new.directory,
            new.where,
            new.config,
            recovery_point=0 if new.kept is None else new.kept.recovery_point,
            log_start_offset=0 if new.kept is None else new.kept.log_start_offset,
            is_clean=False,
        )
        try:
            if log.topic_id is None:
                write_partition_metadata(disk, metadata, new.topic_id)
                log.topic_id = new.topic_id
            elif log.topic_id != new.topic_id:
                raise OfAnotherTopic(new.directory, log.topic_id)
        except BaseException:
            log.abandon()
            raise
        return log

    def _insist_on_free_name(self, new: NewLog) -> None:
        """Raise KafkaError when its log directory went offline before the name was forgotten.

        Its disk may well take a new log, which the next start would believe to be the former one.
        """
        assert self.forgotten is not None, "names are freed first"
        log_dir = dirname(new.directory)
        if log_dir in self.forgotten.passed_over:
            why = f"{log_dir} is offline, and still tells of a former {new.where}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _sync(self, log_dir: str) -> None:
        made = [
            new
            for new in self.new
            if dirname(new.directory) == log_dir and isinstance(self.outcomes[new.where], Log)
        ]
        if not made:
            return
        try:
            sync_directory(self._disk, log_dir)
        except OSError as error:
            for new in made:
                log = self.outcomes[new.where]
                if isinstance(log, Log) and new.found is None:
                    log.abandon()
                self.outcomes[new.where] = error


class Removal(NamedTuple):
    """A directory of ``where`` that is to lose its name, and the log in it, which nobody has."""

    where: TopicPartition
    renaming: Renaming
    log: Log | None
    """None: what a making or a removal that was refused has left; it may not be there."""


class RemovalJob:
    """Takes the names of directories away. ``faults`` has what the disk refused, once it ran."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.removals: list[Removal] = []
        self.faults: dict[TopicPartition, OSError | KafkaError] = {}
        self.renamed: list[str] = []
        """Directories that bear other names now."""

    def run(self) -> None:
        """Rename them, durably. Blocks; on any thread."""
        renamed: dict[str, list[TopicPartition]] = {}
        for where, (directory, target), log in self.removals:
            if log is not None:
                log.tenancy.wait_until_left()
            try:
                if log is None and not self._disk.exists(directory):
                    continue
                self._disk.rename(directory, target)
            except OSError as error:
                self.faults[where] = error
            else:
                self.renamed.append(target)
                renamed.setdefault(dirname(target), []).append(where)
        for log_dir, names in renamed.items():
            try:
                sync_directory(self._disk, log_dir)
            except OSError as error:
                self.faults.update(dict.fromkeys(names, error))


def storage_error(fault: Fault) -> KafkaError:
    """Return what clients are told of a log that could not be made or removed."""
    if isinstance(fault, KafkaError):
        return fault
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    error.__cause__ = fault
    return error
