"""A classic group: its members, its generation, and which state may follow which. Pure.

    Empty ---a member joins---> PreparingRebalance <--------------------.
      ^                             |        ^                          |
      '---nobody is left------------'        |  a member comes, goes    |
                                    v        |  or changes its mind     |
                          CompletingRebalance-'---leader's assignment--> Stable

Owns the data and its invariants; ``classic.rebalance`` and the modules beside it change the data.
The answers that each JoinGroup needs (do all members know a protocol, have all joined) are counted
as members come and go: a look at all members each time made a rebalance quadratic.
Source: Kafka's ClassicGroup and KIP-345; the words are Kafka's.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.coordinator.group.classic.subscription import subscribed_topics_of
from ottla.coordinator.group.registry import GroupKind, OffsetCommitter, check_is_empty
from ottla.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_LEADER = ""
CLASSIC = GroupKind("classic")


class GroupState(Enum):
    """The value is what ListGroups and DescribeGroups say."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.PREPARING_REBALANCE: frozenset(
        (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD)
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        (GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD)
    ),
    GroupState.STABLE: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.DEAD: frozenset((GroupState.DEAD,)),
}
"""The transition table: what may follow each state."""


class Protocol(NamedTuple):
    """A way of assigning partitions that a member knows, and its metadata for it."""

    name: str
    metadata: bytes


class Member:
    """A member. ``awaiting_join`` and ``awaiting_sync`` are requests that wait for an answer."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        """The name of a static member (KIP-345); None: a dynamic one."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = tuple(protocols)
        """In the order of the member's preference."""
        self.assignment = assignment
        self.awaiting_join: object | None = None
        self.awaiting_sync: object | None = None
        self.is_new = False
        """Use: the member has not seen a generation yet; it is removed if its client is silent."""

    @property
    def metadata_bytes(self) -> int:
        """The bytes of its protocols, names and metadata."""
        return metadata_bytes_of(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata for a protocol; empty if the member does not know it."""
        return metadata_of(self.protocols, protocol)


def metadata_of(protocols: Sequence[Protocol], name: str | None) -> bytes:
    """Return the metadata for the protocol of that name; empty if it is not among them."""
    for known in protocols:  # Not a generator: a rebalance calls this very often.
        if known.name == name:
            return known.metadata
    return b""


def metadata_bytes_of(protocols: Sequence[Protocol]) -> int:
    """Return the bytes of the protocols' names and metadata; a name counts by its characters."""
    return sum(len(known.name) + len(known.metadata) for known in protocols)


class ClassicGroup:
    """A classic group."""

    kind = CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        """When the state changed last, by the wall clock; the retention of an empty group's offsets
        begins then. -1: a log from before Kafka 2.1 does not say."""
        self.generation = 0
        """Use: fences members of earlier rebalances. Invariant: only grows."""
        self.protocol_type: str | None = None
        """None: no member ever joined; the offsets come from clients without a group."""
        self.protocol: str | None = None
        self._leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id. Invariant: exactly the members that have an instance id."""
        self.pending_joins: dict[str, None] = {}
        """Use: ids that were given out and have not joined yet (KIP-394), the oldest first.
        Invariant: no id of a member."""
        self._joined = 0
        """Invariant: exactly the members whose JoinGroup waits."""
        self._knowing: Counter[str] = Counter()
        """Invariant: for each protocol, the number of members that know it."""
        self._preferring: Counter[tuple[str, ...]] = Counter()
        """Invariant: for each order of preference, the number of members that have it."""
        self.metadata_bytes = 0
        """Invariant: the bytes of all members' protocols."""
        self.pending_syncs: set[str] = set()
        """Use: members of this generation that have not sent SyncGroup yet."""
        self.member_added = False
        """Use: a member came during the initial delay, so waiting longer is worthwhile."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members read; None: they are not known, or not consumers."""

    # What is asked of it.

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns; None: there are no members.

        The successor of a leader that has gone is found when it is asked for: many members go at
        once, and a search for the first member behind all those that have gone takes a look at
        each.
        """
        if self._leader is None:
            self._leader = next(iter(self.members), None)
        return self._leader

    @leader.setter
    def leader(self, member_id: str | None) -> None:
        self._leader = member_id

    @property
    def is_consumer_group(self) -> bool:
        """Tell whether the members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``; True if the subscriptions cannot be read."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    @property
    def awaiting_join_count(self) -> int:
        """The members whose JoinGroup waits."""
        return self._joined

    @property
    def has_all_members_joined(self) -> bool:
        """Tell whether all members have joined, and all ids that were given out."""
        return not self.pending_joins and self._joined == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no instance {instance_id!r}")
            if known != member_id:
                why = f"instance {instance_id!r} is {known!r} now"
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, why)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id!r}")
        return member

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Tell whether a client with these protocols can be a member."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._knowing[protocol.name] == len(self.members) for protocol in protocols
        )

    def select_protocol(self) -> str | None:
        """Return the protocol that most members prefer, among those that all members know."""
        everybody = len(self.members)
        candidates = {name for name, count in self._knowing.items() if count == everybody}
        votes: dict[str, int] = {}
        for preferred, count in self._preferring.items():
            liked = next((name for name in preferred if name in candidates), None)
            if liked is not None:
                votes[liked] = votes.get(liked, 0) + count
        return max(votes, key=lambda name: votes[name]) if votes else None

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    def check_offset_commit(self, commit: OffsetCommitter) -> None:
        """Raise KafkaError unless the offsets may be written.

        A client that is in no group may commit to a group without members.
        """
        if commit.generation < 0 and self.is_empty:
            return
        if commit.generation >= 0 or commit.member_id or commit.instance_id is not None:
            self.check_member(commit.member_id, commit.instance_id)
            if commit.generation != self.generation:
                why = f"generation {commit.generation}, it is {self.generation} now"
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, why)
        elif not commit.is_transactional:  # TxnOffsetCommit names no member before v3.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
        if not commit.is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "assignments are on their way")

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Let every client read: OffsetFetch names members of the consumer protocol only."""

    def check_offset_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) if the group has members that are not consumers."""
        if not self.is_consumer_group:
            check_is_empty(self)

    def check_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) unless the group has no members."""
        check_is_empty(self)

    def retained_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return when the retention of an offset begins; None: the group keeps the offset."""
        is_simple = self.protocol_type is None
        is_read_known = self.is_consumer_group and self.subscribed_topics is not None
        is_settled = is_simple or self.is_empty
        if not is_settled and not (is_read_known and self.state is GroupState.STABLE):
            return None
        if self.is_subscribed_to(topic):
            return None
        if self.is_empty and not is_simple and self.state_timestamp_ms >= 0:
            return self.state_timestamp_ms
        return commit_timestamp_ms

    def topics_changed(self, names: Collection[str]) -> None:
        """Do nothing: the leader follows the topics, and joins again."""

    # What changes it.

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Go to ``state``, which must be allowed."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def _count(self, member: Member, by: int) -> None:
        names = tuple(known.name for known in member.protocols)
        for name in set(names):
            self._knowing[name] += by
            if not self._knowing[name]:
                del self._knowing[name]
        self._preferring[names] += by
        if not self._preferring[names]:
            del self._preferring[names]
        self.metadata_bytes += by * member.metadata_bytes
        if member.awaiting_join is not None:
            self._joined += by

    def await_join(self, member: Member, reply: object) -> None:
        """Note that a member's JoinGroup waits for the next generation."""
        self._joined += member.awaiting_join is None
        member.awaiting_join = reply

    def end_join(self, member: Member) -> object | None:
        """End the wait of a member's JoinGroup, and return it; None: none waited."""
        reply, member.awaiting_join = member.awaiting_join, None
        self._joined -= reply is not None
        return reply

    def set_protocols(self, member: Member, protocols: Sequence[Protocol]) -> None:
        """Note a member's protocols as they are now."""
        self._count(member, -1)
        member.protocols = tuple(protocols)
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; another member leads if the leader goes."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
        if member is not None and member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self._leader == member_id:
            self._leader = None
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def replace(self, old_id: str, new_id: str) -> Member:
        """Let a static member go on under a new id; the old one is fenced."""
        is_leader = self.leader == old_id
        member = self.members.pop(old_id)
        assert member.instance_id is not None, "only a static member is replaced"
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id
        if is_leader:
            self._leader = new_id
        self.pending_syncs.discard(old_id)
        return member

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined; return False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        joined = [one for one in self.members.values() if one.awaiting_join is not None]
        if joined:
            self.leader = joined[0].member_id
        return bool(joined)

    def next_generation(self, now_ms: int) -> None:
        """Begin a generation with the present members; without any the group is empty."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self.note_subscriptions()
        self.transition(
            GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms
        )
        self.pending_syncs.clear()

    def note_subscriptions(self) -> None:
        """Note the topics that the members read."""
        self.subscribed_topics = None
        if self.is_consumer_group and (self.protocol is not None or not self.members):
            self.subscribed_topics = subscribed_topics_of(
                {member.metadata(self.protocol) for member in self.members.values()}
            )

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert not self.pending_joins.keys() & set(self.members)
        waiting = [one for one in self.members.values() if one.awaiting_join is not None]
        assert self._joined == len(waiting)
        knowing: Counter[str] = Counter()
        for one in self.members.values():
            knowing.update({known.name for known in one.protocols})
        assert self._knowing == knowing
        assert self.metadata_bytes == sum(one.metadata_bytes for one in self.members.values())
        assert self._preferring == Counter(
            tuple(known.name for known in one.protocols) for one in self.members.values()
        )
        assert self.pending_syncs <= set(self.members)
        assert self.leader is None or self.leader in self.members
        assert (self.leader is None) == (not self.members)
        assert self.static_members == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        for member_id, member in self.members.items():
            assert member.member_id == member_id
        if self.state is GroupState.EMPTY:
            assert not self.members
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert self.members, "a generation has members"
            assert self.protocol is not None, "a generation has a protocol"
            assert all(
                member.awaiting_join is None or member.instance_id is not None
                for member in self.members.values()
            ), "only a static member may wait, for its new id to be durable"
        if self.state is not GroupState.COMPLETING_REBALANCE:
            assert all(member.awaiting_sync is None for member in self.members.values())
