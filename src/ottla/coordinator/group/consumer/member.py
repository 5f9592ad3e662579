"""A member of a KIP-848 group: its subscription, and its way to its target. Pure.

    STABLE --its target takes partitions away--> UNREVOKED_PARTITIONS --it has given them up-->
    STABLE, or UNRELEASED_PARTITIONS while others still hold what it is to get

A value: a member that goes on is another one. Source: KIP-848; Kafka 4.3, asked.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.coordinator.group.classic.group import Protocol
from ottla.ids import TopicId

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member is away and will be back."""

Partitions = Mapping[TopicId, Mapping[int, int]]
"""By topic: each partition, and the member epoch in which it was assigned."""
Target = Mapping[TopicId, frozenset[int]]
Owned = Mapping[TopicId, Collection[int]]
NO_PARTITIONS: Partitions = {}
NO_TARGET: Target = {}


class MemberState(IntEnum):
    """A member's states on the way to its target; the numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = {
    MemberState.STABLE: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNREVOKED_PARTITIONS: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNRELEASED_PARTITIONS: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNKNOWN: frozenset((MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)),
}
"""The states that may follow each state at a heartbeat. UNKNOWN is a number in the log of a later
Kafka: its member is fenced until it holds nothing, and starts anew."""


class ClassicPart(NamedTuple):
    """The JoinGroup of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the order of its preference; the answers name the first one."""


class ConsumerMember(NamedTuple):
    """A member: its subscription, and its way to its target."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The topics to which it subscribes by name, sorted."""
    regex: str = ""
    """A regular expression of further topics; empty: none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    """-2: a static member that is away."""
    previous_epoch: int = 0
    """The answer with ``epoch`` may have been lost: the member may still say this one."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """The partitions to give up first. Invariant: empty unless UNREVOKED_PARTITIONS."""
    classic: ClassicPart | None = None
    """None: it speaks the consumer protocol."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Tell whether the member holds exactly its target of ``epoch``."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        """What it reads."""
        return self.topics, self.regex
