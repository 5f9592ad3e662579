"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat. Pure.

To such a member the group looks like a classic one in which another member leads: the generation is
the member's epoch, Heartbeat sends the member to JoinGroup when it has a step to take, and
SyncGroup tells it its partitions. The step is that of any member (``consumer.machine``). Source:
KIP-848; Kafka 4.3, asked.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.group.classic.events import Heartbeat, Join, JoinAnswer, Sync, SyncAnswer
from ottla.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.group.classic.subscription import (
    Subscription,
    assignment_bytes,
    read_subscription,
)
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.machine import (
    Coming,
    check_room,
    take_name,
    take_step,
)
from ottla.coordinator.group.consumer.member import (
    NO_TARGET,
    ClassicPart,
    ConsumerMember,
    MemberState,
    Owned,
)
from ottla.coordinator.group.consumer.settings import ConsumerSettings
from ottla.coordinator.group.consumer.targets import names_by_id
from ottla.coordinator.group.migration.conversion import (
    Downgrade,
    Replacement,
    downgraded,
    may_downgrade,
)
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.sliced import Steps


class Joined(NamedTuple):
    """The outcome of a JoinGroup. ``member`` None: it must join again with the id in the answer."""

    records: list[CoordinatorRecord]
    answer: JoinAnswer
    member: ConsumerMember | None = None
    assignment_delay_ms: int | None = None
    """See ``consumer.machine.Decision``."""
    downgrade: Downgrade | None = None
    """The group becomes a classic one."""


def join(
    group: ConsumerGroup, asked: Join, topics: Topics, now_ms: int, settings: ConsumerSettings
) -> Steps[Joined]:
    """Add a member, or take it one step further. Raises KafkaError."""
    member_id = asked.member_id or asked.new_consumer_id
    check_room(group, member_id, settings)
    names = [protocol.name for protocol in asked.protocols]
    if not group.takes_classic(asked.protocol_type, names):
        why = f"Member {member_id}'s protocols are not supported."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
    if not asked.member_id and asked.instance_id is None and asked.needs_known_member_id:
        return Joined([], JoinAnswer(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    found: list[CoordinatorRecord] = []
    replaced, before = _member_of(group, asked, member_id, found)
    subscription = _subscription(asked)
    updated = _updated(before, asked, subscription)
    owned = _by_id(subscription.owned, topics)
    coming = Coming(replaced, before, updated, owned, matches=False)
    step = yield from take_step(group, coming, topics, now_ms, settings)
    found += step.records
    answer = JoinAnswer(
        member_id,
        generation=step.member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=names[0],
    )
    downgrade = None
    if replaced is not None and group.members[replaced].classic is None:
        others_max = settings.classic_members_max - 1
        if may_downgrade(group, {replaced}, settings.migration_policy, members_max=others_max):
            replacement = Replacement(replaced, step.member)
            downgrade = yield from downgraded(group, {replaced}, replacement, topics, now_ms)
    if downgrade is not None:
        found += downgrade.records
    return Joined(found, answer, step.member, step.assignment_delay_ms, downgrade)


def _member_of(
    group: ConsumerGroup, asked: Join, member_id: str, found: list[CoordinatorRecord]
) -> tuple[str | None, ConsumerMember]:
    if asked.instance_id is None:
        return None, group.members.get(member_id) or ConsumerMember(member_id)
    if asked.member_id:
        return None, group.static_member(asked.instance_id, member_id)
    return take_name(group, asked.instance_id, member_id, found, is_classic=True)


def _subscription(asked: Join) -> Subscription:
    try:
        return read_subscription(asked.protocols[0].metadata)
    except ValueError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no subscription: {error}") from error


def _updated(before: ConsumerMember, asked: Join, subscription: Subscription) -> ConsumerMember:
    return before._replace(
        instance_id=before.instance_id if asked.instance_id is None else asked.instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms
            if asked.rebalance_timeout_ms == -1
            else asked.rebalance_timeout_ms
        ),
        topics=tuple(sorted(set(subscription.topics))),
        regex="",  # Clients of this protocol match expressions themselves.
        client_id=asked.client_id,
        client_host=asked.client_host,
        classic=ClassicPart(asked.session_timeout_ms, asked.protocols),
    )


def _by_id(owned: Mapping[str, tuple[int, ...]], topics: Topics) -> Owned:
    found = {}
    for name, numbers in owned.items():
        topic = topics.topic(name)
        if topic is not None:
            found[topic.topic_id] = numbers
    return found


def sync(group: ConsumerGroup, asked: Sync, topics: Topics) -> SyncAnswer:
    """Return a member's partitions. Raises KafkaError."""
    member, classic = _member(group, asked.member_id, asked.instance_id)
    _check_generation(member, asked.generation)
    if asked.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or asked.protocol not in (
        None,
        classic.protocols[0].name,
    ):
        why = f"member {member.member_id} did not join with {asked.protocol!r}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if group.assignment_epoch > member.epoch and not is_revoking:
        why = f"member {member.member_id} should join again to catch up"
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, why)
    names = names_by_id(group.topics_of(member, group.regexes), topics)
    if not member.assigned.keys() <= names.keys():  # The member has changed its subscription since.
        names = names_by_id(group.topics_read(group.regexes), topics)
    given = {names[topic_id]: has for topic_id, has in member.assigned.items() if topic_id in names}
    try:
        data = assignment_bytes(classic.protocols[0].metadata, given)
    except ValueError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no subscription: {error}") from error
    return SyncAnswer(ErrorCode.NONE, asked.protocol_type, asked.protocol, data)


def heartbeat(group: ConsumerGroup, beat: Heartbeat) -> ErrorCode:
    """Tell whether a member has to join again (REBALANCE_IN_PROGRESS). Raises KafkaError.

    It has to as soon as there is a target for it; before that, it would join in vain.
    """
    member, _ = _member(group, beat.member_id, beat.instance_id)
    _check_generation(member, beat.generation)
    if (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _has_to_wait(group, member))
    ):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def needs_targets(group: ConsumerGroup) -> bool:
    """Tell whether targets are due while no member of the consumer protocol can ask for them."""
    is_all_classic = group.tally.classic == len(group.members)
    return group.epoch > group.assignment_epoch and is_all_classic


def _has_to_wait(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Tell whether other members still hold partitions that this member is to get."""
    return any(
        number not in member.assigned.get(topic_id, ()) and (topic_id, number) in group.owners
        for topic_id, numbers in group.targets.get(member.member_id, NO_TARGET).items()
        for number in numbers
    )


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicPart]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.static_member(instance_id, member_id)
    if member.classic is None:
        why = f"Member {member_id} does not use the classic protocol."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, why)
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        why = f"generation {generation}, member {member.member_id} is in {member.epoch}"
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, why)
