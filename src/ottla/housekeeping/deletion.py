"""Deletion of old records, by retention and by request, with the disk calls that both need.

Decides and renames on the loop, a few files a turn; syncs, checkpoints and removals run in the
executor. The order is reliability rule 14's: hide what goes, make the log start offset durable,
only then rename, sync the directory, and remove after ``file.delete.delay.ms``. A crash in between
is finished by the next start. Between the replica manager and log.front. Source: Kafka's
LogManager.cleanupLogs, ReplicaManager.deleteRecords.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from posixpath import dirname
from typing import NamedTuple

from ottla.deadlines import Deadlines
from ottla.env.clock import Clock
from ottla.env.executor import Executor, run
from ottla.errors import ErrorCode, KafkaError
from ottla.housekeeping.in_progress import InProgress
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.offset_checkpoints import HighWatermarkOf
from ottla.log.files.faults import sync_directory
from ottla.log.files.tenancy import TenancyOver
from ottla.log.health import LogState
from ottla.log.log import Log
from ottla.log.upkeep.front import (
    drop_segments_below,
    end_below,
    expired_to,
    has_segments_below,
    is_told_durably,
    raise_start_offset,
)
from ottla.pending import Pending, outcome_of, pending_of
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 8
"""Logs looked at before the loop gets its turn: each costs microseconds. One of whose segments an
index has to be read, or which is rolled, has turns of its own."""
SEGMENTS_PER_TURN = 16
"""Segments renamed before the loop gets its turn: some tens of microseconds each."""


class Checkpoints:
    """Writes the log manager's checkpoints, one job at a time: whoever waits shares the next."""

    def __init__(self, log_manager: LogManager, executor: Executor) -> None:
        self._log_manager = log_manager
        self._executor = executor
        self._waiting: list[asyncio.Future[Mapping[str, OSError]]] = []
        self._is_writing = False

    async def save(self) -> Mapping[str, OSError]:
        """Return when what holds now is durable; but for the log directories in the result."""
        waiter: asyncio.Future[Mapping[str, OSError]]
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if not self._is_writing:
            self._write()
        return await waiter

    def _write(self) -> None:
        waiters, self._waiting = self._waiting, []
        self._is_writing = True
        job = self._log_manager.checkpoint_job()

        def done(_: None, error: BaseException | None) -> None:
            self._is_writing = False
            self._log_manager.checkpointed(job)
            for waiter in waiters:
                if waiter.cancelled():
                    continue
                if error is None:
                    waiter.set_result(job.failures)
                else:
                    waiter.set_exception(error)
            if self._waiting:
                self._write()

        self._executor.submit(job.run, done)


class _Front(NamedTuple):
    """A log and the start offset that its files are to follow once it is durable."""

    partition: Partition
    log: Log
    start_offset: int


@contextmanager
def _reported(partition: Partition) -> Iterator[None]:
    """Log what keeps the retention of one partition: the others go on."""
    try:
        yield
    except (KafkaError, OSError) as error:
        if partition.log.state is not LogState.CLOSED:  # A deleted topic's log is not a fault.
            logger.error("retention of %s: %s", partition.topic_partition, error)  # noqa: TRY400


class Deletion:
    """Takes old records of this node's partitions away."""

    def __init__(
        self,
        log_manager: LogManager,
        *,
        clock: Clock,
        executor: Executor,
        partitions: Callable[[], Iterable[Partition]],
        leader_of: Callable[[TopicPartition], Partition],
        high_watermark_of: HighWatermarkOf,
        tell_producers: Callable[[Log, int], Awaitable[int | None]],
    ) -> None:
        """``leader_of``: see ``ReplicaManager.leader_of``.

        ``tell_producers``: see ``SnapshotSweep.tell_below``.
        """
        self._log_manager = log_manager
        self._disk = log_manager.disk
        self._clock = clock
        self._executor = executor
        self._partitions = partitions
        self._leader_of = leader_of
        self._high_watermark_of = high_watermark_of
        self._tell_producers = tell_producers
        self._checkpoints = Checkpoints(log_manager, executor)
        self._removals = Deadlines(clock, name="removals of old segments")
        self._in_progress = InProgress()

    async def checkpoint(self) -> None:
        """Save recovery points and log start offsets as they are now."""
        with self._in_progress.one_more():
            for log_dir, error in (await self._checkpoints.save()).items():
                logger.error("the checkpoints of %s stay as they were: %s", log_dir, error)

    async def checkpoint_high_watermarks(self) -> None:
        """Save the high watermarks that have changed."""
        with self._in_progress.one_more():
            job = self._log_manager.high_watermark_job(self._high_watermark_of)
            await run(self._executor, job.run)
            self._log_manager.checkpointed(job)

    def delete_records(
        self, wanted: Sequence[tuple[TopicPartition, int]]
    ) -> Pending[list[int | KafkaError]]:
        """Raise log start offsets; done when that is durable. One low watermark or error each.

        An offset is exclusive; -1 stands for the high watermark. Whole segments below it go too.
        """
        outcomes: list[int | KafkaError] = []
        found: list[tuple[Partition, int]] = []
        for where, offset in wanted:
            try:
                found.append((self._leader_of(where), offset))
                outcomes.append(offset)
            except KafkaError as error:
                outcomes.append(error.as_value())  # Which would hold the list itself.

        def merge(deleted: list[int | KafkaError]) -> list[int | KafkaError]:
            results = iter(deleted)
            return [one if isinstance(one, KafkaError) else next(results) for one in outcomes]

        return pending_of(self._delete_records(found)).then(merge)

    async def _delete_records(
        self, wanted: Sequence[tuple[Partition, int]]
    ) -> list[int | KafkaError]:
        """Return each low watermark, in order, when the log start offsets are durable."""
        with self._in_progress.one_more():
            outcomes = []
            for ordinal, (partition, offset) in enumerate(wanted):
                if ordinal % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                    await asyncio.sleep(0)
                outcomes.append(await self._hide(partition, offset))
            failures = await self._checkpoints.save()
            for ordinal, (partition, _) in enumerate(wanted):
                log_dir = dirname(partition.log.directory)
                if log_dir in failures and isinstance(outcomes[ordinal], int):
                    why = str(failures[log_dir])
                    outcomes[ordinal] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
                elif partition.log.state is LogState.FAILED and isinstance(outcomes[ordinal], int):
                    # Its directory went offline before this checkpoint was begun: it left it out.
                    why = f"{partition.topic_partition}: its log directory is offline"
                    outcomes[ordinal] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
            await self._drop(
                [
                    _Front(partition, partition.log, start_offset)
                    for (partition, _), start_offset in zip(wanted, outcomes, strict=True)
                    if isinstance(start_offset, int)
                ]
            )
            return [
                found if isinstance(found, KafkaError) else partition.low_watermark
                for (partition, _), found in zip(wanted, outcomes, strict=True)
            ]

    async def _hide(self, partition: Partition, offset: int) -> int | KafkaError:
        try:
            while partition.is_held:
                await outcome_of(partition.released())
            start_offset = partition.delete_records(offset)
            await partition.flush_to(start_offset)
        except KafkaError as error:
            return error.as_value()
        return start_offset

    async def delete_old_segments(self) -> None:
        """Apply every partition's retention once."""
        with self._in_progress.one_more():
            fronts: list[_Front] = []
            rolled: list[tuple[Partition, LogConfig, int]] = []
            for ordinal, partition in enumerate(list(self._partitions())):
                if ordinal % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                    await asyncio.sleep(0)
                with _reported(partition):
                    end_offset = await self._expired_to(partition)
                    log = partition.log
                    if end_offset <= log.segments.active.base_offset:
                        self._hide_below(partition, end_offset, fronts)
                        continue
                    log.roll()
                    rolled.append((partition, log.config, end_offset))
                    partition.flush()
                    await asyncio.sleep(0)
            await self._take_away(fronts)
            fronts = []
            for partition, config, end_offset in rolled:  # Their flushes go on side by side.
                with _reported(partition):
                    await partition.settle_to(end_offset)
                    if partition.log.config is config:
                        self._hide_below(partition, end_offset, fronts)
            await self._take_away(fronts)

    async def _expired_to(self, partition: Partition) -> int:
        """Return the end of what is to go, exclusive; 0: nothing. A cold segment a turn."""
        log = partition.log
        if partition.is_failed or log.is_swapping:
            return 0
        looking = expired_to(log, partition.high_watermark, self._clock.wall_ms())
        while True:
            try:
                next(looking)
            except StopIteration as end:
                end_offset: int = end.value
                return end_offset
            await asyncio.sleep(0)

    def _hide_below(self, partition: Partition, offset: int, fronts: list[_Front]) -> None:
        """Raise the log start offset to ``offset``; add to ``fronts`` what can go.

        Not while segments are being swapped, or the partition is held: the next retention does it.
        """
        log = partition.log
        if partition.is_failed or log.is_swapping:
            return
        raise_start_offset(log, offset)
        if has_segments_below(log, log.log_start_offset):
            fronts.append(_Front(partition, log, log.log_start_offset))

    async def _take_away(self, fronts: Sequence[_Front]) -> None:
        """Take whole segments away, once the log start offsets are durable."""
        if fronts:
            failures = await self._checkpoints.save()
            for log_dir, error in failures.items():
                logger.error("old segments in %s stay: %s", log_dir, error)
            await self._drop(front for front in fronts if front.log.log_dir not in failures)

    async def _drop(self, fronts: Iterable[_Front]) -> None:
        """Take whole segments away. What fails is tried again by the next retention."""
        for front in fronts:
            _, log, start_offset = front
            try:
                await self._tell_below(front)
                while log.is_in_service and has_segments_below(log, start_offset):
                    paths = drop_segments_below(log, self._disk, start_offset, SEGMENTS_PER_TURN)
                    if not paths:
                        break  # They may be all that tells of a producer.
                    # That they go is durable already: the checkpoint says where the log starts.
                    self._remove_later(log, paths)
                    sync = partial(sync_directory, self._disk, log.directory)
                    await run(self._executor, log.tenancy.job(sync), place=log.log_dir)
            except TenancyOver:
                continue  # Its topic was deleted meanwhile, or it was moved.
            except (KafkaError, OSError) as error:
                if isinstance(error, OSError):
                    log.report(error)
                if log.state is not LogState.CLOSED:  # Else its topic was deleted meanwhile.
                    logger.error(  # noqa: TRY400 - the values are in it
                        "segments of %s stay on disk: %s", log.topic_partition, error
                    )

    async def _tell_below(self, front: _Front) -> None:
        """Have known of producers, durably, what is only in segments that are to go.

        Raises KafkaError.
        """
        partition, log, start_offset = front
        if not log.is_in_service or not has_segments_below(log, start_offset):
            return
        end_offset = end_below(log, start_offset)
        if is_told_durably(log, end_offset):
            return
        flush_to = await self._tell_producers(log, end_offset)
        if flush_to is not None and partition.log is log and log.is_in_service:
            await partition.flush_to(min(flush_to, log.log_end_offset))

    def _remove_later(self, log: Log, paths: Sequence[str]) -> None:
        tenancy, place = log.tenancy, log.log_dir

        def work() -> None:
            for path in paths:
                self._disk.remove(path)

        def done(_: None, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, TenancyOver):
                logger.error("the next start removes what is left of %s: %s", paths[0], error)

        def start() -> None:
            self._executor.submit(tenancy.job(work), done, place=place)

        self._removals.schedule(object(), log.config.file_delete_delay_ms, start)

    async def settle(self) -> None:
        """Wait for what is under way; what waits for its removal is removed by the next start."""
        await self._in_progress.settle()
        self._removals.close()
