"""Snapshots of producers by time and by records, and those that segments must not go without.

Beside those that a roll and a clean stop take. Logs that have grown are looked at now and then. One
at a time, with the loop's turn in between, so that they cost no request its time. Between the
replica manager, deletion and log.snapshot_job. Source: reliability rules 11 and 14; Kafka takes
snapshots at rolls only.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import Executor, run
from ottla.housekeeping.in_progress import InProgress
from ottla.log.files.tenancy import TenancyOver
from ottla.log.log import Log
from ottla.log.upkeep.snapshot_job import SnapshotJob, is_due

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_MS = 10_000
"""How often the broker has the logs looked at."""
LOGS_PER_TURN = 500
"""Logs looked at before the loop gets its turn: each costs a microsecond."""
PRODUCERS_PER_TURN = 200
"""Producers encoded before the loop gets its turn: each costs some microseconds."""


class SnapshotSweep:
    """Takes the snapshots of producers that are due."""

    def __init__(
        self, disk: Disk, clock: Clock, executor: Executor, logs: Callable[[], Iterable[Log]]
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._logs = logs
        self._is_stopped = False
        self._in_progress = InProgress()
        self._turn = asyncio.Lock()
        """Held while a snapshot is taken: of one log never two at a time."""

    async def take_due(self) -> None:
        """Look at every log once. What the disk refuses is told to the log, and tried next time."""
        if self._is_stopped or self._in_progress.is_any:
            return
        with self._in_progress.one_more():
            now_ms = self._now_ms()  # Of this turn: not for each log.
            for count, log in enumerate(list(self._logs()), 1):
                if self._is_stopped:
                    return
                if not log.is_swapping and is_due(log, now_ms):
                    async with self._turn:
                        if log.is_in_service and not log.is_swapping:
                            await self._take(log)
                elif count % LOGS_PER_TURN == 0:
                    await asyncio.sleep(0)
                else:
                    continue
                now_ms = self._now_ms()

    async def tell_below(self, log: Log, offset: int) -> int | None:
        """Make durable what the batches of ``log`` below ``offset`` say of producers.

        They are about to go. Returns how far the log must be flushed (exclusive) for that; None:
        the disk refused, a stop has begun, or segments are being swapped. The next retention tries
        again.
        """
        with self._in_progress.one_more():
            async with self._turn:
                if self._is_stopped or log.is_swapping or not log.is_in_service:
                    return None
                known = log.producers.knows_durably(log.log_end_offset)
                if known is None or known >= offset:
                    return known or offset
                # Not one of an earlier life: that it can be read does not make it durable.
                return await self._take(log)

    async def settle(self) -> None:
        """Begin no other snapshot; return when none is under way."""
        self._is_stopped = True
        await self._in_progress.settle()

    async def _take(self, log: Log) -> int | None:
        """Take a snapshot of what holds now; return its offset. None: there is none."""
        try:
            job = SnapshotJob(log, self._disk)
        except OSError as error:
            self._report(log, error)
            return None
        try:
            is_encoded = job.encode(PRODUCERS_PER_TURN)
            while not is_encoded:
                await asyncio.sleep(0)
                is_encoded = job.encode(PRODUCERS_PER_TURN)
            await run(self._executor, job.run, place=log.log_dir)
            if not job.publish(self._now_ms()):
                await run(self._executor, job.discard, place=log.log_dir)
                return None
            await run(self._executor, job.clean_up, place=log.log_dir)
        except TenancyOver:
            return None  # Its topic was deleted meanwhile, or it was moved.
        except OSError as error:
            await run(self._executor, job.discard, place=log.log_dir)
            self._report(log, error)
            return None
        job.end()
        return job.offset

    def _report(self, log: Log, error: OSError) -> None:
        logger.warning("no snapshot of producers of %s: %s", log.topic_partition, error)
        if log.is_in_service:
            log.report(error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
