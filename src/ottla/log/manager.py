"""All partitions in this node's log directories: find, create, delete, checkpoint, stop.

Owns the directories themselves: whose they are, that nobody else uses them, whether the last stop
was clean. Knows nothing of leaders or clients. Above log.recovery and log.log, below replication.
A partition that cannot be opened is offline with its reason; the others serve. Nothing that cannot
be read is ever deleted. Source: Kafka's LogManager; reliability rules 3, 5, 14, 16.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from posixpath import basename, dirname
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk, Lock
from ottla.env.rng import Rng
from ottla.errors import CorruptFile, ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.log.checkpoints import (
    MetaProperties,
    read_meta_properties,
    read_offset_checkpoint,
    replace_file,
    write_meta_properties,
    write_offset_checkpoint,
    write_partition_metadata,
)
from ottla.log.config import LogConfig
from ottla.log.layout import (
    CLEAN_SHUTDOWN,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
    deleted_directory,
    is_deleted_directory,
    parse_partition_directory,
    partition_directory,
)
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.log import Log, LogState
from ottla.log.producers import Producers
from ottla.log.recovery import open_log
from ottla.log.segment import Segment

_CLEAN_SHUTDOWN_TEXT = '{"version":0,"brokerEpoch":-1}'


class LogDirectoryUnusable(OttlaError):
    """A log directory that this node must not or cannot use. ``fix`` tells people what to do."""

    def __init__(self, path: str, why: str, fix: str) -> None:
        super().__init__(path, why, fix)
        self.path = path
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; {self.fix}"


class _Points(NamedTuple):
    """What the checkpoint files of one log directory say."""

    recovery_points: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]


class CheckpointJob:
    """Recovery points and log start offsets as of one moment, on their way to the disk."""

    __slots__ = ("_disk", "_files")

    def __init__(self, disk: Disk, files: dict[str, dict[TopicPartition, int]]) -> None:
        self._disk = disk
        self._files = files

    def run(self) -> None:
        """Write the checkpoints. Blocks; on any thread, one job at a time. Raises OSError."""
        for path, offsets in self._files.items():
            write_offset_checkpoint(self._disk, path, offsets)


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
    ) -> None:
        """``config_for`` gives the settings of a topic by its name, known or not."""
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._log_dirs = [path.rstrip("/") or "/" for path in log_dirs]
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._config_for = config_for
        self._locks: list[Lock] = []
        self._deleted: list[str] = []
        self.logs: dict[TopicPartition, Log] = {}
        """Use: look-ups on every request. Invariant: each is open, or failed since."""
        self.offline: dict[TopicPartition, OttlaError | OSError] = {}
        """Partitions found on disk that could not be opened, and why."""
        self._offline_directories: dict[TopicPartition, str] = {}
        self._offline_points: dict[str, dict[TopicPartition, int]] = {}
        """What the checkpoint files said of offline partitions: kept until they are back."""

    @property
    def disk(self) -> Disk:
        """The disk that the log directories are on."""
        return self._disk

    # -- start --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the directories and open every partition in them. Blocks.

        Raises LogDirectoryUnusable (in use, of another cluster or node, unreadable). A partition
        that cannot be opened goes to ``offline``. After an exception nothing is held.
        """
        try:
            for log_dir in self._log_dirs:
                self._take(log_dir)
            for log_dir in self._log_dirs:
                self._open_all(log_dir)
        except BaseException:
            self._release()
            raise

    def _take(self, log_dir: str) -> None:
        try:
            if not self._disk.exists(log_dir):
                self._disk.make_directory(log_dir)
                self._disk.sync_directory(dirname(log_dir) or ".")
            self._locks.append(self._disk.lock(f"{log_dir}/{LOCK}"))
        except BlockingIOError as error:
            why = "another process uses this data directory"
            raise LogDirectoryUnusable(log_dir, why, "stop it, or choose another one") from error
        except OSError as error:
            why = f"cannot be used as a data directory ({error.strerror})"
            fix = "choose a directory that this user may write"
            raise LogDirectoryUnusable(log_dir, why, fix) from error
        self._identify(log_dir)

    def _identify(self, log_dir: str) -> None:
        """Check that the directory is this node's, or make a new one so."""
        path = f"{log_dir}/{META_PROPERTIES}"
        meta = read_meta_properties(self._disk, path)
        if meta is None:
            directory_id = topic_id_text(TopicId(self._rng.random_bytes(16)))
            meta = MetaProperties(self._cluster_id, self._node_id, directory_id)
            write_meta_properties(self._disk, path, meta)
        found = (meta.cluster_id, meta.node_id)
        if found != (self._cluster_id, self._node_id):
            why = (
                f"belongs to node {meta.node_id} of cluster {meta.cluster_id}; "
                f"this is node {self._node_id} of cluster {self._cluster_id}"
            )
            raise LogDirectoryUnusable(log_dir, why, "point this node at its own directory")

    def _open_all(self, log_dir: str) -> None:
        disk = self._disk
        names = disk.list_directory(log_dir)
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and not disk.is_directory(f"{log_dir}/{name}"):
                disk.remove(f"{log_dir}/{name}")
        is_clean = CLEAN_SHUTDOWN in names
        if is_clean:
            # From the first write on it is no longer true.
            disk.remove(f"{log_dir}/{CLEAN_SHUTDOWN}")
            disk.sync_directory(log_dir)
        points = _Points(
            self._read_points(log_dir, RECOVERY_POINT_CHECKPOINT),
            self._read_points(log_dir, LOG_START_CHECKPOINT),
        )
        for name in names:
            if is_deleted_directory(name):
                self._deleted.append(f"{log_dir}/{name}")
                continue
            topic_partition = parse_partition_directory(name)
            if topic_partition is None or not disk.is_directory(f"{log_dir}/{name}"):
                continue
            if topic_partition in self.logs or topic_partition in self.offline:
                why = f"{topic_partition} is in another data directory, too"
                raise LogDirectoryUnusable(log_dir, why, "keep one of them")
            self._open(log_dir, topic_partition, points, is_clean=is_clean)

    def _open(
        self, log_dir: str, topic_partition: TopicPartition, points: "_Points", *, is_clean: bool
    ) -> None:
        try:
            self.logs[topic_partition] = open_log(
                self._disk,
                self._clock,
                f"{log_dir}/{topic_partition}",
                topic_partition,
                self._config_for(topic_partition.topic),
                recovery_point=points.recovery_points.get(topic_partition, 0),
                log_start_offset=points.log_start_offsets.get(topic_partition, 0),
                is_clean=is_clean,
            )
        except (OttlaError, OSError) as error:
            self.offline[topic_partition] = error
            self._offline_directories[topic_partition] = log_dir
            for file_name, offsets in (
                (RECOVERY_POINT_CHECKPOINT, points.recovery_points),
                (LOG_START_CHECKPOINT, points.log_start_offsets),
            ):
                if topic_partition in offsets:
                    kept = self._offline_points.setdefault(f"{log_dir}/{file_name}", {})
                    kept[topic_partition] = offsets[topic_partition]

    def _read_points(self, log_dir: str, file_name: str) -> dict[TopicPartition, int]:
        return read_offset_checkpoint(self._disk, f"{log_dir}/{file_name}") or {}

    # -- partitions ---------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log, or None when there is none here or it is offline."""
        return self.logs.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: TopicId) -> Log:
        """Return the partition's log, making it durably when it is not there. Blocks.

        A directory whose creation was cut short by a crash is completed. Raises KafkaError:
        INCONSISTENT_TOPIC_ID when the directory belongs to an older topic of that name (delete it
        first), KAFKA_STORAGE_ERROR when it is offline or the disk refused,
        INVALID_TOPIC_EXCEPTION for a name that cannot be a directory.
        """
        name = partition_directory(topic_partition)
        if topic_partition in self.offline:
            why = str(self.offline[topic_partition])
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        log = self.logs.get(topic_partition)
        if log is not None and log.topic_id == topic_id:
            return log
        if log is not None and log.topic_id is not None:
            why = f"{topic_partition} is of topic {topic_id_text(log.topic_id)} on disk"
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, why)
        try:
            if log is None:
                log = self._create_directory(topic_partition, name)
            write_partition_metadata(self._disk, f"{log.directory}/{PARTITION_METADATA}", topic_id)
            self._disk.sync_directory(dirname(log.directory))
        except (OSError, CorruptFile) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.topic_id = topic_id
        self.logs[topic_partition] = log
        return log

    def stand_in(self, topic_partition: TopicPartition, topic_id: TopicId) -> Log:
        """Return a failed log for one that ``create`` refused: it answers KAFKA_STORAGE_ERROR.

        It touches no file, and is not one of ``logs``.
        """
        log_dir = self._offline_directories.get(topic_partition, self._log_dirs[0])
        directory = f"{log_dir}/{topic_partition}"
        config, now_ms = self._config_for(topic_partition.topic), self._clock.wall_ms()
        interval = config.index_interval_bytes
        empty = Segment(
            self._disk, directory, 0, size_bytes=0, index_interval_bytes=interval, created_ms=now_ms
        )
        log = Log(
            disk=self._disk,
            clock=self._clock,
            directory=directory,
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            segments=[empty],
            leader_epochs=LeaderEpochs(),
            log_start_offset=0,
            log_end_offset=0,
            producers=Producers(
                self._disk, self._clock, directory, [], config.producer_id_expiration_ms
            ),
        )
        log.state = LogState.FAILED
        return log

    def _create_directory(self, topic_partition: TopicPartition, name: str) -> Log:
        directory = f"{self._emptiest_log_dir()}/{name}"
        if not self._disk.exists(directory):
            self._disk.make_directory(directory)
        return open_log(
            self._disk,
            self._clock,
            directory,
            topic_partition,
            self._config_for(topic_partition.topic),
            recovery_point=0,
            log_start_offset=0,
            is_clean=False,
        )

    def _emptiest_log_dir(self) -> str:
        counts = dict.fromkeys(self._log_dirs, 0)
        for log in self.logs.values():
            counts[dirname(log.directory)] += 1
        return min(counts, key=counts.__getitem__)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take the partition away durably; ``remove_deleted`` frees its space later. Blocks.

        Readers that hold a region of it can finish. Nothing happens when it is not here. Raises
        KafkaError KAFKA_STORAGE_ERROR.
        """
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return
        log.abandon()
        log_dir = dirname(log.directory)
        target = f"{log_dir}/{deleted_directory(topic_partition, self._rng.random_bytes(16))}"
        try:
            self._disk.rename(log.directory, target)
            self._disk.sync_directory(log_dir)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._deleted.append(target)

    def remove_deleted(self) -> None:
        """Free the space of deleted partitions. Blocks; the caller schedules it.

        What cannot be removed stays for the next call.
        """
        remaining = []
        for directory in self._deleted:
            try:
                for name in self._disk.list_directory(directory):
                    self._disk.remove(f"{directory}/{name}")
                self._disk.remove_directory(directory)
            except OSError:
                remaining.append(directory)
        self._deleted = remaining

    # -- checkpoints and stop -----------------------------------------------------------------

    def checkpoint_job(self) -> CheckpointJob:
        """Return the work that saves recovery points and log start offsets as they are now.

        Made on the loop, run in an executor: every 60 s and after rolls. What it writes may be
        behind when it is written, never ahead (rule 5).
        """
        files: dict[str, dict[TopicPartition, int]] = {}
        for log_dir in self._log_dirs:
            for file_name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT):
                path = f"{log_dir}/{file_name}"
                files[path] = dict(self._offline_points.get(path, {}))
        for topic_partition, log in self.logs.items():
            log_dir = dirname(log.directory)
            files[f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}"][topic_partition] = log.flushed_offset
            # After a crash the log may end where it was flushed: it must not start behind that.
            start_offset = min(log.log_start_offset, log.flushed_offset)
            if start_offset > 0:
                files[f"{log_dir}/{LOG_START_CHECKPOINT}"][topic_partition] = start_offset
        return CheckpointJob(self._disk, files)

    def stop(self) -> None:
        """Flush and close everything, say that the stop was clean, give the directories back.

        Blocks; no flush may be in flight. A directory in which something could not be made durable
        is left without the mark, so that the next start verifies it (rule 16).
        """
        unclean = set(self._offline_directories.values())
        for log in self.logs.values():
            try:
                failed = log.state is LogState.FAILED
                log.close()
            except KafkaError:
                failed = True
            if failed:
                unclean.add(dirname(log.directory))
        try:
            self.checkpoint_job().run()
            for log_dir in self._log_dirs:
                if log_dir not in unclean:
                    replace_file(self._disk, f"{log_dir}/{CLEAN_SHUTDOWN}", _CLEAN_SHUTDOWN_TEXT)
        except OSError:
            # Without the mark the next start is slower and right.
            with suppress(OSError):
                for log_dir in unclean:
                    self._disk.sync_directory(log_dir)
        finally:
            self.logs.clear()
            self._release()

    def _release(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def deleted_directories(self) -> list[str]:
        """Return the names of directories that ``remove_deleted`` would remove."""
        return [basename(directory) for directory in self._deleted]
