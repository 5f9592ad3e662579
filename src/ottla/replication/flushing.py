"""The flushes of one partition, one after the other, and the times between them.

The part of a Partition that owns whether a flush is in flight, who waits for its end, and whether
the partition is held: then no flush begins, nothing is appended or read, and whoever comes waits
until it goes on, perhaps with another log. A base class, not an object of its own, since every
produce passes here. Between replication.partition and log.flushes. On the loop. Source: reliability
rules 1 and 2; group commit.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from ottla.env.executor import Executor
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.flush import FlushJob
from ottla.log.log import Log
from ottla.pending import Pending

logger = logging.getLogger(__name__)


class PartitionHeld(Exception):
    """The partition takes no append now: try again when ``released`` is done."""


class PartitionFlushes:
    """At most one flush in flight; whatever was appended meanwhile is in the next one."""

    __slots__ = (
        "_between",
        "_executor",
        "_flush_waiters",
        "_held",
        "_is_flushing",
        "is_given_away",
        "log",
        "synced",
    )

    def __init__(self, log: Log, executor: Executor) -> None:
        self.log = log
        """Use: replaced by ``release`` only."""
        self._executor = executor
        self._is_flushing = False
        """Whether a flush is in flight, or none may begin."""
        self._flush_waiters: list[asyncio.Future[None]] = []
        self._between: list[Callable[[], None]] = []
        self._held: list[Pending[None]] | None = None
        """The waits for ``release``, in order. None: the partition is not held."""
        self.synced: Callable[[TopicPartition], None] | None = None
        """Use: told when the last of some flushes has ended well, for followers that wait. None:
        there are none."""
        self.is_given_away = False
        """Use: this node has asked that another one leads, and does not know whether it does."""

    @property
    def flush_messages(self) -> int:
        """Unflushed offsets at which a flush begins; with 1 only what is flushed counts.

        As configured, but 1 while another replica is asked to lead: this one is in the next ISR,
        too, and nobody asks there whether it has synced what it acknowledged.
        """
        return 1 if self.is_given_away else self.log.config.flush_messages

    @property
    def is_flushing(self) -> bool:
        """Tell whether a flush is in flight, or the partition is held."""
        return self._is_flushing

    @property
    def log_dir(self) -> str:
        """The log directory that it is in now."""
        return self.log.log_dir

    @property
    def size_bytes(self) -> int:
        """How much its records take on disk."""
        return self.log.size_bytes

    def tell(self) -> None:
        """Answer whoever waits and can be answered: role, health or high watermark changed."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Raise the high watermark as far as it may rise."""
        raise NotImplementedError

    def flush(self) -> bool:
        """Begin to make durable what there is; False when none may begin now.

        That is while an earlier flush is in flight, whose end begins the next one if needed, and
        while the partition is held.
        """
        if self._is_flushing:
            return False
        job = self.log.begin_flush()
        if job is not None:
            self._is_flushing = True
            job.submit(self._executor, _flushes_ended, self)
        return True

    def flush_ended(self, job: FlushJob, error: BaseException | None) -> None:
        """Take the outcome of the flush in flight."""
        self._is_flushing = False
        if error is None and not self._flush_waiters and not self._between:
            log = self.log
            log.finish_flush(job, None)
            if log.flushed_offset != log.log_end_offset and (
                log.log_end_offset - log.flushed_offset >= self.flush_messages
                or log.segments.unsynced  # A roll asks for a flush, too.
            ):
                self.flush()
            self._advanced()
            return
        waiters, self._flush_waiters = self._flush_waiters, []
        try:
            self._end_flush(job, error)
        finally:
            for waiter in waiters:
                waiter.set_result(None)

    def _end_flush(self, job: FlushJob, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, OSError):
            # A fault of ours: it takes this partition, and nobody waits for a flush for ever.
            self.log.end_by_fault(error)
        else:
            self.log.finish_flush(job, error)
        between, self._between = self._between, []
        for work in between:
            work()
        if error is not None:
            logger.error("%s could not be flushed: %s", self.log.topic_partition, error)
            self.tell()
            return
        self._flush_if_due()
        self._advanced()

    def _advanced(self) -> None:
        """Do what follows from a flush that ended well."""
        self._advance()
        if self.synced is not None and not self._is_flushing:
            self.synced(self.log.topic_partition)

    def _flush_if_due(self) -> None:
        log = self.log
        if log.log_end_offset - log.flushed_offset >= self.flush_messages or log.segments.unsynced:
            self.flush()

    async def flush_to(self, offset: int) -> None:
        """Return when all below ``offset`` is durable. Raises KafkaError when the log fails."""
        await self._flush_until(lambda: self.log.flushed_offset, offset)

    async def settle_to(self, offset: int) -> None:
        """As ``flush_to``, with all that a roll writes beside the records: see ``Log``."""
        await self._flush_until(lambda: self.log.settled_offset, offset)

    async def _flush_until(self, reached: Callable[[], int], offset: int) -> None:
        while (before := reached()) < offset:
            is_ours = self.flush()  # Else it is one that began earlier, or the partition is held.
            await self._flush_ended()
            if not self.log.is_in_service or (is_ours and reached() == before):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.log.topic_partition}")

    async def idle(self) -> None:
        """Wait until no flush is in flight."""
        while self._is_flushing:
            await self._flush_ended()

    async def _flush_ended(self) -> None:
        """Wait for the flush in flight, if there is one; the next may have begun then."""
        if self._is_flushing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flush_waiters.append(waiter)
            await waiter

    def between_flushes(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the loop, once, at a moment when no flush is in flight: perhaps now."""
        if self._is_flushing:
            self._between.append(work)
        else:
            work()

    # Held.

    @property
    def is_held(self) -> bool:
        """Tell whether the partition waits for its log to get another name."""
        return self._held is not None

    def hold(self) -> None:
        """Let everybody wait until ``release``. Between flushes; no segments are being swapped."""
        assert not self._is_flushing, self.log.topic_partition
        self.log.hold()
        self._is_flushing = True
        self._held = []

    def released(self) -> Pending[None]:
        """Return when the partition is not held any more, in the order in which this was asked."""
        pending: Pending[None] = Pending()
        if self._held is None:
            pending.resolve(None)
        else:
            self._held.append(pending)
        return pending

    def release(self, log: Log) -> None:
        """Go on with ``log``: the one before, or a durable copy of it."""
        held, self._held = self._held, None
        assert held is not None, "it is held"
        self.log = log
        self._is_flushing = False
        waiters, self._flush_waiters = self._flush_waiters, []
        for waiter in waiters:
            waiter.set_result(None)
        between, self._between = self._between, []
        for work in between:
            work()
        self._advance()
        self.tell()
        for pending in held:
            pending.resolve(None)
        self._flush_if_due()


def _flushes_ended(jobs: deque[FlushJob], error: BaseException | None) -> None:
    """Take the outcome of all partitions' flushes that ended together: see ``Told``."""
    while jobs:
        job = jobs.popleft()
        job.owner.flush_ended(job, error)
