"""Whether a leader of several replicas may take itself for the one that the others know.

A process that stood still, or is cut off from the metadata, may have been replaced without knowing.
It acknowledges no record to ``acks=all`` then: that needs fetches of everybody who may be elected.
Records of ``acks=0`` and ``acks=1`` it takes while its registration exists for certain, because
nobody else is elected before it ends. After that it takes them only while everybody who may be
elected follows it in this leader epoch, and has done so since.

A fetch that is read now may have been sent long ago, before this process stood still. But it was
sent after the answer to the one before. So a fetch proves that its sender followed when that one
was answered, and nothing later. Knows no store. Source: cluster design 3.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.clock import Clock
from ottla.ids import LeaderEpoch, NodeId, TopicPartition

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

RECENT_SECONDS = 3.0
"""How old the last sign may be. A leader looks at each partition of a follower once per second."""
PREPARED_SECONDS = 2.0
"""Signs are noted from so long before the registration becomes uncertain."""


class _Sign(NamedTuple):
    epoch: LeaderEpoch
    heard_at: float
    """When the newest fetch was read."""
    followed_at: float
    """When its sender followed for certain."""


class Standing:
    """The one of this process."""

    def __init__(
        self,
        clock: Clock,
        certain_until: Callable[[], float],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """``certain_until``: until when this node is registered for certain, by ``clock``.

        And until when it would have heard of another leader. ``stop``: ends what finds that out.
        """
        self.stop = stop
        self._clock = clock
        self._certain_until = certain_until
        self._signs: dict[tuple[TopicPartition, NodeId], _Sign] = {}
        """Invariant: empty while the registration is certain for long."""

    def fetched(self, partition: Partition, node: NodeId) -> None:
        """Note that a fetch of a follower, in the present leader epoch, was read."""
        now = self._clock.monotonic()
        if now < self._certain_until() - PREPARED_SECONDS:
            if self._signs:
                self._signs.clear()
            return
        key, epoch = (partition.topic_partition, node), partition.leader_epoch
        before = self._signs.get(key)
        is_known = before is not None and before.epoch == epoch
        followed_at = before.heard_at if before is not None and is_known else float("-inf")
        self._signs[key] = _Sign(epoch, now, followed_at)

    def may_take(self, partition: Partition) -> bool:
        """Whether records may be taken that nobody else has to have."""
        now, certain_until = self._clock.monotonic(), self._certain_until()
        if now <= certain_until:
            return True
        since = max(certain_until, now - RECENT_SECONDS)
        state = partition.state
        for node in (*state.isr, *state.elr):
            if node == state.leader:
                continue
            sign = self._signs.get((partition.topic_partition, node))
            if sign is None or sign.epoch != state.leader_epoch or sign.followed_at < since:
                return False
        return True
