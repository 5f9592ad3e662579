"""Converts a group from one protocol to the other while its members read on. Pure.

    classic --a member of the consumer protocol joins--> consumer
    consumer --the last such member goes, classic ones are left--> classic

In both directions, one batch deletes the records of the old group and writes those of the new one.
A group keeps its epoch: the generation of one is the epoch of the other. Source: KIP-848, online
migration; the batches of a live Kafka 4.3.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from ottla.coordinator.group.classic import records
from ottla.coordinator.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
    Member,
)
from ottla.coordinator.group.classic.subscription import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import ConsumerGroup, no_consumer_group
from ottla.coordinator.group.consumer.member import ClassicPart, ConsumerMember, Partitions
from ottla.coordinator.group.consumer.settings import MigrationPolicy
from ottla.coordinator.group.consumer.targets import metadata_hash_of, names_by_id
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import TopicId
from ottla.sliced import STRIDE, Steps, each

SLICE_BYTES = 64 * 1024
"""After so many bytes of what members say others have a turn."""
MEMBER_BYTES = SLICE_BYTES // STRIDE
"""As many bytes as a member costs that says nothing."""

# From classic to consumer.


class Upgrade(NamedTuple):
    """The new group, and the records that replace the old one by it."""

    group: ConsumerGroup
    records: list[CoordinatorRecord]


def check_upgrade(group: ClassicGroup, policy: MigrationPolicy, *, members_max: int) -> None:
    """Raise KafkaError (GROUP_ID_NOT_FOUND) unless the group may become a consumer group."""
    if (
        not policy.may_upgrade
        or not group.is_consumer_group
        or len(group.members) > members_max
        or group.protocol is None
    ):
        raise no_consumer_group(group.group_id)


def upgraded(group: ClassicGroup, topics: Topics) -> Steps[Upgrade]:
    """Return the consumer group that a classic one becomes: members keep their partitions.

    In steps between which the group's members stay. Raises KafkaError (GROUP_ID_NOT_FOUND) if the
    bytes of a member cannot be read.
    """
    new = ConsumerGroup(group.group_id)
    new.epoch = new.assignment_epoch = group.generation
    try:
        had = yield from _had_by_all(group, topics)
        yield from _each_by_bytes(
            group, lambda member: new.put(_upgraded_member(group, member, had[member.member_id]))
        )
    except ValueError as error:
        raise no_consumer_group(group.group_id) from error
    group_id, members = new.group_id, list(new.members.values())
    for one in members:
        new.targets[one.member_id] = {
            topic_id: frozenset(numbers) for topic_id, numbers in one.assigned.items()
        }
    new.metadata_hash = yield from metadata_hash_of(new.topics_read({}), topics)
    found = [records.group_tombstone(group_id)]
    found += yield from each(members, partial(consumer_records.member_record, group_id))
    found.append(consumer_records.group_record(group_id, new.epoch, new.metadata_hash))
    found += yield from each(
        new.targets.items(), lambda one: consumer_records.target_record(group_id, *one)
    )
    found.append(consumer_records.target_epoch_record(group_id, new.epoch, 0))
    found += yield from each(members, partial(consumer_records.current_record, group_id))
    return Upgrade(new, found)


def _upgraded_member(group: ClassicGroup, member: Member, had: Partitions) -> ConsumerMember:
    subscription = read_subscription(member.metadata(group.protocol))
    return ConsumerMember(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=had,
        classic=ClassicPart(member.session_timeout_ms, member.protocols),
    )


def _had_by_all(group: ClassicGroup, topics: Topics) -> Steps[Mapping[str, Partitions]]:
    """Return the partitions that each member may be reading.

    They are those that it was given, and those that it said to own in its last JoinGroup: in the
    middle of a cooperative rebalance a member reads on what it is about to lose. A leader may have
    assigned partitions that do not exist, or one to two members; then the first one has it.
    """
    taken: set[tuple[TopicId, int]] = set()
    had: dict[str, dict[TopicId, dict[int, int]]] = {member_id: {} for member_id in group.members}

    def take(member: Member, partitions: Mapping[str, tuple[int, ...]]) -> None:
        for name, numbers in partitions.items():
            topic = topics.topic(name)
            if topic is None:
                continue
            for number in numbers:
                is_there = 0 <= number < len(topic.partitions)
                if is_there and (topic.topic_id, number) not in taken:
                    taken.add((topic.topic_id, number))
                    mine = had[member.member_id].setdefault(topic.topic_id, {})
                    mine[number] = group.generation

    def take_given(member: Member) -> None:
        take(member, read_assignment(member.assignment) if member.assignment else {})

    def take_owned(member: Member) -> None:
        take(member, read_subscription(member.metadata(group.protocol)).owned)

    yield from _each_by_bytes(group, take_given)
    yield from _each_by_bytes(group, take_owned)
    return had


def _each_by_bytes(group: ClassicGroup, do: Callable[[Member], None]) -> Steps[None]:
    """Read what each member has said: others have a turn after a few of those who say much."""
    spent = 0
    for member in list(group.members.values()):
        do(member)
        spent += MEMBER_BYTES + len(member.metadata(group.protocol)) + len(member.assignment)
        if spent >= SLICE_BYTES:
            spent = 0
            yield None


# From consumer to classic.


class Replacement(NamedTuple):
    """A static member of the classic protocol that replaces one of the consumer protocol."""

    replaced_id: str
    member: ConsumerMember


class Downgrade(NamedTuple):
    """The new group, and the records that replace the old one by it."""

    group: ClassicGroup
    records: list[CoordinatorRecord]
    is_settled: bool
    """All members have the partitions of their targets; else all have to join again."""


def may_downgrade(
    group: ConsumerGroup, gone: Collection[str], policy: MigrationPolicy, *, members_max: int
) -> bool:
    """Tell whether the group becomes a classic one when these members are ``gone``."""
    going = [group.members[one] for one in gone if one in group.members]
    left = len(group.members) - len(going)
    classic_left = group.tally.classic - sum(one.classic is not None for one in going)
    return policy.may_downgrade and left <= members_max and classic_left == left


def downgraded(
    group: ConsumerGroup,
    gone: Collection[str],
    coming: Replacement | None,
    topics: Topics,
    now_ms: int,
) -> Steps[Downgrade | None]:
    """Return the classic group that a consumer group becomes; None if it cannot. In steps.

    It is stable, and assigns to each member what the member may be reading. (Kafka assigns the
    targets, and so gives a partition to two members if the group is upgraded again at once.) None
    if no member is left, or if no assignor is known to all.
    """
    new = ClassicGroup(group.group_id, now_ms)
    new.state = GroupState.STABLE
    staying = [one for member_id, one in group.members.items() if member_id not in gone]
    new_ids: dict[str, str] = {}
    if coming is not None:
        staying.append(coming.member)
        new_ids[coming.replaced_id] = coming.member.member_id
    new.generation = max([group.epoch, *(one.epoch for one in staying)])
    yield from each(staying, lambda one: new.add(_downgraded_member(one), CONSUMER_PROTOCOL_TYPE))
    new.protocol = new.select_protocol()
    if new.protocol is None:
        return None
    new.note_subscriptions()
    yield None
    names = group.topics_read(group.regexes)
    known = names_by_id(names, topics)

    def assign(one: ConsumerMember) -> None:
        member = new.members[one.member_id]
        member.assignment = _assignment(member.metadata(new.protocol), one, known)

    yield from each(staying, assign)
    assignments = {member_id: member.assignment for member_id, member in new.members.items()}
    found = yield from consumer_records.conversion_tombstones(group, new_ids)
    found.append(records.group_record(new, assignments))
    yield None  # This took as long as a slice, and so will the batch.
    is_settled = coming is not None and all(one.is_reconciled_to(group.epoch) for one in staying)
    return Downgrade(new, found, is_settled)


def _downgraded_member(one: ConsumerMember) -> Member:
    assert one.classic is not None, "only members of the classic protocol go on"
    return Member(
        one.member_id,
        instance_id=one.instance_id,
        client_id=one.client_id,
        client_host=one.client_host,
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        session_timeout_ms=one.classic.session_timeout_ms,
        protocols=one.classic.protocols,
    )


def _assignment(subscription: bytes, member: ConsumerMember, names: Mapping[TopicId, str]) -> bytes:
    has: dict[str, list[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, numbers in partitions.items():
            if topic_id in names:
                has.setdefault(names[topic_id], []).extend(numbers)
    try:
        return assignment_bytes(subscription, has)
    except ValueError:  # The subscription in the log cannot be read.
        return b""
