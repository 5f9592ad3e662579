"""A KIP-848 group: its members, epochs, targets, and owners of partitions. Pure.

    Empty --a member joins--> Assigning --a target is computed--> Reconciling --all there--> Stable

The state of the group follows from its members, each of which is on its own way to its target
(``consumer.member``). ``Tally`` counts what all members ask for as they change.
``consumer.machine`` and ``consumer.reconcile`` decide about events; only ``replay`` of
``consumer.records`` changes a group. Source: KIP-848; Kafka 4.3, asked.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState, Target
from ottla.coordinator.group.consumer.tally import NO_CHANGE, Change, Tally
from ottla.coordinator.group.registry import GroupKind, OffsetCommitter, check_is_empty
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

CONSUMER = GroupKind("consumer")
FIRST_EPOCH = 1
"""A group's epoch before its first member joins, which makes it 2."""


class ConsumerGroupState(Enum):
    """The value is what ListGroups and ConsumerGroupDescribe say."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression."""

    topics: frozenset[str]
    version: int
    """The metadata revision of those topics."""
    timestamp_ms: int


MATCH_AGAIN_MS = 600_000
"""How often expressions are held against all topics when there is an authorizer, as in Kafka."""


def no_consumer_group(group_id: str) -> KafkaError:
    """Return the error of a group that is not a KIP-848 group."""
    why = f"Group {group_id} is not a consumer group."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)


class ConsumerGroup:
    """A KIP-848 group. Only replay changes it."""

    kind = CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        """Use: grows with every change of members, subscriptions or their topics."""
        self.metadata_hash = 0
        """Use: the hash of the topics that were read when the epoch last grew; 0: none."""
        self.assignment_epoch = 0
        """Use: the epoch that ``targets`` are for. Invariant: not above ``epoch``."""
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.tally = Tally()
        """Invariant: counts exactly ``members``."""
        self.static_members: dict[str, str] = {}
        """Member ids by instance id. Invariant: exactly the members that have an instance id."""
        self.targets: dict[str, Target] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[TopicId, int], str] = {}
        """The holders of partitions. Invariant: exactly what members have assigned or revoking."""
        self.is_stale = True
        """Use: topics may have changed since the epoch last grew: the next heartbeat looks."""
        self.changed_topics: set[str] | None = None
        """Use: those topics, for the expressions; None: any (the group was just loaded)."""
        self.matched_ms = 0
        """Use: when, by the wall clock, the expressions were last held against all topics."""

    @property
    def state(self) -> ConsumerGroupState:
        """The group's state, which follows from its members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self.tally.settled[self.assignment_epoch] == len(self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member. Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            why = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return member

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return a member by its name. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        known_id = self.static_members.get(instance_id)
        if known_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known_id != member_id:
            why = f"Static member {member_id} with instance id {instance_id} was fenced by member "
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{why}{known_id}.")
        return self.members[known_id]

    def takes_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Tell whether a member of the classic protocol with these assignors may join."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return any(self.tally.protocols[name] == self.tally.classic for name in names)

    def topics_of(
        self, member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
    ) -> frozenset[str]:
        """Return the names of the topics that a member reads, by name or by its expression."""
        names = frozenset(member.topics)
        resolved = regexes.get(member.regex) if member.regex else None
        return names if resolved is None else names | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``."""
        return topic in self.tally.topics or any(
            topic in self.regexes[regex].topics
            for regex in self.tally.regexes
            if regex in self.regexes
        )

    def topics_read(
        self, regexes: Mapping[str, ResolvedRegex], change: Change = NO_CHANGE
    ) -> set[str]:
        """Return the names of all topics that the members read after ``change``."""
        named, matching = self.tally.topics_after(change), self.tally.regexes_after(change)
        names = set(self.tally.topics)
        names -= named.lost
        names |= named.gained
        for regex in (self.tally.regexes.keys() - matching.lost) | matching.gained:
            if regex in regexes:
                names |= regexes[regex].topics
        return names

    def topics_changed(self, names: Collection[str]) -> None:
        """Note changed topics for the next heartbeat, if the members may read them."""
        if self.tally.regexes or any(name in self.tally.topics for name in names):
            self.is_stale = True
            if self.changed_topics is not None:
                self.changed_topics.update(names)

    def look_again(self, now_ms: int) -> None:
        """Have expressions held against all topics if that is long ago.

        Who may see which topics may have changed, of which nobody tells a group.
        """
        if self.tally.regexes and not 0 <= now_ms - self.matched_ms < MATCH_AGAIN_MS:
            self.is_stale, self.changed_topics = True, None

    def looked(self, now_ms: int) -> None:
        """Note that a heartbeat has looked at the topics."""
        if self.changed_topics is None:
            self.matched_ms = now_ms
        self.is_stale, self.changed_topics = False, set()

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    # Its offsets.

    def check_offset_commit(self, commit: OffsetCommitter) -> None:
        """Raise KafkaError unless the offsets may be written."""
        is_nobody = (commit.member_id, commit.instance_id, commit.generation) == ("", None, -1)
        if commit.is_transactional and is_nobody:
            return
        is_old = not commit.is_transactional and not commit.tells_unknown_group
        member = self.members.get(commit.member_id)
        if is_old and member is not None and member.classic is None:
            why = "the consumer protocol needs OffsetCommit v9"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
        try:
            self._check_partitions(commit.member_id, commit.generation, commit.places())
        except KafkaError as error:
            if commit.is_transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.why) from error
            raise

    def _check_partitions(
        self, member_id: str, epoch: int, places: Iterable[tuple[TopicId, int]]
    ) -> None:
        """Raise KafkaError unless the member may commit these partitions in ``epoch``.

        A member that is in a later epoch may commit the partitions that it has had since
        (KIP-1251).
        """
        if epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise _stale(member, epoch)
        for topic_id, number in places:
            since = member.assigned.get(topic_id, {}).get(number)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(number)
            if since is None or epoch < since:
                raise _stale(member, epoch)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH) unless that member may read."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(member, epoch)

    def check_offset_delete(self) -> None:
        """Let offsets be deleted of topics that nobody reads."""

    def check_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) unless the group has no members."""
        check_is_empty(self)

    def retained_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return when the retention of an offset begins; None: the group keeps the offset."""
        return None if self.is_subscribed_to(topic) else commit_timestamp_ms

    # What replay does.

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        if old is not None and old.instance_id is not None:
            self._forget_instance(old)
        self.members[member.member_id] = member
        self.tally.replace(old, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    self.owners[topic_id, number] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member. Its target has a record of its own."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.tally.replace(member, None)
            self._release(member)
            self._forget_instance(member)

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    if self.owners.get((topic_id, number)) == member.member_id:
                        del self.owners[topic_id, number]

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert self.assignment_epoch <= self.epoch
        self.tally.check(self.members.values())
        held: dict[tuple[TopicId, int], str] = {}
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            assert member.state is MemberState.UNREVOKED_PARTITIONS or not member.revoking
            for partitions in (member.assigned, member.revoking):
                for topic_id, numbers in partitions.items():
                    assert numbers, "no topic without partitions"
                    for number in numbers:
                        other = held.setdefault((topic_id, number), member_id)
                        assert other == member_id, f"{number} is held by {other} and {member_id}"
        assert held == self.owners
        assert self.static_members == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }


def _stale(member: ConsumerMember, epoch: int) -> KafkaError:
    why = f"The received member epoch {epoch} does not match the expected member epoch "
    is_classic = member.classic is not None
    code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, f"{why}{member.epoch}.")
