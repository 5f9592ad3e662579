"""One partition that follows: it asks, takes the answer, makes it durable, and asks again.

Carries out what follower.py decides. All that an answer brings is synced before the next request,
whose fetch offset acknowledges it. Knows no connection: who fetches calls ``next_request``, and
``take`` with what came. Source: KIP-101, KIP-279, KIP-595.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId
from ottla.log.contents.gaps import end_if_cut
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.log.health import FULL
from ottla.log.log import Log
from ottla.log.replicated import append_replicated, check_replicated
from ottla.log.upkeep.front import raise_start_offset
from ottla.metadata.values import NO_LEADER
from ottla.protocol.messages.fetch import PartitionData
from ottla.replication.cutting import Cutting
from ottla.replication.follower import (
    Asked,
    followed_high_watermark,
    may_take,
    next_fetch,
    truncation_offset,
)
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """What a leader answered, as it came."""

    high_watermark: int
    log_start_offset: int
    records: memoryview
    """May be empty; the last batch may be cut."""
    diverging: EpochEnd | None = None
    begins_at: int | None = None
    """Where the leader's log begins, if the follower ends below that: at the log start offset, or
    at the batch that holds it."""


def fetched(data: PartitionData, asked: Asked) -> Fetched:
    """Return what was answered of one partition. Raises KafkaError."""
    code = error_code(data.error_code)
    begins_at = None
    if code is ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset > asked.fetch_offset:
        begins_at = data.log_start_offset
    elif code is not ErrorCode.NONE:
        raise KafkaError(code, f"the leader answers {code.name}")
    records = data.records or b""
    assert isinstance(records, bytes | bytearray | memoryview), "what was received is bytes"
    diverging = data.diverging_epoch
    return Fetched(
        data.high_watermark,
        data.log_start_offset,
        memoryview(records),
        None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
        begins_at,
    )


class Following:
    """The fetches of one partition of this node, one at a time."""

    def __init__(
        self,
        partition: Partition,
        cutting: Cutting,
        broker_epoch: Callable[[], int],
        make_anew: Callable[[Partition], None],
    ) -> None:
        """``broker_epoch``: this node's registration, as it knows it.

        ``make_anew``: lets another partition with an empty log take the place of this one.
        """
        self.partition = partition
        self._make_anew = make_anew
        self._cutting = cutting
        self._broker_epoch = broker_epoch
        self._number = 0
        self._asked: Asked | None = None
        """Its newest request."""

    @property
    def is_full(self) -> bool:
        """Tell whether the log takes no batches for want of space: then no records are asked for.

        All else that answers say is taken: where the log starts, how far it is committed.
        """
        return self.partition.log.state is FULL

    def _leader(self) -> tuple[NodeId, LeaderEpoch]:
        state = self.partition.state
        return state.leader, state.leader_epoch

    def next_request(self) -> Asked | None:
        """Return what to ask the leader; None: nothing now, for not all is synced, or none leads.

        What was asked before is not answered any more.
        """
        partition, log = self.partition, self.partition.log
        if partition.is_leader or partition.state.leader == NO_LEADER or partition.is_held:
            return None
        if not log.is_in_service:
            return None
        self._number += 1
        self._asked = next_fetch(
            self._number,
            leader=self._leader(),
            broker_epoch=self._broker_epoch(),
            log_end_offset=log.log_end_offset,
            synced_offset=log.flushed_offset,
            latest_epoch=log.latest_epoch,
        )
        return self._asked

    async def take(self, answered: Asked, fetched: Fetched) -> bool:
        """Do what an answer says, durably; False: it answers no newest request, and is dropped.

        Raises KafkaError: as ``check_replicated``, ``append_replicated`` and ``Cutting``. When the
        logs part below this one's start, nothing of it stays, and it ends here.
        """
        partition, log = self.partition, self.partition.log
        if not self._holds(answered, self._asked):
            return False
        self._asked = None
        is_due = partial(self._holds, answered, answered)
        if fetched.begins_at is not None:
            await self._cutting.begin_anew(partition, fetched.begins_at, is_due=is_due)
            return True
        if fetched.diverging is not None:
            await self._cut_to(fetched.diverging, is_due)
            return True  # What is left may still be another history than what is committed.
        if len(fetched.records) and not self.is_full:
            self._append(fetched.records)
            await partition.flush_to(log.log_end_offset)
        # It may lead by now, or follow somebody who lets it cut its log.
        if not partition.is_leader and self._leader() == (answered.leader, answered.leader_epoch):
            self._follow(fetched)
        return True

    def _append(self, records: memoryview) -> None:
        """Append what there is space for: without it the next request asks for none.

        Raises KafkaError, for another reason.
        """
        try:
            append_replicated(self.partition.log, check_replicated(records))
        except KafkaError:
            if not self.is_full:
                raise

    def _holds(self, answered: Asked, newest: Asked | None) -> bool:
        """Tell whether what the answer to ``answered`` says still holds of this log."""
        partition = self.partition
        return not partition.is_leader and may_take(
            answered,
            newest,
            leader=self._leader(),
            broker_epoch=self._broker_epoch(),
            log_end_offset=partition.log.log_end_offset,
        )

    async def _cut_to(self, diverging: EpochEnd, is_due: Callable[[], bool]) -> None:
        """Cut the log; it is made anew if nothing of it can stay."""
        partition, log = self.partition, self.partition.log
        own_end = log.end_offset_for_epoch(diverging.epoch)
        offset = truncation_offset(diverging, own_end, log.log_end_offset)
        # Records of an epoch that the leader does not know were all deleted here.
        parted_below = offset == log.log_end_offset and diverging.epoch < log.latest_epoch
        if parted_below or _left_below(log, offset) < log.log_start_offset:
            # An unclean election: what all had was deleted here, or never was.
            logger.warning(
                "%s: the leader's log is another one from %d on, and this one starts at %d: "
                "nothing of it stays",
                partition.topic_partition,
                offset,
                log.log_start_offset,
            )
            self._make_anew(partition)
            return

        start_offset = log.log_start_offset

        def is_still_due() -> bool:
            """Tell whether it is, and retention has not let the log start later meanwhile."""
            return is_due() and partition.log.log_start_offset == start_offset

        await self._cutting.truncate(partition, offset, is_due=is_still_due)

    def _follow(self, fetched: Fetched) -> None:
        partition, log = self.partition, self.partition.log
        partition.followed(
            followed_high_watermark(
                partition.high_watermark, fetched.high_watermark, log.log_end_offset
            )
        )
        if fetched.log_start_offset <= partition.high_watermark:
            raise_start_offset(log, fetched.log_start_offset)


def _left_below(log: Log, offset: int) -> int:
    """Return where the log would end if it were cut at ``offset``. Raises KafkaError.

    What holds the log start offset may go, too: see ``gaps.end_if_cut``. Looked up only where that
    may be, for it may read the disk.
    """
    if offset < log.log_start_offset or (
        log.segments.left_below(offset).base_offset >= log.log_start_offset
    ):
        return offset
    try:
        return end_if_cut(log.segments, offset)
    except (OSError, CorruptFile) as error:
        why = f"{log.topic_partition}: {error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
