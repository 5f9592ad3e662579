"""What a leader answers a follower: where their logs part, else what comes after its end.

Unlike a consumer a follower reads up to the log's end, and its fetch says what it has synced. Below
whoever speaks Fetch; knows no connection, no session and no wait. Source: KIP-101, KIP-595
(diverging epoch in Fetch), KIP-903.
"""

from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId
from ottla.log.contents.gaps import batch_start, reached_below
from ottla.log.contents.leader_epochs import EpochEnd
from ottla.records.region import Region
from ottla.replication.divergence import divergence, end_of_what_is_left, shares_nothing_known
from ottla.replication.follower import Asked
from ottla.replication.gathering import follower_told, gathers
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition


class FollowerAnswer(NamedTuple):
    """One partition's part of the answer to a follower."""

    high_watermark: int
    """Exclusive, the leader's."""
    log_start_offset: int
    """The leader's."""
    diverging: EpochEnd | None = None
    """Where the leader's log left the epoch of the follower's last record; then nothing is read."""
    region: Region | None = None
    """Batches from the fetch offset on; the last one may be cut. None: there is nothing new."""
    begins_at: int | None = None
    """The follower ends below the batch that holds the log start offset: it has to begin anew where
    that batch begins, for no part of a batch can be left out."""
    is_put_off: bool = False
    """There is something new, and more is expected at once: nothing is read yet."""

    @property
    def parts(self) -> bool:
        """Tell whether the follower has to cut its log, or to begin anew, before all else."""
        return self.diverging is not None or self.begins_at is not None


def answer_follower(
    partition: Partition,
    changes: IsrChanges,
    node: NodeId,
    asked: Asked,
    *,
    max_bytes: int,
    is_first: bool = True,
    is_heard: bool = False,
    is_full: bool = False,
    may_gather: bool = False,
) -> FollowerAnswer:
    """Answer what ``node`` asks of a partition that this node leads. May block on a cold index.

    ``max_bytes`` 0: nothing is read, the fetch is only noted. ``is_first``: the first batch is
    whole whatever its size; else it is left out when it is larger. ``is_heard``: this fetch has
    been noted already, when it came, and has waited since. ``is_full``: it has no space for more,
    see ``IsrChanges.follower_fetched``. ``may_gather``: records may be put off, see ``gathering``.
    Raises KafkaError: as ``Partition.check_leader`` with the epoch asked for, and
    ``Partition.follower_fetched``; OFFSET_OUT_OF_RANGE above the end, and for an epoch of which
    nothing is known here.
    """
    partition.check_leader(asked.leader_epoch)
    log = partition.log
    at = FollowerAnswer(partition.high_watermark, log.log_start_offset)
    offset, epoch = asked.fetch_offset, asked.last_fetched_epoch
    if offset < log.log_start_offset:
        begins_at = batch_start(log.segments, log.log_start_offset)
        if offset < begins_at:
            return at._replace(begins_at=begins_at)
    if epoch >= 0:
        is_vouched = is_vouched_for(partition, node, asked)
        if partition.is_held and not is_vouched:
            return at  # Nothing is read of it now, so nothing can be compared: it asks again.
        left = _parted(partition, offset, epoch, is_vouched_for=is_vouched)
        if left is not None:
            return at._replace(diverging=left)
    if offset > log.log_end_offset:
        return _above(at, partition, asked)
    if not is_heard:
        changes.follower_fetched(partition, node, offset, asked.broker_epoch, is_full=is_full)
    region, is_put_off = None, False
    if offset < log.log_end_offset and max_bytes and not partition.is_held:
        is_put_off = may_gather and gathers(partition)
        if not is_put_off:
            region = _region(partition, offset, max_bytes, is_first=is_first)
    return FollowerAnswer(
        partition.high_watermark, log.log_start_offset, region=region, is_put_off=is_put_off
    )


def _above(at: FollowerAnswer, partition: Partition, asked: Asked) -> FollowerAnswer:
    """Answer a follower that ends above this log: ``at``, and where to cut. Raises KafkaError."""
    end = partition.log.log_end_offset
    if asked.last_fetched_epoch < 0:  # It holds nothing, and begins where another leader's began.
        return at._replace(diverging=EpochEnd(asked.leader_epoch, end))
    why = f"{partition.topic_partition}: {asked.fetch_offset} is above the end {end}"
    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)


def _region(partition: Partition, offset: int, max_bytes: int, *, is_first: bool) -> Region | None:
    """Return the batches from ``offset`` on; None if not even the first has room."""
    log = partition.log
    result = log.read(
        max(offset, log.log_start_offset),
        max_bytes=max_bytes,
        upper_offset=log.log_end_offset,
        min_one_message=is_first,
    )
    if result.first_batch_incomplete:
        return None
    follower_told(partition)
    return result.region


def is_vouched_for(partition: Partition, node: NodeId, asked: Asked) -> bool:
    """Tell whether a follower has what is committed, or is known to follow in this leader epoch.

    Compaction takes only what is committed.
    """
    state, view = partition.state, partition.view
    if node in state.isr or node in state.elr:
        return True
    remote = None if view is None else view.remote(node)
    return remote is not None and remote.broker_epoch == asked.broker_epoch


def _parted(
    partition: Partition, offset: int, epoch: int, *, is_vouched_for: bool
) -> EpochEnd | None:
    """Return where the logs part, by the epoch of the follower's last record. Raises KafkaError."""
    log = partition.log
    end = partition.end_offset_for_epoch(epoch)
    if end.epoch < 0:
        why = f"{partition.topic_partition}: nothing is known of leader epoch {epoch}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    if shares_nothing_known(
        end,
        log.log_start_offset,
        knows_epoch=log.leader_epochs.knows(epoch),
        is_vouched_for=is_vouched_for,
    ):
        return EpochEnd(epoch, 0)  # It begins anew then, for it ends below the start.
    left = divergence(end, offset, epoch)
    if left is not None or is_vouched_for or end.end_offset >= log.log_end_offset:
        return left
    reached = reached_below(log.segments, offset, end.end_offset)
    return end_of_what_is_left(end, log.log_start_offset, offset, reached)
