"""All partitions in this node's log directories: find, create, delete, checkpoint, stop.

Owns which partition lies in which directory, and whether the last stop was clean. Knows nothing of
leaders or clients. Above log.recovery and log.log, below replication. A partition that cannot be
opened is offline with its reason, a directory whose disk fails with all that lies in it; the others
serve. Nothing that cannot be read is ever deleted. Source: Kafka's LogManager; reliability rules 2,
3, 5, 14, 16.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from posixpath import dirname

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import run_all
from ottla.env.rng import Rng
from ottla.errors import KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.log_maker import LogMaker
from ottla.log.directories.offline import Offline
from ottla.log.directories.offset_checkpoints import (
    CheckpointJob,
    HighWatermarkOf,
    OffsetCheckpoints,
    as_flushed,
)
from ottla.log.directories.opening import Opened, Opening
from ottla.log.directories.space import SpaceLimits
from ottla.log.directories.stand_in import failed_log
from ottla.log.files.checkpoints import replace_file
from ottla.log.files.faults import (
    Meaning,
    meaning_of,
)
from ottla.log.files.layout import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.log.health import LogState
from ottla.log.log import Log

logger = logging.getLogger(__name__)

_CLEAN_SHUTDOWN_TEXT = '{"version":0,"brokerEpoch":-1}'


class LogManager:
    """The logs of this node, by topic-partition."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        log_dirs: Sequence[str],
        cluster_id: str,
        node_id: int,
        config_for: Callable[[str], LogConfig],
        space: SpaceLimits = SpaceLimits(),  # noqa: B008 - immutable
        recovery_threads: int = 1,
        making_threads: int = 1,
    ) -> None:
        """``config_for`` gives the settings of a topic by its name, known or not.

        ``recovery_threads``, ``making_threads``: logs recovered or made side by side, since each
        waits for its own syncs.
        """
        self._disk = disk
        self._clock = clock
        self._rng = rng
        paths = [path.rstrip("/") or "/" for path in log_dirs]
        self.directories = {path: LogDirectory(disk, path, space) for path in paths}
        """By path, in the order given. Those that are offline among them."""
        self.checkpoints = OffsetCheckpoints(disk, self.directories)
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._config_for = config_for
        self.offline = Offline(self.directories, self.checkpoints)
        """Partitions found on disk that could not be opened, and why."""
        self._opening = Opening(
            disk,
            clock,
            self.checkpoints,
            self.offline,
            config_for,
            directories=self.directories,
            refused=self.refused,
            threads=recovery_threads,
        )
        self.deleted = self._opening.deleted
        """Use: paths that ``remove_deleted`` is to remove, in an executor, while the loop appends:
        single list calls only."""
        self.copies_alone = self._opening.copies_alone
        """Copies found at the start, by path, whose log was not: see ``settle_futures``."""
        self.listeners: list[Callable[[LogDirectory], None]] = []
        """Told on the loop when a directory has gone offline, is full, or has room again."""
        self.logs: dict[TopicPartition, Log] = {}
        """Use: look-ups on every request. Invariant: each is open, or failed since."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """What the checkpoints said at the start; 0 when they said nothing. Invariant: of logs that
        are here since."""
        self.copying: dict[TopicPartition, str] = {}
        """Which log directory a partition is being copied to: its checkpoints are written there,
        too."""
        self.missing: tuple[str, ...] = ()
        """Log directories that this node had and is not started with now, as told to people: what
        is in them is not here, and must not be made anew. Set by ``miss``."""
        self.maker = LogMaker(self, rng, config_for, threads=making_threads)

    @property
    def clock(self) -> Clock:
        """The clock that logs go by."""
        return self._clock

    @property
    def disk(self) -> Disk:
        """The disk that the log directories are on."""
        return self._disk

    # -- start --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the directories and open every partition in them. Blocks.

        Raises LogDirectoryUnusable when one is in use or of another cluster or node, or when none
        can be used. A directory whose disk refuses is offline, and so is a partition that cannot
        be opened. After an exception nothing is held.
        """
        try:
            for directory in self.directories.values():
                directory.take(cluster_id=self._cluster_id, node_id=self._node_id, rng=self._rng)
                if directory.is_online and directory.measure():
                    directory.is_full = True
                    directory.free_reserve()  # A start has to write, too.
            self._opening.open_all(self._take)
            if not any(self.online()):
                raise next(iter(self.directories.values())).unusable()
        except BaseException:
            self._release()
            raise
        for directory in self.directories.values():
            if not directory.is_online:
                logger.error(
                    "the log directory %s is offline: %s", directory.path, directory.failure
                )
            elif directory.is_full:
                directory.set_full(is_full=True)
        if len(self.online()) < len(self.directories):
            # What replaced one of them may lie where nothing can be read now.
            self.deleted.clear()

    def belong_to(self, cluster_id: str) -> None:
        """Write another cluster's id into the directories: theirs was lost, and made anew. Blocks.

        Raises OSError.
        """
        self._cluster_id = cluster_id
        for directory in self.online():
            directory.belong_to(cluster_id, self._node_id)

    def miss(self, directories: Sequence[str]) -> None:
        """Take note that there are log directories which are not here. Before logs are made.

        What has replaced a directory that is to be removed may lie in one of them.
        """
        self.missing = tuple(directories)
        if self.missing:
            self.deleted.clear()

    def online(self) -> list[LogDirectory]:
        """Return the log directories that serve."""
        return [directory for directory in self.directories.values() if directory.is_online]

    def put(self, log: Log) -> None:
        """Take ``log``, which was opened in one of the directories, for its partition's."""
        log.on_disk_error = partial(self.refused, dirname(log.directory))
        before = self.logs.get(log.topic_partition)
        if before is not None:
            self.directories[dirname(before.directory)].log_count -= 1
        directory = self.directories[dirname(log.directory)]
        directory.log_count += 1
        if directory.is_full:
            log.state = LogState.FULL
        self.logs[log.topic_partition] = log

    def open_again(self, where: TopicPartition, log_dir: str | None = None) -> None:
        """Open an offline partition, in ``log_dir``; None: it is not here any more. Blocks.

        Its entries in the checkpoints hold: those of ``log_dir``.
        """
        self.offline.end(where)
        if log_dir is not None:
            for opened in self._opening.open_again(where, log_dir):
                self._take(opened)

    def _take(self, opened: Opened) -> None:
        self.put(opened.log)
        self.high_watermarks[opened.log.topic_partition] = opened.high_watermark

    def away(self) -> list[str]:
        """Return the log directories in which partitions may be that are not found, for people."""
        offline = [path for path, found in self.directories.items() if not found.is_online]
        return [*(f"offline: {path}" for path in offline), *self.missing]

    def refused(self, log_dir: str, error: OSError) -> None:
        """Take note of what the disk of ``log_dir`` has refused. On the loop."""
        meaning = meaning_of(error)
        if meaning is Meaning.BROKEN:
            self.fail_directory(log_dir, error)
        elif meaning is Meaning.FULL:
            self.fill(self.directories[log_dir])
        elif meaning is Meaning.SHORTAGE:
            self.directories[log_dir].note_shortage(error)

    def fill(self, directory: LogDirectory) -> None:
        """Take no more batches in ``directory``, whose volume refused a write. Frees its reserve.

        What is there stays readable; deletions, checkpoints and flushes have room for a while.
        """
        directory.free_reserve()
        if directory.is_online and not directory.is_full:
            self._set_full(directory, is_full=True)

    def measure_space(self) -> dict[str, bool | OSError]:
        """Return which directories are to refuse batches, or are not there. Blocks; any thread."""
        found: dict[str, bool | OSError] = {}
        for directory in self.online():
            try:
                found[directory.path] = directory.measure()
            except OSError as error:
                found[directory.path] = error
        return found

    def space_measured(self, found: Mapping[str, bool | OSError]) -> None:
        """Take what ``measure_space`` has found. On the loop."""
        for path, is_full in found.items():
            directory = self.directories[path]
            if isinstance(is_full, OSError):
                self.refused(path, is_full)
            elif directory.is_online and directory.is_full != is_full:
                self._set_full(directory, is_full=is_full)
            elif directory.is_online and directory.end_shortage():
                for listener in self.listeners:
                    listener(directory)

    def _set_full(self, directory: LogDirectory, *, is_full: bool) -> None:
        directory.set_full(is_full=is_full)
        before, after = LogState.OPEN, LogState.FULL
        if not is_full:
            before, after = after, before
        for log in self.logs.values():
            if log.state is before and dirname(log.directory) == directory.path:
                log.state = after
        for listener in self.listeners:
            listener(directory)

    def fail_directory(self, path: str, error: OSError) -> None:
        """Take the directory ``path`` and every log in it out of service. On the loop.

        Nothing is written there any more, and nothing acknowledged that was not yet durable
        (reliability rule 2). It takes a restart to bring it back.
        """
        directory = self.directories[path]
        if not directory.is_online:
            return
        directory.failure = error
        count = 0
        for log in self.logs.values():
            if dirname(log.directory) == path:
                log.take_out(error)
                count += 1
        logger.error("the log directory %s is offline, with %d partitions: %s", path, count, error)
        for listener in self.listeners:
            listener(directory)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log, or None when there is none here or it is offline."""
        return self.logs.get(topic_partition)

    def stand_in(self, topic_partition: TopicPartition, topic_id: TopicId) -> Log:
        """Return a failed log for one that ``create`` refused: it answers KAFKA_STORAGE_ERROR.

        It touches no file, and is not one of ``logs``.
        """
        log_dir = self.offline.place_of(topic_partition) or next(iter(self.directories))
        return failed_log(
            self._disk,
            self._clock,
            f"{log_dir}/{topic_partition}",
            topic_partition,
            topic_id,
            self._config_for(topic_partition.topic),
        )

    def unique(self) -> bytes:
        """Return 16 bytes that no other name has."""
        return self._rng.random_bytes(16)

    def remove_later(self, path: str) -> None:
        """Have the directory ``path``, which nobody needs, removed by ``remove_deleted``."""
        self.deleted.append(path)

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, *, is_new: bool = True
    ) -> Log:
        """Return the partition's log, making it durably when it is not there. Blocks.

        See ``LogMaker.create``.
        """
        return self.maker.create(topic_partition, topic_id, is_new=is_new)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the partition away durably. Blocks. See ``LogMaker.delete``."""
        self.maker.delete([topic_partition])

    def may_have_left(self, topic: str) -> bool:
        """Tell whether a directory of the deleted ``topic`` may still bear its name."""
        return (
            bool(self.missing)
            or self.maker.may_have_left(topic)
            or any(not directory.is_online for directory in self.directories.values())
            or any(where.topic == topic for where in self.offline)
        )

    def remove_deleted(self) -> None:
        """Free the space of deleted partitions. Blocks; the caller schedules it.

        What cannot be removed stays for the next call.
        """
        for directory in list(self.deleted):
            with suppress(OSError, ValueError):
                for name in self._disk.list_directory(directory):
                    self._disk.remove(f"{directory}/{name}")
                self._disk.remove_directory(directory)
                self.deleted.remove(directory)

    # -- checkpoints and stop -----------------------------------------------------------------

    def checkpoint_job(self) -> CheckpointJob:
        """Return the work that saves recovery points and log start offsets as they are now.

        Made on the loop, run in an executor: every 60 s and after rolls. What it writes may be
        behind when it is written, never ahead (rule 5).
        """
        files = self.checkpoints.begin(RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT)
        for topic_partition, log in self.logs.items():
            log_dir = dirname(log.directory)
            if not self.directories[log_dir].is_online:
                continue
            # After a crash the log may end where it was flushed: it must not start behind that.
            start_offset = min(log.log_start_offset, log.flushed_offset)
            # A copy takes the log's place only when it has all that the log has.
            for holder in {log_dir, self.copying.get(topic_partition, log_dir)}:
                if (points := files.get(f"{holder}/{RECOVERY_POINT_CHECKPOINT}")) is not None:
                    points[topic_partition] = log.flushed_offset
                    path = f"{holder}/{LOG_START_CHECKPOINT}"
                    # A log that is being cut is flushed to less: what was deleted stays so.
                    said = (self.checkpoints.says(path) or {}).get(topic_partition, 0)
                    if (told := max(start_offset, min(said, log.log_start_offset))) > 0:
                        files[path][topic_partition] = told
        return self.checkpoints.job(files)

    def high_watermark_job(self, high_watermark_of: HighWatermarkOf = as_flushed) -> CheckpointJob:
        """Return the work that saves the high watermarks that have changed since the last time.

        As ``checkpoint_job`` otherwise. With one replica nobody needs them: the log tells. A leader
        of several starts from them, and Kafka's tools look at them.
        """
        files = self.checkpoints.begin(HIGH_WATERMARK_CHECKPOINT)
        for topic_partition, log in self.logs.items():
            found = files.get(f"{dirname(log.directory)}/{HIGH_WATERMARK_CHECKPOINT}")
            if found is not None:
                committed, flushed = high_watermark_of(topic_partition), log.flushed_offset
                # A log that is being cut is flushed to where it will be left at least.
                found[topic_partition] = flushed if committed is None else min(committed, flushed)
        says = self.checkpoints.says
        return self.checkpoints.job(
            {path: found for path, found in files.items() if says(path) != found}
        )

    def checkpointed(self, job: CheckpointJob) -> None:
        """Take the outcome of a checkpoint that ran. On the loop."""
        for log_dir in sorted(job.filled):
            self.fill(self.directories[log_dir])
        for log_dir, error in job.failures.items():
            self.refused(log_dir, error)

    def stop(self, *, threads: int = 1, high_watermark_of: HighWatermarkOf = as_flushed) -> None:
        """Flush and close everything, say that the stop was clean, give the directories back.

        Blocks; no flush may be in flight. A directory in which something could not be made durable
        is left without the mark, so that the next start verifies it (rule 16). ``threads``: logs
        closed side by side, since each waits for its own syncs.
        """
        self.listeners.clear()
        unclean = set(self.offline.unclean)

        def close(log: Log) -> None:
            try:
                failed = log.state is LogState.FAILED
                log.close()
            except KafkaError:
                failed = True
            if failed:
                unclean.add(dirname(log.directory))

        run_all([partial(close, log) for log in self.logs.values()], threads=threads)
        try:
            job = self.checkpoint_job()
            job.run()
            self.high_watermark_job(high_watermark_of).run()
            for directory in self.online():
                if directory.path not in unclean and directory.path not in job.failures:
                    # Without the mark the next start is slower and right.
                    with suppress(OSError):
                        path = f"{directory.path}/{CLEAN_SHUTDOWN}"
                        replace_file(self._disk, path, _CLEAN_SHUTDOWN_TEXT)
        finally:
            self.logs.clear()
            self._release()

    def _release(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        for directory in self.directories.values():
            directory.release()
