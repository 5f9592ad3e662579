"""The events that happen to a classic group, and the effects that follow. Values only.

``step(group, event, now_ms, settings)`` takes an event and returns effects, which the shard carries
out in their order. A ``reply`` is opaque: it stands for the client that waits for the answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.coordinator.group.classic.group import NO_LEADER, Protocol
from ottla.errors import ErrorCode


class ClassicSettings(NamedTuple):
    """What the node's options say to all classic groups."""

    initial_rebalance_delay_ms: int
    """``group.initial.rebalance.delay.ms``"""
    members_max: int
    """``group.max.size``"""
    new_member_timeout_ms: int = 5 * 60 * 1000
    """How long the first JoinGroup of a member may wait. Kafka's constant; not an option."""
    metadata_max_bytes: int = 8 * 1024 * 1024
    """``ottla.group.metadata.max.bytes``, of all members of one group."""
    pending_ids_max: int = 1000
    """``ottla.group.pending.ids.max``, of one group; one more replaces the oldest."""


# Events.


class Join(NamedTuple):
    """JoinGroup."""

    reply: object
    member_id: str
    """Empty: the member has no id yet."""
    new_member_id: str
    """The id that the member gets if it needs one."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_member_id: bool
    """A member without an id gets one, and has to join again with it (v4, KIP-394)."""
    can_skip_assignment: bool
    """A static leader that comes back may be told that it is the leader (v9, KIP-814)."""
    is_new_group: bool
    """The group was made for this request."""
    new_consumer_id: str = ""
    """The id that the member gets in a consumer group, instead of ``new_member_id``."""


class Sync(NamedTuple):
    """SyncGroup."""

    reply: object
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class Heartbeat(NamedTuple):
    """Heartbeat; answered with a code."""

    reply: object
    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """A member to be removed: by id, or (id empty) by instance id."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """LeaveGroup."""

    reply: object
    members: Sequence[LeavingMember]


class SessionExpired(NamedTuple):
    """A member, or an id that was given out, was silent for its session timeout."""

    member_id: str


class JoinDelayOver(NamedTuple):
    """The initial delay is over; the group may wait so much more if a member came meanwhile."""

    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: go on with the members that have joined."""


class SyncExpired(NamedTuple):
    """The rebalance timeout is over, and some members have not sent SyncGroup."""

    generation: int


class AssignmentStored(NamedTuple):
    """The leader's assignment is durable, or could not be written."""

    generation: int
    assignments: Mapping[str, bytes]
    code: ErrorCode


class StaticMemberStored(NamedTuple):
    """A static member's new id is durable, or could not be written."""

    join: Join
    member_id: str
    old_member_id: str
    old_leader: str | None
    old_protocols: tuple[Protocol, ...]
    old_timeouts_ms: tuple[int, int]
    """The rebalance timeout and the session timeout."""
    code: ErrorCode


class RejoinAll(NamedTuple):
    """All members have to join again: the group is too large, or was a consumer group before."""


Event = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | SessionExpired
    | JoinDelayOver
    | JoinExpired
    | SyncExpired
    | AssignmentStored
    | StaticMemberStored
    | RejoinAll
)


# Answers.


class JoinMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """The answer to JoinGroup."""

    member_id: str
    code: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinMember, ...] = ()
    """Empty except for the leader."""


class SyncAnswer(NamedTuple):
    """The answer to SyncGroup."""

    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveAnswer(NamedTuple):
    """The outcome for one member of a LeaveGroup."""

    member: LeavingMember
    code: ErrorCode


# Effects.


class TimerKind(Enum):
    """The kinds of a group's timers."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class Answer(NamedTuple):
    """Answer a request."""

    reply: object
    answer: JoinAnswer | SyncAnswer | ErrorCode | tuple[LeaveAnswer, ...]


class Store(NamedTuple):
    """Write the group as it is now, with these assignments; then ``stored`` happens."""

    assignments: Mapping[str, bytes]
    stored: AssignmentStored | StaticMemberStored | None
    """The event, with the outcome of the write; None: nothing waits for it."""


class StoreNew(NamedTuple):
    """Write that the group exists; if that fails, it does not, and ``reply`` is answered."""

    reply: object


class SetTimer(NamedTuple):
    """Let ``event`` happen after a delay; replaces the timer of this kind (and member)."""

    kind: TimerKind
    member_id: str
    """Empty unless ``kind`` is SESSION."""
    delay_ms: int
    event: Event


class CancelTimer(NamedTuple):
    """Forget a timer."""

    kind: TimerKind
    member_id: str = ""


class Gradually(NamedTuple):
    """Carry out effects for all members, in order; if they are many, some per turn of the loop.

    Each effect is made when it is carried out, from what no later event changes. A member may have
    gone by then: its extended session ends without effect.
    """

    members: int
    """How many members are told."""
    effects: Iterable[Answer | SetTimer]


Effect = Answer | Store | StoreNew | SetTimer | CancelTimer | Gradually
