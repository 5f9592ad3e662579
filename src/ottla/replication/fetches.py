"""Serves the fetches of a node: reads now, has an executor read ahead first, or waits for more.

Owns the fetches that wait, which end when their client goes away. Does not host partitions. The
ReplicaManager calls it; ``replication.fetch`` reads one partition.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable, Generator
from functools import partial

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.ids import TopicPartition
from ottla.log.segment.cold_read import COLD_READ_BYTES_MAX, ColdRead
from ottla.pending import Pending, as_exception
from ottla.replication.fetch import (
    DelayedFetch,
    FetchedPartition,
    FetchLimits,
    FetchSpec,
    Isolation,
    exposed_end,
    read_partition,
    size_of,
)
from ottla.replication.partition import Partition
from ottla.replication.purgatory import Purgatory

FetchedInSteps = Generator[None, None, list[FetchedPartition]]
Cold = list[ColdRead]
"""Reads that wait for the device."""
SPECS_PER_STEP = 64
"""How many partitions are read between two yields."""
PARTITIONS_PER_WAITING = 10
"""How many partitions a waiting fetch may have on average: one with very many counts as several."""


class Fetches:
    """Reads partitions for clients."""

    def __init__(
        self,
        lookup: Callable[[TopicPartition], Partition | None],
        clock: Clock,
        executor: Executor,
        *,
        missing: Callable[[TopicPartition], FetchedPartition],
        waiting_max: int,
    ) -> None:
        """``executor`` reads what is not in memory; so many as ``waiting_max`` wait at a time.

        ``missing`` tells what is answered for a partition that ``lookup`` does not know.
        """
        self._lookup = lookup
        self._missing = missing
        self._executor = executor
        self._waiting_max = waiting_max
        self.purgatory: Purgatory[DelayedFetch] = Purgatory(clock)
        """Use: to be checked when a partition moves."""

    def fetch(
        self, specs: list[FetchSpec], limits: FetchLimits
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """Read what is committed, in the order of ``specs``; wait for ``min_bytes`` if need be.

        Answers at once when nothing may be waited for, when enough is there, when a partition is in
        error or the client's history diverges, or when too many fetches wait already. What is not
        in memory is read ahead of the loop first.
        """
        cold: list[ColdRead] = []
        found = self._read_all(specs, limits, cold)
        if cold:
            return self._fetch_cold(specs, limits, cold)
        return self._fetch_found(specs, limits, found)

    def fetch_many(
        self, specs: list[FetchSpec], limits: FetchLimits
    ) -> Generator[Pending[None] | None, None, list[FetchedPartition] | Pending[FetchedInSteps]]:
        """Do as ``fetch`` for very many partitions: a generator that yields every few of them.

        It also yields a Pending that it has to wait for. What it returns when it waits for more
        resolves to a generator that reads.
        """
        cold: list[ColdRead] = []
        found = yield from self._read_in_steps(specs, limits, cold)
        if cold:
            yield self.warm(cold)
            specs = _bounded(specs)
            found = yield from self._read_in_steps(specs, limits)
        if self._is_over(specs, limits, found):
            return found
        woken: Pending[list[FetchedPartition]] = Pending()
        self._watch(specs, limits, found, woken, list)
        for spec, seen in zip(specs, found, strict=True):  # What moved while others had turns.
            partition = self._lookup(spec.topic_partition)
            if partition is None or exposed_end(partition, limits.isolation) != (
                seen.last_stable_offset
                if limits.isolation is Isolation.READ_COMMITTED
                else seen.high_watermark
            ):
                self.purgatory.check(spec.topic_partition)
            if woken.is_done:
                break
        return woken.then(lambda _: self._read_in_steps(specs, limits))

    def warm(self, cold: list[ColdRead]) -> Pending[None]:
        """Have an executor bring it into memory."""
        pending: Pending[None] = Pending()

        def work() -> None:
            for one in cold:
                one.run()

        def done(_: None, error: BaseException | None) -> None:
            if error is None:
                pending.resolve(None)
            else:
                pending.fail(as_exception(error))

        self._executor.submit(work, done)
        return pending

    def _is_over(
        self, specs: list[FetchSpec], limits: FetchLimits, found: list[FetchedPartition]
    ) -> bool:
        """Tell whether what was found is the answer, and not the begin of a wait."""
        return (
            sum(map(size_of, found)) >= limits.min_bytes
            or limits.max_wait_ms <= 0
            or not specs
            or any(fetched.ends_wait for fetched in found)
            or self.purgatory.watched_count >= self._waiting_max
            or self.purgatory.key_count >= self._waiting_max * PARTITIONS_PER_WAITING
        )

    def _watch(
        self,
        specs: list[FetchSpec],
        limits: FetchLimits,
        found: list[FetchedPartition],
        pending: Pending[list[FetchedPartition]],
        read: Callable[[], list[FetchedPartition]],
    ) -> None:
        operation = DelayedFetch(
            specs, found, limits, lookup=self._lookup, read=read, pending=pending
        )
        keys = [spec.topic_partition for spec in specs]
        seconds = limits.max_wait_ms / 1000
        watch = self.purgatory.watch(operation, keys, timeout_seconds=seconds)
        pending.on_cancel(
            partial(self.purgatory.cancel, watch), partial(self.purgatory.expire, watch)
        )

    def _fetch_found(
        self, specs: list[FetchSpec], limits: FetchLimits, found: list[FetchedPartition]
    ) -> list[FetchedPartition] | Pending[list[FetchedPartition]]:
        """Answer with what was ``found``, or wait for more."""
        if self._is_over(specs, limits, found):
            return found
        pending: Pending[list[FetchedPartition]] = Pending()
        self._watch(specs, limits, found, pending, lambda: self._read_all(specs, limits))
        return pending

    def _fetch_cold(
        self, specs: list[FetchSpec], limits: FetchLimits, cold: list[ColdRead]
    ) -> Pending[list[FetchedPartition]]:
        """Have an executor bring it into memory, then fetch, no more than that per partition."""
        pending: Pending[list[FetchedPartition]] = Pending()

        def done(warm: Pending[None]) -> None:
            if warm.error is not None:
                pending.fail(warm.error)
                return
            if pending.is_cancelled:
                return
            bounded = _bounded(specs)
            pending.follow(self._fetch_found(bounded, limits, self._read_all(bounded, limits)))

        self.warm(cold).on_done(done)
        return pending

    def _read_in_steps(
        self, specs: list[FetchSpec], limits: FetchLimits, cold: list[ColdRead] | None = None
    ) -> FetchedInSteps:
        found: list[FetchedPartition] = []
        for start in range(0, len(specs), SPECS_PER_STEP):
            piece = self._read_all(specs[start : start + SPECS_PER_STEP], limits, cold)
            size_bytes = sum(map(size_of, piece))
            if size_bytes:  # The first batch of all may be larger than the limit; no other.
                left = max(limits.max_bytes - size_bytes, 0)
                limits = limits._replace(max_bytes=left, is_hard_limit=True)
            found += piece
            yield None
        return found

    def _read_all(
        self, specs: list[FetchSpec], limits: FetchLimits, cold: list[ColdRead] | None = None
    ) -> list[FetchedPartition]:
        remaining = limits.max_bytes
        min_one_message = not limits.is_hard_limit
        found = []
        for spec in specs:
            partition = self._lookup(spec.topic_partition)
            if partition is None:
                found.append(self._missing(spec.topic_partition))
                continue
            fetched = read_partition(
                partition,
                spec,
                max_bytes=remaining,
                isolation=limits.isolation,
                min_one_message=min_one_message,
                cold=cold,
                may_follow=limits.may_follow,
                prefers=limits.prefers,
            )
            size_bytes = size_of(fetched)
            if size_bytes:
                min_one_message = False
                remaining = max(remaining - size_bytes, 0)
            found.append(fetched)
        return found


def _bounded(specs: list[FetchSpec]) -> list[FetchSpec]:
    """Return them without more of each than was brought into memory."""
    return [spec._replace(max_bytes=min(spec.max_bytes, COLD_READ_BYTES_MAX)) for spec in specs]
