"""What one follower of this node's partitions has asked for, and been told.

Owns the state of a session (KIP-227) and what is news to its follower. Knows no partition and no
other session; ``follower_sessions`` keeps them.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ottla.env.clock import Timer
from ottla.errors import KafkaError
from ottla.ids import INT64_MAX, NodeId, TopicId, TopicPartition
from ottla.pending import Pending
from ottla.replication.follower import Asked
from ottla.replication.followers import FollowerAnswer

LOOKED_AT_SECONDS = 1.0
"""So often a partition is looked at again of which a follower has all."""
FIRST_EPOCH = 1
UNHEARD_SECONDS = 1.0
"""For so long a follower is let go that has not asked for what it should follow. After that it asks
when its wait is over: it may not be able to follow."""
FORGOTTEN_SECONDS = 60.0
"""After which that counts as news again, if records come."""


class FollowerSpec(NamedTuple):
    """One partition as a request of a follower names it."""

    where: TopicPartition
    topic_id: TopicId
    asked: Asked
    max_bytes: int
    """0: it has no space for records, and is told of all else."""
    log_start_offset: int = 0
    """Where the follower's own log starts."""
    high_watermark: int = INT64_MAX
    """What the follower knows, if consumers wait there for more (KIP-1166); else above all."""


class Followed:
    """One partition of a session."""

    __slots__ = ("spec", "told_high_watermark", "told_start_offset")

    def __init__(self, spec: FollowerSpec) -> None:
        self.spec = spec
        self.told_high_watermark = -1
        self.told_start_offset = -1

    def is_as(self, spec: FollowerSpec) -> bool:
        """Tell whether it was asked for under the same leadership before."""
        own = self.spec
        return (own.topic_id, own.asked.leader_epoch) == (spec.topic_id, spec.asked.leader_epoch)

    def news(self, found: FollowerAnswer) -> News | None:
        """Return what the follower is to be told now; None: nothing.

        It is taken for told, but for what is quiet, and for what comes with a cut: the follower
        takes no more of that than where to cut.
        """
        if found.parts:
            return News(self.spec, found)
        if (
            found.region is not None
            or found.high_watermark > self.spec.high_watermark
            or found.log_start_offset != self.told_start_offset
        ):
            self.told_high_watermark = found.high_watermark
            self.told_start_offset = found.log_start_offset
            return News(self.spec, found)
        if found.high_watermark != self.told_high_watermark:
            return News(self.spec, found, is_quiet=True)
        return None


class News(NamedTuple):
    """What a follower is to be told of one partition."""

    spec: FollowerSpec
    found: FollowerAnswer | KafkaError
    is_quiet: bool = False
    """Nothing but the high watermark has moved, and nobody waits for that: it goes along with an
    answer, and is the reason of none. Until it is ``told`` the partition stays due."""


class FollowerSession:
    """What one follower follows here."""

    def __init__(self, node: NodeId, broker_epoch: int, session_id: int) -> None:
        self.node = node
        self.broker_epoch = broker_epoch
        self.session_id = session_id
        self.epoch = FIRST_EPOCH
        """The epoch that the next request must carry."""
        self.partitions: dict[TopicPartition, Followed] = {}
        """Invariant: those looked at last come last."""
        self.due: dict[TopicPartition, None] = {}
        """Those to be looked at: named by the request, or moved since. May hold others."""
        self.waiting: Pending[None] | None = None
        """Use: the wait of its request for news; done at once when there is some."""
        self.timer: Timer | None = None
        self.gathering: Timer | None = None
        """Use: the wait ends then, if what it waits for has not come; see ``gathering``."""
        self.is_woken = False
        """Use: the wait ends with this turn of the loop."""
        self.asked_at = 0.0
        """Use: when it asked last, by the clock."""
        self.let_go_at = 0.0
        """Use: see NEWLY_LED_SECONDS."""
        self.unheard: dict[TopicPartition, float] = {}
        """Use: what it should follow and has not asked for, and since when. Invariant: the newest
        comes last."""
        self.let_go_timer: Timer | None = None
        """Use: when it is let go again."""

    def name(self, spec: FollowerSpec) -> None:
        """Take a partition as the request names it."""
        before = self.partitions.pop(spec.where, None)
        self.unheard.pop(spec.where, None)
        self.partitions[spec.where] = followed = Followed(spec)
        self.due[spec.where] = None
        if before is not None and before.is_as(spec):
            # Else each answer would be news, and the next request would be answered at once.
            followed.told_high_watermark = before.told_high_watermark
            if before.told_start_offset <= spec.log_start_offset:  # Else it was not taken.
                followed.told_start_offset = before.told_start_offset

    def forget(self, where: TopicPartition, topic_id: TopicId) -> None:
        """Follow it no more. Harmless when it is not followed."""
        followed = self.partitions.get(where)
        if followed is not None and followed.spec.topic_id == topic_id:
            del self.partitions[where]

    def has_unheard(self, now: float) -> bool:
        """Tell whether it should follow something since lately that it has not asked for."""
        unheard = self.unheard
        while unheard and now - next(iter(unheard.values())) >= FORGOTTEN_SECONDS:
            del unheard[next(iter(unheard))]
        return bool(unheard) and now - next(reversed(unheard.values())) < UNHEARD_SECONDS

    def told(self, news: News) -> None:
        """Take note that the follower is told of ``news``, which is quiet."""
        spec, found, _ = news
        followed = self.partitions.get(spec.where)
        if followed is not None and followed.spec is spec and isinstance(found, FollowerAnswer):
            followed.told_high_watermark = found.high_watermark
            self.due.pop(spec.where, None)

    def ask_again(self, now: float) -> None:
        """Let as many of the others be due as the time since the last request asks for."""
        share = (now - self.asked_at) / LOOKED_AT_SECONDS
        self.asked_at = now
        count = min(ceil(len(self.partitions) * share), len(self.partitions))
        for where, _ in zip(self.partitions, range(count), strict=False):
            self.due[where] = None
