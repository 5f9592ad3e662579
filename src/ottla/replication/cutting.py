"""The log of a partition that follows is cut back, or begins anew, while the loop goes on.

Waits for what is under way (a flush, the cleaner's swap, a move that takes over), then holds the
partition, as a move does: appends wait, reads find nothing. An executor does the rest, and the
partition goes on with the log that comes out. Decides nothing: follower.py says where to cut, and
whoever asks says until the last moment whether it still is to be: meanwhile the partition may have
been elected, or follow somebody who has all that another leader had not.
Between a fetcher and log.cutting. One node alone never loads it. Source: reliability rule 13.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import CorruptFile, ErrorCode, InvariantBroken, KafkaError, OttlaError
from ottla.log.directories.copying import SourceUnreadable
from ottla.log.directories.cutting import LogCuts
from ottla.log.log import Log
from ottla.replication.partition import Partition

PAUSE_SECONDS = 0.05
"""How often it looks whether segments are still being swapped, or the partition is held."""


class Work(Protocol):
    """A job of ``LogCuts``."""

    def run(self) -> None:
        """Do it. Blocks; on any thread."""


Job = TypeVar("Job", bound=Work)
IsDue = Callable[[], bool]
"""Tells whether a log is still to be cut. Asked last when nothing can come in between."""


def _always() -> bool:
    return True


class Cutting:
    """Cuts the logs of partitions. Its caller sees that nobody stops the node in between."""

    def __init__(self, cuts: LogCuts, executor: Executor, clock: Clock) -> None:
        self._cuts = cuts
        self._executor = executor
        self._clock = clock

    async def truncate(self, partition: Partition, offset: int, *, is_due: IsDue = _always) -> None:
        """Let the log of ``partition`` end at ``offset``, or below it where a batch spans it.

        Nothing happens at or above its end, nor once it is not ``is_due`` any more. Durable on
        return. Raises KafkaError KAFKA_STORAGE_ERROR: the disk refused, or the log is out of
        service; it is, if it is not sure what was cut.
        """
        if offset < partition.log.log_end_offset:
            job = partial(self._cuts.cut_job, offset=offset)
            await self._change(partition, job, self._cuts.cut, is_due)

    async def begin_anew(
        self, partition: Partition, offset: int, *, is_due: IsDue = _always
    ) -> None:
        """Let the log of ``partition`` be empty and begin at ``offset``, at or above its end.

        As ``truncate`` otherwise.
        """
        job = partial(self._cuts.anew_job, offset=offset)
        await self._change(partition, job, self._cuts.anew, is_due)

    async def _change(
        self,
        partition: Partition,
        make: Callable[[Log], Job],
        take: Callable[[Job], Log],
        is_due: IsDue,
    ) -> None:
        job = await self._begin(partition, make, is_due)
        if job is None:
            return
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: None, error: BaseException | None) -> None:
            log = partition.log
            try:
                log = take(job)
            except Exception as fault:  # noqa: BLE001 - it is raised where it is waited for
                error = fault
            if error is not None and not isinstance(error, (OSError, OttlaError)):
                log.end_by_fault(error)
            partition.release(log)
            if outcome.cancelled():
                return
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        self._executor.submit(job.run, done, place=partition.log_dir)
        try:
            await outcome
        except (OSError, CorruptFile, SourceUnreadable) as error:
            why = f"{partition.topic_partition}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error

    async def _begin(
        self, partition: Partition, make: Callable[[Log], Job], is_due: IsDue
    ) -> Job | None:
        """Hold the partition when all of it is settled; return the job. Raises KafkaError.

        None: it is not due any more.
        """
        while is_due():
            log = partition.log
            log.ensure_open()
            if partition.is_held or log.is_swapping:
                await self._pause()
                continue
            await partition.flush_to(log.log_end_offset)
            await partition.settle_to(log.log_end_offset)
            begun: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
            partition.between_flushes(partial(_hold, partition, make, begun, is_due))
            job = await begun
            if job is not None:
                return job
        return None

    async def _pause(self) -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock.call_later(PAUSE_SECONDS, partial(waited.set_result, None))
        await waited


def _hold(
    partition: Partition,
    make: Callable[[Log], Job],
    begun: "asyncio.Future[Job | None]",
    is_due: IsDue,
) -> None:
    """Make the job and hold the partition, unless something came in between; between flushes."""
    log = partition.log
    is_ready = (
        is_due()
        and log.is_in_service
        and not log.is_swapping
        and not partition.is_held
        and log.flushed_offset == log.log_end_offset
        and not log.segments.unsynced
    )
    if not is_ready:
        begun.set_result(None)
        return
    try:
        job = make(log)
    except InvariantBroken as error:
        begun.set_exception(error)
    else:
        partition.hold()
        begun.set_result(job)
