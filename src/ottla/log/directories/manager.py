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
from ottla.errors import KafkaError, OttlaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.directory import DuplicatePartition, Fault, LogDirectory
from ottla.log.directories.futures import settle_futures
from ottla.log.directories.log_maker import LogMaker
from ottla.log.directories.making import Kept
from ottla.log.directories.offset_checkpoints import (
    OFFSET_CHECKPOINTS,
    CheckpointJob,
    HighWatermarkOf,
    OffsetCheckpoints,
    Offsets,
    as_flushed,
)
from ottla.log.directories.recovery import open_log
from ottla.log.directories.space import SpaceLimits
from ottla.log.directories.stand_in import failed_log
from ottla.log.files.checkpoints import replace_file
from ottla.log.files.faults import (
    Meaning,
    SyncFailed,
    is_out_of_space,
    is_passing,
    is_shortage,
    meaning_of,
)
from ottla.log.files.layout import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
    is_deleted_directory,
    parse_partition_directory,
)
from ottla.log.health import LogState
from ottla.log.log import Log

logger = logging.getLogger(__name__)

_Points = dict[str, Offsets]
"""What the checkpoint files of one log directory say, by their names."""
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
        self._recovery_threads = recovery_threads
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
        self.deleted: list[str] = []
        """Use: paths that ``remove_deleted`` is to remove, in an executor, while the loop appends:
        single list calls only."""
        self.listeners: list[Callable[[LogDirectory], None]] = []
        """Told on the loop when a directory has gone offline, is full, or has room again."""
        self.logs: dict[TopicPartition, Log] = {}
        """Use: look-ups on every request. Invariant: each is open, or failed since."""
        self.offline: dict[TopicPartition, Fault] = {}
        """Partitions found on disk that could not be opened, and why."""
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
        self.left: dict[TopicPartition, set[str]] = {}
        """Those that may have a directory although there is no log of theirs here, and in which log
        directories: it could not be renamed (yet), or its making failed."""
        self._offline_directories: dict[TopicPartition, str] = {}
        self._unclean: set[str] = set()
        """Directories that hold a partition which could not be opened."""

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
            listed = {directory: self._names_in(directory) for directory in self.online()}
            names = self._settle_futures(listed)
            self._set_duplicates_apart(names)
            for directory, found in names.items():
                if directory.is_online:
                    self._open_directory(directory, found)
            if not any(self.online()):
                raise next(iter(self.directories.values())).unusable()
        except BaseException:
            self._release()
            raise
        self._tell_what_is_amiss()

    def _tell_what_is_amiss(self) -> None:
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
            names, dropped = settle_futures(self._disk, by_path)
        except OSError as error:
            if is_shortage(error):
                raise self.online()[0].short(error) from error
            logger.error("copies of partitions are left as they are: %s", error)  # noqa: TRY400
            return {directory: self._names_in(directory) for directory in self.online()}
        self.deleted.extend(dropped)
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
                self.offline[where] = DuplicatePartition(where, paths)

    def _open_directory(self, directory: LogDirectory, names: list[str]) -> None:
        try:
            self._open_all(directory.path, names)
        except OSError as error:
            directory.set_failure(error)
            for where, log in list(self.logs.items()):
                if dirname(log.directory) == directory.path:
                    log.abandon()
                    directory.log_count -= 1
                    del self.logs[where]
            for where, log_dir in list(self._offline_directories.items()):
                if log_dir == directory.path:
                    del self.offline[where], self._offline_directories[where]

    def _open_all(self, log_dir: str, names: list[str]) -> None:
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
        points = self.checkpoints.read(log_dir)
        found = []
        for name in names:
            if is_deleted_directory(name):
                self.deleted.append(f"{log_dir}/{name}")
                continue
            topic_partition = parse_partition_directory(name)
            if topic_partition is None or not disk.is_directory(f"{log_dir}/{name}"):
                continue
            if topic_partition in self.offline:
                self._set_apart(log_dir, topic_partition)
            else:
                found.append(topic_partition)
        self._open_found(log_dir, found, points, is_clean=is_clean)

    def _open_found(
        self, log_dir: str, found: list[TopicPartition], points: _Points, *, is_clean: bool
    ) -> None:
        """Open the partitions ``found``. Raises SyncFailed: the disk is not to be trusted then."""
        outcomes: dict[TopicPartition, Log | Fault] = {}

        def open_one(where: TopicPartition) -> None:
            outcomes[where] = self._open(log_dir, where, points, is_clean=is_clean)

        # After a clean stop nothing is synced, so that threads would gain nothing.
        run_all(
            [partial(open_one, where) for where in found],
            threads=1 if is_clean else self._recovery_threads,
        )
        for topic_partition, outcome in outcomes.items():
            if isinstance(outcome, Log):
                self.put(outcome)
                self.high_watermarks[topic_partition] = points[HIGH_WATERMARK_CHECKPOINT].get(
                    topic_partition, 0
                )
            else:
                self.offline[topic_partition] = outcome
                self._set_apart(log_dir, topic_partition)
                if isinstance(outcome, OSError) and is_passing(outcome):
                    self.refused(log_dir, outcome)  # It is tried again when that is over.
        for outcome in outcomes.values():
            if isinstance(outcome, SyncFailed):
                raise outcome

    def _open(
        self, log_dir: str, topic_partition: TopicPartition, points: _Points, *, is_clean: bool
    ) -> Log | Fault:
        """Open a partition, or return why that cannot be. Blocks; on any thread."""

        def opened() -> Log:
            return open_log(
                self._disk,
                self._clock,
                f"{log_dir}/{topic_partition}",
                topic_partition,
                self._config_for(topic_partition.topic),
                recovery_point=points[RECOVERY_POINT_CHECKPOINT].get(topic_partition, 0),
                log_start_offset=points[LOG_START_CHECKPOINT].get(topic_partition, 0),
                is_clean=is_clean,
            )

        try:
            try:
                return opened()
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                # Another log's opening may have given it up just now: that helps this one, too.
                self.directories[log_dir].free_reserve()
                return opened()
        except (OttlaError, OSError) as error:
            return error

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
        del self.offline[where]
        self._offline_directories.pop(where, None)
        self.checkpoints.keep_no_more(where)
        if log_dir is not None:
            points: _Points = {
                name: dict(self.checkpoints.says(f"{log_dir}/{name}") or {})
                for name in OFFSET_CHECKPOINTS
            }
            self._open_found(log_dir, [where], points, is_clean=False)

    def away(self) -> list[str]:
        """Return the log directories in which partitions may be that are not found, for people."""
        offline = [path for path, found in self.directories.items() if not found.is_online]
        return [*(f"offline: {path}" for path in offline), *self.missing]

    def reopening(self, where: TopicPartition) -> Kept | None:
        """Return what is known of an offline partition that may be opened now.

        None: what keeps it offline does not pass by itself.
        """
        fault, log_dir = self.offline[where], self._offline_directories.get(where)
        if log_dir is None or not self.directories[log_dir].is_online or not is_passing(fault):
            return None
        offsets = self.checkpoints.kept(log_dir, where)
        return Kept(
            log_dir,
            offsets.get(RECOVERY_POINT_CHECKPOINT, 0),
            offsets.get(LOG_START_CHECKPOINT, 0),
            offsets.get(HIGH_WATERMARK_CHECKPOINT, 0),
        )

    def is_back(self, where: TopicPartition, kept: Kept) -> None:
        """Take note that an offline partition has been opened. Its log is ``put`` next."""
        del self.offline[where], self._offline_directories[where]
        self.checkpoints.keep_no_more(where)
        self.high_watermarks[where] = kept.high_watermark

    def _set_apart(self, log_dir: str, topic_partition: TopicPartition) -> None:
        """Keep what is known of an offline partition in ``log_dir`` for the day it is back."""
        self._offline_directories[topic_partition] = log_dir
        self._unclean.add(log_dir)
        self.checkpoints.keep(log_dir, topic_partition)

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
        log_dir = self._offline_directories.get(topic_partition, next(iter(self.directories)))
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
            or any(where.topic == topic for where in self.left)
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
                    if start_offset > 0:
                        files[f"{holder}/{LOG_START_CHECKPOINT}"][topic_partition] = start_offset
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
                committed = high_watermark_of(topic_partition)
                found[topic_partition] = log.flushed_offset if committed is None else committed
        says = self.checkpoints.says
        return self.checkpoints.job(
            {path: found for path, found in files.items() if says(path) != found}
        )

    def checkpointed(self, job: CheckpointJob) -> None:
        """Take the outcome of a checkpoint that ran. On the loop."""
        for log_dir in job.filled:
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
        unclean = set(self._unclean)

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
