"""Appends batches to the partitions of a node, and answers when they are committed.

Owns the one way to append: ``one`` batch to one partition, or ``many``. Both append at once and
then wait in the commit queues of the partitions. A batch whose check would hold the loop for long
is checked in an executor first, and is appended by the loop after that. Does not host partitions.
Handlers and coordinators call it; it calls ``replication.partition``.

    one    needs an executor?  no -> append -> committed already, or wait
                               yes -> as many
    many   append each -> wait for all      what is too long for the loop, and all behind it:
                                            analysed by the executor -> append each -> wait
    either is the partition held?  yes -> copied and analysed likewise, appended when it is released
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable, Mapping, Sequence

from ottla.env.clock import Clock
from ottla.env.executor import Executor, Lane
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import RECODE_SIZE_BYTES, Analysis, TooLongForLoop, analyse, needs_executor
from ottla.log.config import LogConfig
from ottla.pending import Pending, as_exception
from ottla.protocol.messages.produce import ACKS_ALL
from ottla.replication.append import (
    AppendOutcome,
    AppendRefusal,
    gathered,
    gone_meanwhile,
    joined,
    patience_seconds,
    refusal_of,
)
from ottla.replication.commit_queue import CommitWait
from ottla.replication.flushing import PartitionHeld
from ottla.replication.partition import Partition
from ottla.request_memory import RequestMemory

APPENDS_SECONDS = 0.02
"""So long one request's appends hold the loop, and the one that is over it: each may roll its log,
which syncs some small files."""
APPENDS_PER_TURN = 64

Batches = memoryview | Analysis
"""One produced batch, or what was analysed elsewhere."""
Wanted = Sequence[tuple[TopicPartition, Batches | KafkaError]]
"""Records to append, and where; an error stands for records that are refused already."""
Outcomes = list[AppendOutcome] | Pending[list[AppendOutcome]]
StillAllowed = Callable[[TopicPartition], KafkaError | None]
"""Tells whether what was allowed a while ago still is, or why not."""


class Appends:
    """Appends to the partitions that this node leads."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        *,
        clock: Clock,
        executor: Executor,
        large: Lane,
        config_of: Callable[[str], LogConfig],
        missing: Callable[[TopicPartition], ErrorCode],
        request_memory: RequestMemory,
    ) -> None:
        """``partitions``: those hosted now. ``executor``: theirs, whose syncs are held together.

        ``large``: where large batches are opened. ``config_of``: a topic's, for what is copied
        before its partition is there. ``missing`` tells what is answered for one that is not.
        ``request_memory``: where copies of batches count.
        """
        self._partitions = partitions
        self._clock = clock
        self._executor = executor
        self._large = large
        self._config_of_topic = config_of
        self._missing = missing
        self._request_memory = request_memory

    def one(
        self,
        where: TopicPartition,
        records: Batches,
        *,
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None = None,
    ) -> AppendOutcome | Pending[list[AppendOutcome]]:
        """Do as ``many`` for one partition, with less around it; the Pending has one outcome.

        The appends of one partition that are made this way are committed in their order.
        """
        partition = self._partitions.get(where)
        if partition is None:
            return AppendRefusal(self._missing(where))
        if isinstance(records, memoryview) and is_large(records, partition):
            return self._append_large([(where, records)], acks, timeout_ms, still_allowed)
        try:
            result = partition.append(records, acks=acks)
        except KafkaError as error:
            return refusal_of(error, partition.log_start_offset)
        except (TooLongForLoop, PartitionHeld):
            if isinstance(records, memoryview):
                return self._append_large([(where, records)], acks, timeout_ms, still_allowed)
            return self._append_in_turns([(where, records)], acks, timeout_ms, still_allowed)
        if acks != ACKS_ALL or partition.high_watermark > result.last_offset:
            return result
        return partition.commits.wait(result, timeout_seconds=patience_seconds(timeout_ms))

    def many(
        self,
        wanted: Wanted,
        *,
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None = None,
    ) -> Outcomes:
        """Append to each partition; wait for their commit if ``acks`` is -1.

        Views are patched in place and not kept. One outcome per entry, in order. Large compressed
        batches are opened, and large ones recompressed, off the loop, and what comes behind them
        follows; so it is when those before took long. The Pending then does not yet ``overlap``,
        and of those ``still_allowed`` is asked when they are back.
        """
        count, outcomes = self._append_some(wanted, acks, timeout_ms)
        if count == len(wanted):
            return outcomes
        ahead = wanted[count:]
        views = [(where, view) for where, view in ahead if isinstance(view, memoryview)]
        if views:
            assert len(views) == len(ahead), "a request comes analysed or not"
            rest = self._append_large(views, acks, timeout_ms, still_allowed)
        else:
            rest = self._append_in_turns(ahead, acks, timeout_ms, still_allowed)
        return joined(outcomes, rest) if count else rest

    def _append_some(  # noqa: C901 - flat: each partition of a request passes here
        self, wanted: Wanted, acks: int, timeout_ms: int
    ) -> tuple[int, Outcomes]:
        """Append for as long as one request may; return how many, and what becomes of them.

        It ends before the first that is too long for the loop, or whose partition is held.
        """
        monotonic = self._clock.monotonic
        partitions = self._partitions
        end = monotonic() + APPENDS_SECONDS
        outcomes: list[AppendOutcome] = []
        wait: CommitWait | None = None
        self._executor.hold_syncs()  # The flushes of all of them begin together.
        try:
            for where, records in wanted:
                if outcomes and monotonic() >= end:
                    break
                partition = partitions.get(where)
                if partition is None:
                    outcomes.append(AppendRefusal(self._missing(where)))
                    continue
                try:
                    if isinstance(records, memoryview):
                        if len(records) > RECODE_SIZE_BYTES and is_large(records, partition):
                            break
                    elif isinstance(records, KafkaError):
                        partition.check_append(acks)  # Its own reason comes first.
                        raise records
                    result = partition.append(records, acks=acks)
                except KafkaError as error:
                    refused = error.as_value()
                    outcomes.append(refusal_of(refused, partition.log_start_offset))
                    continue
                except (TooLongForLoop, PartitionHeld):
                    break
                if acks == ACKS_ALL and partition.high_watermark <= result.last_offset:
                    if wait is None:
                        wait = CommitWait(outcomes, monotonic() + patience_seconds(timeout_ms))
                    partition.commits.add(result.last_offset, wait, len(outcomes))
                outcomes.append(result)
        finally:
            self._executor.release_syncs()
        if wait is None:
            return len(outcomes), outcomes
        wait.all_added()
        return len(outcomes), wait.pending

    def _append_in_turns(
        self, ahead: Wanted, acks: int, timeout_ms: int, still_allowed: StillAllowed | None
    ) -> Pending[list[AppendOutcome]]:
        """Append what is analysed, in later turns of the loop; wait for partitions that are held.

        What waits for one partition goes in by the order in which it came.
        """
        pending: Pending[list[AppendOutcome]] = Pending()
        meant = [self._topic_id_of(where) for where, _ in ahead]
        parts: list[Outcomes] = []
        done = 0
        let_go = self._request_memory.hold(
            sum(len(found.records) for _, found in ahead if isinstance(found, Analysis))
        )

        def wait() -> None:
            partition = self._partitions.get(ahead[done][0])
            if partition is not None and partition.has_to_wait:
                partition.released().on_done(go_on)
            else:
                self._clock.call_later(0, go_on)

        def go_on(_: Pending[None] | None = None) -> None:
            nonlocal done
            now = [
                (
                    where,
                    (still_allowed and still_allowed(where)) or found
                    if self._topic_id_of(where) == meant[at]
                    else gone_meanwhile(where),
                )
                for at, (where, found) in enumerate(ahead[done : done + APPENDS_PER_TURN], done)
            ]
            try:
                count, outcomes = self._append_some(now, acks, timeout_ms)
            except Exception as error:  # noqa: BLE001 - travels to whoever listens
                let_go()
                pending.fail(error)
                return
            parts.append(outcomes)
            done += count
            if done < len(ahead):
                wait()
            else:
                let_go()
                gathered(parts, pending)

        wait()
        return pending

    def _append_large(
        self,
        views: Sequence[tuple[TopicPartition, memoryview]],
        acks: int,
        timeout_ms: int,
        still_allowed: StillAllowed | None,
    ) -> Pending[list[AppendOutcome]]:
        """Analyse a copy of the batches in the executor, then append on the loop.

        What is larger than its topic allows is refused before it is copied; so is, behind the
        analysis, what was for a topic that is gone then, although the name may be there again.
        """
        pending: Pending[list[AppendOutcome]] = Pending()
        now_ms = self._clock.wall_ms()
        copies = []
        meant = [self._topic_id_of(where) for where, _ in views]
        for where, records in views:
            config = self._config_of(where)
            copied = None
            if len(records) <= config.max_message_bytes:
                copied = memoryview(bytearray(records))
            copies.append((where, copied, config))
        let_go = self._request_memory.hold(sum(len(copied) for _, copied, _ in copies if copied))

        def work() -> list[tuple[TopicPartition, Analysis | KafkaError]]:
            return [(where, analysed(records, config, now_ms)) for where, records, config in copies]

        def done(
            analyses: list[tuple[TopicPartition, Analysis | KafkaError]] | None,
            error: BaseException | None,
        ) -> None:
            let_go()
            if analyses is None:
                assert error is not None, "work either returns or raises"
                pending.fail(as_exception(error))
                return
            analyses = [
                (where, found if self._topic_id_of(where) == topic_id else gone_meanwhile(where))
                for topic_id, (where, found) in zip(meant, analyses, strict=True)
            ]
            if still_allowed is not None:
                analyses = [(where, still_allowed(where) or found) for where, found in analyses]
            outcomes = self.many(
                analyses, acks=acks, timeout_ms=timeout_ms, still_allowed=still_allowed
            )
            if isinstance(outcomes, Pending):
                outcomes.on_done(pending.take_over)
            else:
                pending.resolve(outcomes)

        self._large.submit(work, done)
        return pending

    def _topic_id_of(self, where: TopicPartition) -> TopicId | None:
        """Return the topic that the partition hosted here is of: a name may come back."""
        partition = self._partitions.get(where)
        return None if partition is None else partition.topic_id

    def _config_of(self, where: TopicPartition) -> LogConfig:
        partition = self._partitions.get(where)
        if partition is not None:
            return partition.log.config
        return self._config_of_topic(where.topic)


def is_large(records: memoryview, partition: Partition) -> bool:
    """Tell whether a produced batch is to be looked at by an executor."""
    return len(records) > RECODE_SIZE_BYTES and needs_executor(
        records, partition.log.config.compression
    )


def analysed(records: memoryview | None, config: LogConfig, now_ms: int) -> Analysis | KafkaError:
    """Analyse in an executor thread; a refusal is a value there, so that the others go on.

    None stands for records that are too many to be looked at.
    """
    if records is None:
        why = f"more than max.message.bytes ({config.max_message_bytes})"
        return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    try:
        return analyse(records, config, now_ms)
    except KafkaError as error:
        return error.as_value()
