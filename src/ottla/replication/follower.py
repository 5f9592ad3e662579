"""What a follower asks for, which answers it takes, and where it cuts its log.

Owns the decisions of one replica that follows a leader. A follower asks only when all it has is
synced, so its fetch offset tells the leader what is durable there. It takes only the answer to its
newest request, and cuts off what the leader does not have before it appends anything. The
checkpointed high watermark decides nothing. Knows no log, no connection and no timer. Source:
KIP-101, KIP-279, KIP-595 (diverging epoch in Fetch); tests/model checks these functions.
"""

from typing import NamedTuple

from ottla.ids import LeaderEpoch, NodeId
from ottla.log.contents.leader_epochs import EpochEnd


class Asked(NamedTuple):
    """One fetch of a follower. Two fetches of one process are never equal: the number differs."""

    number: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    broker_epoch: int
    """The registration of the node that asks."""
    fetch_offset: int
    """Exclusive end of its log, all of it synced."""
    last_fetched_epoch: int
    """Leader epoch of its last record; -1: the log is empty."""


def next_fetch(
    number: int,
    *,
    leader: tuple[NodeId, LeaderEpoch],
    broker_epoch: int,
    log_end_offset: int,
    synced_offset: int,
    latest_epoch: int,
) -> Asked | None:
    """Return what to ask of ``leader`` (node and epoch) now; None: not before all is synced."""
    if synced_offset < log_end_offset:
        return None
    return Asked(number, *leader, broker_epoch, log_end_offset, latest_epoch)


def may_take(
    answered: Asked,
    newest: Asked | None,
    *,
    leader: tuple[NodeId, LeaderEpoch],
    broker_epoch: int,
    log_end_offset: int,
) -> bool:
    """Tell whether the answer to ``answered`` still holds.

    It does if that is the newest request, of the present registration, to the present leader (node
    and epoch), and the log still ends where it did.
    """
    return (
        answered == newest
        and answered.broker_epoch == broker_epoch
        and (answered.leader, answered.leader_epoch) == leader
        and answered.fetch_offset == log_end_offset
    )


def truncation_offset(diverging: EpochEnd, own_end: EpochEnd, log_end_offset: int) -> int:
    """Return where the follower's log has to end (exclusive) before it asks again.

    ``diverging``: the leader's answer. ``own_end``: the follower's own end offset for that epoch,
    -1 if it knows no epochs. It may take several rounds until both logs agree (KIP-279).
    """
    if own_end.end_offset < 0:
        return min(diverging.end_offset, log_end_offset)
    return min(diverging.end_offset, own_end.end_offset, log_end_offset)


def followed_high_watermark(
    high_watermark: int, leaders_high_watermark: int, log_end_offset: int
) -> int:
    """Return the follower's high watermark after an append: the leader's, up to its log's end."""
    return max(high_watermark, min(leaders_high_watermark, log_end_offset))
