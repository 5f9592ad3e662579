"""Logs come and go: what is decided, and taken, on the loop around the work that blocks.

Owns where a new log is to be, and what stays on disk when a disk refuses. The work itself is a job
of log.making, for an executor: many partitions at a time, one job after the other. Belongs to the
log manager, and is its only way to make and to delete. Source: reliability rules 3, 14 and 21.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from posixpath import dirname
from typing import Protocol

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.log.config import LogConfig
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.making import (
    MakingJob,
    NewLog,
    OfAnotherTopic,
    Removal,
    RemovalJob,
    Renaming,
    Wanted,
    storage_error,
)
from ottla.log.directories.offline import Offline
from ottla.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoints
from ottla.log.files.layout import deleted_directory, partition_directory
from ottla.log.log import Log


class LogTable(Protocol):
    """What logs are made for: the table of those that are here, and of the directories."""

    checkpoints: OffsetCheckpoints
    directories: dict[str, LogDirectory]
    offline: Offline
    logs: dict[TopicPartition, Log]
    high_watermarks: dict[TopicPartition, int]
    deleted: list[str]

    @property
    def clock(self) -> Clock:
        """The clock that logs go by."""

    @property
    def disk(self) -> Disk:
        """The disk that the log directories are on."""

    def online(self) -> list[LogDirectory]:
        """Return the log directories that serve."""

    def away(self) -> list[str]:
        """Return the log directories in which partitions may be that are not found, for people."""

    def put(self, log: Log) -> None:
        """Take a log for its partition's."""

    def refused(self, log_dir: str, error: OSError) -> None:
        """Take note of what the disk of ``log_dir`` has refused."""

    def checkpointed(self, job: CheckpointJob) -> None:
        """Take the outcome of a checkpoint that ran."""


class LogMaker:
    """Makes and deletes the logs of a table."""

    def __init__(
        self,
        table: LogTable,
        rng: Rng,
        config_for: Callable[[str], LogConfig],
        *,
        threads: int,
    ) -> None:
        self._table = table
        self._rng = rng
        self._config_for = config_for
        self._threads = threads
        self._left: dict[TopicPartition, dict[str, TopicId | None]] = {}
        """Those that may have a directory although there is no log of theirs here: in which log
        directories it could not be renamed (yet), or its making failed. Use: a topic, by its id,
        that was begun in one is not begun in another; None: it is a deleted one's, which a start
        tells from others by its id."""
        self._deleted_unopened: dict[TopicPartition, set[TopicId]] = {}
        """Topics that were deleted while a partition of theirs was offline."""

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, *, is_new: bool = True
    ) -> Log:
        """Make one log, and return it. Blocks; the loop uses ``making_job``.

        Raises KafkaError: INCONSISTENT_TOPIC_ID when the directory belongs to an older topic of
        that name (delete it first), KAFKA_STORAGE_ERROR when it is offline or the disk refused,
        INVALID_TOPIC_EXCEPTION for a name that cannot be a directory.
        """
        job = self.making_job([Wanted(topic_partition, topic_id, is_new)])
        job.run()
        outcome = self.made(job)[topic_partition]
        if isinstance(outcome, Log):
            return outcome
        raise outcome

    def making_job(self, wanted: Iterable[Wanted]) -> MakingJob:
        """Return the work that makes logs durably where they are not there. On the loop.

        A directory whose creation was cut short by a crash is completed. It is to be run, once and
        before another one is made, and handed to ``made``.
        """
        job = MakingJob(
            self._table.disk,
            self._table.clock,
            self._table.checkpoints,
            threads=self._threads,
        )
        added: Counter[str] = Counter()
        configs: dict[str, LogConfig] = {}
        for one in wanted:
            topic = one.where.topic
            if topic not in configs:
                configs[topic] = self._config_for(topic)
            try:
                planned = self._plan(one, configs[topic], added)
            except KafkaError as error:
                job.outcomes[one.where] = error
                continue
            if isinstance(planned, Log):
                job.outcomes[one.where] = planned
            else:
                job.new.append(planned)
        return job

    def _plan(self, wanted: Wanted, config: LogConfig, added: Counter[str]) -> Log | NewLog:
        """Decide where a log is to be; it itself when it is there. Raises KafkaError."""
        where, topic_id, is_new = wanted
        name = partition_directory(where)
        if where in self._table.offline:
            kept = self._table.offline.reopening(where)
            if kept is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._table.offline[where]))
            return NewLog(where, topic_id, f"{kept.log_dir}/{name}", config, kept=kept)
        log = self._table.logs.get(where)
        if log is not None and log.topic_id is not None:
            if log.topic_id == topic_id:
                return log
            why = f"{where} is of topic {topic_id_text(log.topic_id)} on disk"
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, why)
        # What a refused making of a former topic of this name has left says nothing.
        if not is_new and (log is None or log.is_bare):
            away = self._table.away()
            if away:
                why = f"it is not in the log directories that work; {', '.join(away)}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        if log is not None:
            return NewLog(where, topic_id, log.directory, config, log)
        for begun_in, begun_id in self._left.get(where, {}).items():
            if begun_id == topic_id and not self._table.directories[begun_in].is_online:
                # Made elsewhere, it would be in two directories after a restart, and so in none.
                why = f"it was begun in {begun_in}, which is offline until a restart"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        log_dir = self._emptiest_log_dir(added)
        added[log_dir] += 1
        leftovers = self._leftovers(where)
        return NewLog(where, topic_id, f"{log_dir}/{name}", config, leftovers=leftovers)

    def _leftovers(self, where: TopicPartition) -> list[Renaming]:
        """Return what is to lose the name of ``where``, which has no log, in the directories."""
        name = partition_directory(where)
        return [
            Renaming(f"{log_dir}/{name}", f"{log_dir}/{self._deleted_name(where)}")
            for log_dir in sorted(self._left.get(where, ()))
            if self._table.directories[log_dir].is_online
        ]

    def _deleted_name(self, where: TopicPartition) -> str:
        return deleted_directory(where, self._rng.random_bytes(16))

    def may_have_left(self, topic: str) -> bool:
        """Tell whether a directory of ``topic`` without a log may still bear its name."""
        return any(where.topic == topic for where in self._left)

    def deleted_unopened(self, where: TopicPartition, topic_id: TopicId) -> None:
        """Take note that a topic was deleted, whose partition may be one that is not open.

        Its directory keeps the name until it can be opened, which tells whose it is. Then it is
        out of the way: who makes the partition after that makes it anew.
        """
        if where in self._table.offline:
            self._deleted_unopened.setdefault(where, set()).add(topic_id)

    def _was_deleted(self, where: TopicPartition, topic_id: TopicId) -> bool:
        return topic_id in self._deleted_unopened.get(where, ())

    def _leave(self, where: TopicPartition, log_dir: str, begun: TopicId | None = None) -> None:
        self._left.setdefault(where, {})[log_dir] = begun

    def _nothing_left(self, where: TopicPartition) -> None:
        """Note that no directory bears the name any more, but for those that are offline."""
        left = self._left.pop(where, {})
        offline = {
            path: topic_id
            for path, topic_id in left.items()
            if not self._table.directories[path].is_online
        }
        if offline:
            self._left[where] = offline

    def made(self, job: MakingJob) -> dict[TopicPartition, Log | KafkaError]:
        """Take the logs of a job that ran; return each one's, or why there is none. On the loop."""
        if job.forgotten is not None:
            self._table.checkpointed(job.forgotten)
        self._table.deleted.extend(job.cleared)
        made: dict[TopicPartition, Log | KafkaError] = {}
        for new in job.new:
            where, outcome = new.where, job.outcomes.pop(new.where)
            if isinstance(outcome, Log):
                made[where] = self._take(new, outcome)
                continue
            log_dir = dirname(new.directory)
            if isinstance(outcome, OSError):
                self._table.refused(log_dir, outcome)
            if new.kept is None:
                self._leave(where, log_dir, new.topic_id)
            elif isinstance(outcome, OfAnotherTopic) and self._was_deleted(where, outcome.topic_id):
                self._table.offline.end(where)
                del self._deleted_unopened[where]
                self._leave(where, log_dir)
            elif isinstance(outcome, OttlaError | OSError):
                self._table.offline[where] = outcome
            made[where] = storage_error(outcome)
        for where, outcome in job.outcomes.items():
            made[where] = outcome if isinstance(outcome, Log) else storage_error(outcome)
        return made

    def _take(self, new: NewLog, log: Log) -> Log | KafkaError:
        directory = self._table.directories[dirname(new.directory)]
        if not directory.is_online:  # Its disk has failed since: nobody may write there.
            if new.kept is None:
                self._leave(new.where, directory.path, new.topic_id)
            if new.found is None:
                log.abandon()
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline")
        log.topic_id = new.topic_id
        if new.kept is not None:
            self._table.offline.end(new.where)
            self._table.high_watermarks[new.where] = new.kept.high_watermark
        elif new.found is None:
            self._table.high_watermarks.pop(new.where, None)
        self._nothing_left(new.where)
        self._table.put(log)
        return log

    def _emptiest_log_dir(self, added: Mapping[str, int]) -> str:
        """Return the directory with the fewest logs, those counted that are ``added`` to it."""
        online = self._table.online()
        roomy = [directory for directory in online if not directory.is_full] or online
        if not roomy:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        return min(roomy, key=lambda one: one.log_count + added.get(one.path, 0)).path

    def delete(self, names: Iterable[TopicPartition]) -> None:
        """Take partitions away. Blocks; the loop uses ``removal_job``.

        Raises KafkaError KAFKA_STORAGE_ERROR for the first one whose directory keeps its name.
        """
        job = self.removal_job(names)
        job.run()
        for error in self.removed(job).values():
            raise error

    def removal_job(self, names: Iterable[TopicPartition]) -> RemovalJob:
        """Return the work that takes partitions away durably. On the loop.

        From now on they are not here. Readers that hold a region can finish; ``remove_deleted``
        frees the space later. Of those that are not here goes what a refused call has left. To be
        run and handed to ``removed``.
        """
        job = RemovalJob(self._table.disk)
        for name in names:
            job.removals += [Removal(name, left, None) for left in self._leftovers(name)]
            log = self._table.logs.pop(name, None)
            if log is None:
                continue
            log.abandon()
            log_dir = dirname(log.directory)
            self._leave(name, log_dir)
            self._table.directories[log_dir].log_count -= 1
            if self._table.directories[log_dir].is_online:
                target = f"{log_dir}/{self._deleted_name(name)}"
                job.removals.append(Removal(name, Renaming(log.directory, target), log))
            else:
                why = f"{log.directory}: its log directory is offline"
                job.faults[name] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        return job

    def removed(self, job: RemovalJob) -> dict[TopicPartition, KafkaError]:
        """Take the outcome of a job that ran; return what stays under its name, and why."""
        for where, (_, target), _ in job.removals:
            fault = job.faults.get(where)
            if fault is None:
                self._nothing_left(where)
            elif isinstance(fault, OSError):
                self._table.refused(dirname(target), fault)
        self._table.deleted.extend(job.renamed)
        return {name: storage_error(fault) for name, fault in job.faults.items()}
