"""Compaction of this node's partitions: the dirtiest log first, one at a time, beside all else.

Decides on the loop what is cleaned (log.compaction), has the work done in the executor in slices of
a few milliseconds (log.cleaner), waits between them as ``log.cleaner.io.max.bytes.per.second``
asks, and swaps in what was cleaned (log.swap). Between any two slices the log may be deleted, fail,
lose its front or change its settings: it is looked at anew each time. Owns the checkpoint of how
far each log is clean, ``cleaner-offset-checkpoint`` in each log directory: lost, it costs time
only. Scheduled by the broker every ``log.cleaner.backoff.ms``. Source: Kafka's LogCleaner.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from posixpath import dirname
from typing import NamedTuple

from ottla.env.clock import Clock, Timer
from ottla.env.disk import Disk
from ottla.env.executor import Executor, run
from ottla.env.rng import Rng
from ottla.errors import KafkaError
from ottla.housekeeping.in_progress import InProgress
from ottla.ids import INT64_MAX, TopicId, TopicPartition
from ottla.log.aborted import aborted_below
from ottla.log.config import LogConfig
from ottla.log.contents.rolling import time_of_first_batch
from ottla.log.directories.offset_checkpoints import OffsetCheckpoints
from ottla.log.files.layout import CLEANER_CHECKPOINT
from ottla.log.files.tenancy import Tenancy, TenancyOver
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.upkeep.cleaned_segment import Replacement
from ottla.log.upkeep.cleaner import Cleaning, CleanPlan
from ottla.log.upkeep.compaction import (
    Cleanable,
    LogBounds,
    SegmentFacts,
    Source,
    cleanable_part,
    first_dirty_offset,
)
from ottla.log.upkeep.offset_map import OffsetMap
from ottla.log.upkeep.swap import Swap, can_replace
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 32
"""Logs looked at before the loop gets its turn."""
SEGMENTS_PER_TURN = 4_000
"""Segments of such logs: each costs a microsecond or two. One that has to be opened has a turn of
its own."""


class CleanerSettings(NamedTuple):
    """The broker's ``log.cleaner.`` options, as they are in force."""

    is_enabled: bool = True
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    io_bytes_per_second_max: float = float("inf")
    backoff_ms: int = 15_000


class LogCleaner:
    """Cleans the compacted partitions of this node."""

    def __init__(
        self,
        *,
        disk: Disk,
        checkpoints: OffsetCheckpoints,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        partitions: Callable[[], Iterable[Partition]],
        settings: Callable[[], CleanerSettings],
        save_recovery_points: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        """``save_recovery_points`` makes the recovery points durable, as they are at the call."""
        self._disk = disk
        self._checkpoints = checkpoints
        self._clock = clock
        self._rng = rng
        self._executor = executor
        self._partitions = partitions
        self._settings = settings
        self._save_recovery_points = save_recovery_points
        self._cleaned_to: dict[TopicPartition, tuple[Partition, int]] = {}
        """How far each log is clean, exclusive. One that goes and comes back is another partition,
        and nothing is known of it."""
        self._checkpoints_read: set[str] = set()
        """Log directories whose checkpoint is in ``_cleaned_to``."""
        self._uncleanable: dict[TopicPartition, TopicId] = {}
        """Logs that could not be cleaned: not tried again before a restart, as in Kafka."""
        self._retired: list[tuple[float, Tenancy, list[str]]] = []
        """Replaced files, whose they were, and from when on they go, in monotonic seconds."""
        self._is_stopping = False
        self._wait: tuple[asyncio.Future[None], Timer] | None = None
        """A pause under way: at most one."""
        self._in_progress = InProgress()

    async def clean(self) -> None:
        """Clean the dirtiest log that is due, then the next, until none is or the disk refuses.

        Returns at once while an earlier call is under way: two cleanings write the same files.
        """
        if self._in_progress.is_any:
            return
        with self._in_progress.one_more():
            await self._remove_retired()
            if not self._settings().is_enabled:
                return
            self._take_checkpoints()
            while (chosen := await self._choose()) is not None:
                if not await self._clean(*chosen):
                    break

    async def settle(self) -> None:
        """Begin nothing any more and wait for the slice under way. For a stop.

        What is half done is dropped or finished by the next start.
        """
        self._is_stopping = True
        if self._wait is not None:
            waiter, timer = self._wait
            timer.cancel()
            waiter.set_result(None)
            self._wait = None
        await self._in_progress.settle()

    # -- what next ----------------------------------------------------------------------------

    async def _choose(self) -> tuple[Partition, Cleanable] | None:
        """Return the dirtiest log that is due, or None."""
        best: tuple[Partition, Cleanable] | None = None
        segments_looked_at = 0
        for ordinal, partition in enumerate(list(self._partitions())):
            if (
                ordinal % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1
                or segments_looked_at >= SEGMENTS_PER_TURN
            ):
                await asyncio.sleep(0)
                segments_looked_at = 0
            if self._is_stopping:
                return None
            if not self._is_cleanable(partition):
                continue
            segments_looked_at += partition.log.segment_count
            try:
                if not await self._learn_times(partition):
                    continue
                part = self._part_of(partition)
            except (KafkaError, OSError) as error:
                self._give_up(partition, error)
                continue
            is_due = part.is_due(partition.log.config.min_cleanable_dirty_ratio)
            if is_due and (best is None or part.ratio > best[1].ratio):
                best = partition, part
        return best

    async def _learn_times(self, partition: Partition) -> bool:
        """Have in memory what ``_part_of`` asks of the dirty segments: a cold one takes a turn.

        Returns whether all of it is: meanwhile the options, the checkpoint or the log may change.
        """
        log, cold = partition.log, self._cold_segments(partition)
        for segment in cold:
            await asyncio.sleep(0)
            if self._is_stopping or partition.log is not log or not self._is_cleanable(partition):
                return False
            if log.segments.holding(segment.base_offset) is segment:  # Else retention took it.
                if _asks_newest(log.config):
                    segment.largest_timestamp()
                if _asks_first(log.config):
                    _time_of_first_batch(segment)
        return not (cold and self._cold_segments(partition))

    def _cold_segments(self, partition: Partition) -> list[Segment]:
        """Return the dirty segments that the disk has to be asked for what ``_part_of`` asks."""
        log = partition.log
        asks_newest, asks_first = _asks_newest(log.config), _asks_first(log.config)
        if not (asks_newest or asks_first):
            return []
        cleaned_to = self._cleaned_to_of(partition)
        dirty_from = first_dirty_offset(log.log_start_offset, log.log_end_offset, cleaned_to)
        return [
            segment
            for segment in log.segments.reaching(dirty_from)[:-1]
            if (asks_newest and segment.latest is None)
            or (asks_first and segment.first_timestamp is None)
        ]

    def _cleaned_to_of(self, partition: Partition) -> int | None:
        where = partition.topic_partition
        known = self._cleaned_to.get(where)
        if known is None or known[0] is not partition:
            return None
        path = f"{dirname(partition.log.directory)}/{CLEANER_CHECKPOINT}"
        # There it is lowered when the log is cut back.
        offset = min(known[1], (self._checkpoints.says(path) or {}).get(where, known[1]))
        self._cleaned_to[where] = partition, offset
        return offset

    def _is_cleanable(self, partition: Partition) -> bool:
        where, log = partition.topic_partition, partition.log
        return (
            log.config.is_compacted
            and log.is_in_service
            and not log.is_swapping
            and log.segment_count > 1
            # What lies below the start goes first. No start has looked into it: it may hold what a
            # refused write left, or a transaction whose marker only compaction would take.
            and not log.segments.has_full_below(log.log_start_offset)
            and self._uncleanable.get(where) != partition.topic_id
        )

    def _part_of(self, partition: Partition) -> Cleanable:
        log = partition.log
        return cleanable_part(
            [
                SegmentFacts(
                    segment.base_offset,
                    segment.size_bytes,
                    lambda segment=segment: segment.largest_timestamp().timestamp,  # type: ignore[misc]
                    partial(_time_of_first_batch, segment),
                )
                for segment in log.segments
            ],
            LogBounds(
                log.log_start_offset,
                log.log_end_offset,
                min(partition.last_stable_offset, log.settled_offset),
            ),
            log.config,
            cleaned_to=self._cleaned_to_of(partition),
            now_ms=self._clock.wall_ms(),
        )

    def _give_up(self, partition: Partition, error: Exception) -> None:
        logger.error("%s is not compacted any more: %s", partition.topic_partition, error)
        self._uncleanable[partition.topic_partition] = partition.topic_id

    # -- one log ------------------------------------------------------------------------------

    async def _clean(self, partition: Partition, part: Cleanable) -> bool:
        """Clean one log; False when the disk refused: there is no sense in going on just now."""
        settings, log = self._settings(), partition.log
        offset_map = OffsetMap(
            self._rng,
            buffer_bytes=settings.dedupe_buffer_bytes,
            load_factor=settings.load_factor,
            keys_max=part.first_uncleanable_offset - part.first_dirty_offset,
        )
        plan = await self._plan_if_read(partition, part)
        if plan is None:
            return False
        cleaning = Cleaning(self._disk, plan, offset_map, settings.io_buffer_bytes)
        begun = self._clock.monotonic()
        try:
            # A start must not take the gaps that this makes for corruption.
            await self._save_recovery_points()
            is_done = await self._run(partition, cleaning)
            if is_done and partition.log is log:  # Else it was cut, or moved, just now.
                await self._note(partition, cleaning.end_offset)
        except KafkaError as error:
            if log.is_in_service:
                self._give_up(partition, error)
            return True
        except TenancyOver:
            return True  # Its topic was deleted meanwhile, or it was moved.
        except FileNotFoundError as error:
            # Retention took the segment before it was read.
            logger.info("compaction of %s begins anew: %s", partition.topic_partition, error)
            return False
        except OSError as error:
            if log.is_in_service:
                logger.error("compaction of %s: %s", partition.topic_partition, error)  # noqa: TRY400
                log.report(error)
            return False
        finally:
            await run(self._executor, partial(cleaning.abort, log.tenancy))
        if is_done:
            logger.info(
                "compacted %s up to offset %d in %.1f s: %d bytes read, %d written, %d keys",
                partition.topic_partition,
                cleaning.end_offset,
                self._clock.monotonic() - begun,
                cleaning.read_bytes,
                cleaning.written_bytes,
                offset_map.key_count,
            )
        return is_done

    async def _plan_if_read(self, partition: Partition, part: Cleanable) -> CleanPlan | None:
        """Return what to clean; None: the disk refused, or deletion or retention was here."""
        if not self._is_cleanable(partition):
            return None
        try:
            return await self._plan(partition, part)
        except (TenancyOver, FileNotFoundError):
            return None  # The next call looks anew.
        except OSError as error:
            partition.log.report(error)
            return None

    async def _plan(self, partition: Partition, part: Cleanable) -> CleanPlan:
        """Return what to clean. Raises OSError, TenancyOver."""
        log = partition.log
        last_records = log.producers.last_records(part.first_uncleanable_offset)
        plan = CleanPlan(
            directory=log.directory,
            sources=[
                Source(segment.base_offset, end_offset, segment.size_bytes)
                for segment, end_offset in log.segments.with_ends(log.log_end_offset)
                if segment.base_offset < part.first_uncleanable_offset
            ],
            first_dirty_offset=part.first_dirty_offset,
            first_uncleanable_offset=part.first_uncleanable_offset,
            last_data_offsets=last_records.data_offsets,
            marker_epochs=last_records.marker_epochs,
            aborted=(),
            config=log.config,
            now_ms=self._clock.wall_ms(),
        )
        read = aborted_below(log, part.first_uncleanable_offset)
        return plan._replace(aborted=await run(self._executor, log.tenancy.job(read)))

    async def _run(self, partition: Partition, cleaning: Cleaning) -> bool:
        """Do the slices of a cleaning; False when it ended early. Raises KafkaError, OSError."""
        log = partition.log
        slices = cleaning.slices()
        while self._may_go_on(log):
            begun = self._clock.monotonic()
            step = await run(self._executor, log.tenancy.job(partial(next, slices, None)))
            if step is None:
                return True
            if isinstance(step, Replacement):
                if not await self._swap(log, step):
                    return False
            else:
                await self._throttle(begun, step)
        return False

    def _may_go_on(self, log: Log) -> bool:
        return (
            not self._is_stopping
            and log.is_in_service
            and log.config.is_compacted
            and self._settings().is_enabled
        )

    async def _throttle(self, begun: float, moved_bytes: int) -> None:
        rate = max(self._settings().io_bytes_per_second_max, 1.0)
        wait_seconds = begun + moved_bytes / rate - self._clock.monotonic()
        if wait_seconds > 0:
            await self._pause(wait_seconds)

    async def _pause(self, seconds: float) -> None:
        """Return after so long, or when a stop begins."""
        if self._is_stopping:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            self._wait = None
            waiter.set_result(None)

        self._wait = waiter, self._clock.call_later(seconds, end)
        await waiter

    async def _swap(self, log: Log, new: Replacement) -> bool:
        """Put a cleaned segment in its place; False when that is not possible any more."""
        swap = Swap(self._disk, new)
        if not can_replace(log, new):
            await run(self._executor, log.tenancy.job(swap.withdraw))
            return False
        log.is_swapping = True
        if not await self._persist(log, swap.commit):
            return False
        swap.put_in_place(log, self._clock.wall_ms())
        if not await self._persist(log, swap.rename_all):
            return False
        swap.finish(log)
        due = self._clock.monotonic() + log.config.file_delete_delay_ms / 1000
        self._retired.append((due, log.tenancy, swap.deleted))
        return True

    async def _persist(self, log: Log, step: Callable[[], None]) -> bool:
        """Do a step of a swap, again and again if the disk refuses; False when the log is gone.

        What was begun must be finished: a swap that comes back with the next start, after the
        log went on without it, would bring back old records.
        """
        while log.is_in_service:
            try:
                await run(self._executor, log.tenancy.job(step))
            except OSError as error:
                if self._is_stopping:
                    return False
                where = log.topic_partition
                logger.error("swapping segments of %s, to be tried again: %s", where, error)  # noqa: TRY400
                log.report(error)
                await self._pause(max(self._settings().backoff_ms, 1) / 1000)
            else:
                break
        return log.is_in_service

    # -- files --------------------------------------------------------------------------------

    async def _remove_retired(self) -> None:
        now = self._clock.monotonic()
        due = [one for one in self._retired if one[0] <= now]
        self._retired = [one for one in self._retired if one[0] > now]

        def remove() -> None:
            for _, tenancy, paths in due:
                with suppress(TenancyOver), tenancy.inside():
                    for path in paths:
                        with suppress(OSError):  # The next start removes what is left.
                            self._disk.remove(path)

        if due:
            await run(self._executor, remove)

    def _take_checkpoints(self) -> None:
        """Learn how far logs are clean, of directories that were not looked at yet.

        Forget those that are not hosted any more.
        """
        hosted = {partition.topic_partition: partition for partition in self._partitions()}
        self._cleaned_to = {
            where: known
            for where, known in self._cleaned_to.items()
            if hosted.get(where) is known[0]
        }
        self._uncleanable = {
            where: topic_id for where, topic_id in self._uncleanable.items() if where in hosted
        }
        log_dirs = {dirname(partition.log.directory) for partition in hosted.values()}
        for log_dir in log_dirs - self._checkpoints_read:
            found = self._checkpoints.says(f"{log_dir}/{CLEANER_CHECKPOINT}") or {}
            for where, offset in found.items():
                partition = hosted.get(where)
                if partition is not None and dirname(partition.log.directory) == log_dir:
                    self._cleaned_to[where] = partition, offset
            self._checkpoints_read.add(log_dir)

    async def _note(self, partition: Partition, end_offset: int) -> None:
        """Remember durably how far a log is clean. Raises OSError."""
        self._cleaned_to[partition.topic_partition] = partition, end_offset
        log_dir = dirname(partition.log.directory)
        offsets: dict[TopicPartition, int] = {}
        for other in self._partitions():
            if dirname(other.log.directory) != log_dir:
                continue
            known = end_offset if other is partition else self._cleaned_to_of(other)
            if known is not None:
                offsets[other.topic_partition] = known
        path = f"{log_dir}/{CLEANER_CHECKPOINT}"
        job = self._checkpoints.job({path: offsets})
        await run(self._executor, job.run)
        for error in job.failures.values():
            raise error


def _asks_newest(config: LogConfig) -> bool:
    return config.min_compaction_lag_ms > 0


def _asks_first(config: LogConfig) -> bool:
    return config.max_compaction_lag_ms != INT64_MAX


def _time_of_first_batch(segment: Segment) -> int:
    """Do as ``rolling.time_of_first_batch`` for a full segment; leave nothing open that was not."""
    was_open = segment.is_file_open
    try:
        return time_of_first_batch(segment)
    finally:
        if not was_open:
            segment.rest()
