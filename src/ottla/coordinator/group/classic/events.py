"""What happens to a classic group, and what has to happen because of it. Values only.

``step(group, event, now_ms, settings)`` takes one of the events and gives effects, which the shard
carries out in their order. A ``reply`` is opaque: whoever waits for the answer.
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
    """How long a first JoinGroup may wait before its member is given up. Kafka's; no option."""
    pending_ids_max: int = 1000
    """``ottla.group.pending.ids.max``: of one group; the oldest is forgotten for one more."""


# Events.


class Join(NamedTuple):
    """JoinGroup."""

    reply: object
    member_id: str
    """Empty: it has none yet."""
    new_member_id: str
    """What it gets if it needs one."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_known_member_id: bool
    """A member without an id is sent away with one (v4, KIP-394)."""
    can_skip_assignment: bool
    """A static leader that comes back may be told that it leads (v9, KIP-814)."""
    is_new_group: bool
    """The group was made for this request."""
    new_consumer_id: str = ""
    """What it gets instead of ``new_member_id`` in a consumer group."""


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
    """A member to be taken out: by id, or (id empty) by instance id."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """LeaveGroup."""

    reply: object
    members: Sequence[LeavingMember]


class SessionExpired(NamedTuple):
    """Nothing was heard of a member, or of an id that was given out, for its session timeout."""

    member_id: str


class JoinDelayOver(NamedTuple):
    """The initial delay is over; so much more may be waited if somebody came meanwhile."""

    delay_ms: int
    remaining_ms: int


class JoinExpired(NamedTuple):
    """The rebalance timeout is over: go on with those who have joined."""


class SyncExpired(NamedTuple):
    """The rebalance timeout is over, and some of a generation have not sent SyncGroup."""

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
    """Rebalance and session."""
    code: ErrorCode


class RejoinAll(NamedTuple):
    """All have to come again: a group is over its size, or was a consumer group before."""


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
    """What the leader is told of a member."""

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
    """Empty for everybody but the leader."""


class SyncAnswer(NamedTuple):
    """The answer to SyncGroup."""

    code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveAnswer(NamedTuple):
    """What became of one member of a LeaveGroup."""

    member: LeavingMember
    code: ErrorCode


# Effects.


class TimerKind(Enum):
    """What a group's timers are for."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class Answer(NamedTuple):
    """Answer a request."""

    reply: object
    answer: JoinAnswer | SyncAnswer | ErrorCode | tuple[LeaveAnswer, ...]


class Store(NamedTuple):
    """Write the group as it is now, with these assignments; then ``stored``, with the outcome."""

    assignments: Mapping[str, bytes]
    stored: AssignmentStored | StaticMemberStored | None
    """None: nobody waits for it."""


class StoreNew(NamedTuple):
    """Write that there is such a group; if that fails there is none, and ``reply`` hears why."""

    reply: object


class SetTimer(NamedTuple):
    """Bring about ``event`` after a delay; replaces the timer of this kind (and member)."""

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
    """Carry these out in order, if many some per turn of the loop: what all members are told.

    They are made as they are carried out, of what no later event changes. Somebody may have gone
    by then: a session that is extended so ends unheard.
    """

    members: int
    """So many are told."""
    effects: Iterable[Answer | SetTimer]


Effect = Answer | Store | StoreNew | SetTimer | CancelTimer | Gradually
