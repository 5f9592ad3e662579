"""One partition that follows: it asks, takes the answer, makes it durable, and asks again.

Carries out what follower.py decides. All that an answer brings is synced before the next request,
whose fetch offset acknowledges it. Knows no connection: who fetches calls ``next_request``, and
``take`` with what came. Source: KIP-101, KIP-279, KIP-595.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.log.replicated import append_replicated, check_replicated
from ottla.log.upkeep.front import raise_start_offset
from ottla.metadata.values import NO_LEADER
from ottla.replication.cutting import Cutting
from ottla.replication.follower import (
    Asked,
    followed_high_watermark,
    may_take,
    next_fetch,
    truncation_offset,
)
from ottla.replication.partition import Partition


class Fetched(NamedTuple):
    """What a leader answered, as it came."""

    high_watermark: int
    log_start_offset: int
    records: memoryview
    """May be empty; the last batch may be cut."""
    diverging: EpochEnd | None = None
    begins_at: int | None = None
    """The leader's log start offset, if the follower ends below it."""


class Following:
    """The fetches of one partition of this node, one at a time."""

    def __init__(
        self, partition: Partition, cutting: Cutting, broker_epoch: Callable[[], int]
    ) -> None:
        """``broker_epoch``: this node's registration, as it knows it."""
        self.partition = partition
        self._cutting = cutting
        self._broker_epoch = broker_epoch
        self._number = 0
        self._asked: Asked | None = None
        """Its newest request."""

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

        Raises KafkaError: as ``check_replicated``, ``append_replicated`` and ``Cutting``;
        OFFSET_OUT_OF_RANGE when the logs part below this one's start: it cannot be put right here.
        """
        partition, log = self.partition, self.partition.log
        if partition.is_leader or not may_take(
            answered,
            self._asked,
            leader=self._leader(),
            broker_epoch=self._broker_epoch(),
            log_end_offset=log.log_end_offset,
        ):
            return False
        self._asked = None
        if fetched.begins_at is not None:
            await self._cutting.begin_anew(partition, fetched.begins_at)
        elif fetched.diverging is not None:
            await self._cut_to(fetched.diverging)
        elif len(fetched.records):
            append_replicated(log, check_replicated(fetched.records))
            await partition.flush_to(log.log_end_offset)
        if not partition.is_leader:  # It may lead by now.
            self._follow(fetched)
        return True

    async def _cut_to(self, diverging: EpochEnd) -> None:
        partition, log = self.partition, self.partition.log
        own_end = log.end_offset_for_epoch(diverging.epoch)
        offset = truncation_offset(diverging, own_end, log.log_end_offset)
        if offset < log.log_start_offset:
            why = (
                f"{partition.topic_partition}: the leader's log is another one from {offset} on, "
                f"this one starts at {log.log_start_offset}"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        await self._cutting.truncate(partition, offset)

    def _follow(self, fetched: Fetched) -> None:
        partition, log = self.partition, self.partition.log
        partition.followed(
            followed_high_watermark(
                partition.high_watermark, fetched.high_watermark, log.log_end_offset
            )
        )
        if fetched.log_start_offset <= partition.high_watermark:
            raise_start_offset(log, fetched.log_start_offset)
