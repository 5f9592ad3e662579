"""Decides what a KIP-848 group does about a heartbeat: records and an answer. Pure.

``heartbeat``, ``leave``, ``fence`` and ``assign`` look at a group and decide, in steps where that
may take long; nothing changes until the records are durable and replayed. Time, topics and settings
come as arguments. Source: KIP-848; the answers, and the order of the checks, of a live Kafka 4.3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
)
from ottla.coordinator.group.consumer.reconcile import reconcile
from ottla.coordinator.group.consumer.settings import ConsumerSettings
from ottla.coordinator.group.consumer.tally import NO_CHANGE, Change
from ottla.coordinator.group.consumer.targets import (
    assign_targets,
    next_epoch,
    resolve_regexes,
    topic_ids,
)
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.sliced import Steps, at_once


class Heartbeat(NamedTuple):
    """ConsumerGroupHeartbeat. None: as before."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1: as before."""
    topics: Sequence[str] | None
    regex: str | None
    assignor: str | None
    owned: Owned | None
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool] | None = None
    """Which topics an expression of the group may match, by name; None: all."""


class HeartbeatAnswer(NamedTuple):
    """The answer. ``assignment`` None: nothing new."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class Decision(NamedTuple):
    """The records, and the answer and the timers that follow when they are durable."""

    records: list[CoordinatorRecord]
    answer: HeartbeatAnswer | None = None
    rebalance_timeout_ms: int | None = None
    """How long the member has to give up partitions; 0: it need not; None: as before."""
    assignment_delay_ms: int | None = None
    """How much later to compute the targets, if it is too early now."""


def check_heartbeat(beat: Heartbeat, group_id: str) -> None:
    """Raise KafkaError for a heartbeat that no group accepts, in Kafka's order and words."""
    _refuse_blank(group_id, "GroupId can't be empty.")
    if beat.instance_id is not None:
        _refuse_blank(beat.instance_id, "InstanceId can't be empty.")
    if beat.rack_id is not None:
        _refuse_blank(beat.rack_id, "RackId can't be empty.")
    _refuse_blank(beat.member_id, "MemberId can't be empty.")
    if beat.epoch == 0:
        _check_join(beat)
    elif beat.epoch == LEAVE_STATIC_EPOCH:
        if beat.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif beat.epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        why = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: "
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{why}{', '.join(ASSIGNORS)}.")


def _check_join(beat: Heartbeat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if beat.owned is None or beat.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if beat.topics is None and beat.regex is None:
        why = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
        raise _invalid(why + "(re-)joining.")


def _refuse_blank(text: str, why: str) -> None:
    if not text.strip():
        raise _invalid(why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


# A heartbeat.


def heartbeat(
    group: ConsumerGroup,
    beat: Heartbeat,
    topics: Topics,
    now_ms: int,
    settings: ConsumerSettings,
) -> Decision:
    """Do as ``hear``, without steps."""
    return at_once(hear(group, beat, topics, now_ms, settings))


def hear(
    group: ConsumerGroup,
    beat: Heartbeat,
    topics: Topics,
    now_ms: int,
    settings: ConsumerSettings,
) -> Steps[Decision]:
    """Add a member, or take it one step further. Raises KafkaError."""
    check_room(group, beat.member_id, settings)
    found: list[CoordinatorRecord] = []
    replaced, member = _member_of(group, beat, found)
    coming = Coming(replaced, member, _updated(member, beat), beat.owned, beat.may_describe)
    step = yield from take_step(group, coming, topics, now_ms, settings)
    found += step.records
    answer = HeartbeatAnswer(beat.member_id, step.member.epoch, settings.heartbeat_interval_ms)
    if _is_full(beat) or _numbers(step.member.assigned) != _numbers(member.assigned):
        answer = answer._replace(assignment=step.member.assigned)
    return Decision(found, answer, step.rebalance_timeout_ms, step.assignment_delay_ms)


class Coming(NamedTuple):
    """A member that sent a heartbeat or JoinGroup."""

    replaced: str | None
    """The id of the static member that it replaces; None: none, or itself."""
    before: ConsumerMember
    updated: ConsumerMember
    """The member with its new subscription."""
    owned: Owned | None
    """None: as before."""
    may_describe: Callable[[str], bool] | None = None
    """See ``Heartbeat``."""
    matches: bool = True
    """Whether expressions may be held against topics for it. A JoinGroup names its topics, and does
    not say who may see which: what was found before holds until the next heartbeat."""


class Step(NamedTuple):
    """A member after its step, and the timers that follow; see ``Decision``."""

    records: list[CoordinatorRecord]
    member: ConsumerMember
    rebalance_timeout_ms: int | None
    assignment_delay_ms: int | None


def take_step(
    group: ConsumerGroup,
    coming: Coming,
    topics: Topics,
    now_ms: int,
    settings: ConsumerSettings,
) -> Steps[Step]:
    """Note a member's subscription, assign if that is due, and take the member's step."""
    found: list[CoordinatorRecord] = []
    replaced, before, updated, owned, may_describe, matches = coming
    has_changed_mind = updated.subscription != before.subscription
    is_new = updated.member_id not in group.members
    if is_new or _asked(updated) != _asked(before):
        found.append(records.member_record(group.group_id, updated))

    change = NO_CHANGE
    if is_new or updated != before or replaced is not None:
        places = {updated.member_id, replaced}
        going = [group.members[one] for one in places if one in group.members]
        change = Change(going, updated)
    epoch = group.epoch
    regexes: Mapping[str, ResolvedRegex] = group.regexes
    if has_changed_mind or group.is_stale:
        regexes = yield from resolve_regexes(
            group,
            change,
            topics,
            now_ms,
            found,
            may_describe=may_describe,
            matches=matches,
        )
        epoch = yield from next_epoch(
            group, change, regexes, topics, found, is_bumped=has_changed_mind
        )

    target_epoch = group.assignment_epoch
    target = group.targets.get(replaced or updated.member_id, NO_TARGET)
    delay_ms = None
    if epoch > target_epoch:
        delay_ms = assignment_delay_ms(group, now_ms, settings)
        if delay_ms == 0 or group.assignment_epoch == 0:
            delay_ms = None
            targets = yield from assign_targets(
                group, change, regexes, topics, found, epoch=epoch, now_ms=now_ms
            )
            target_epoch, target = epoch, targets[updated.member_id]

    reconciled = updated
    if has_changed_mind or not updated.is_reconciled_to(target_epoch):
        reconciled = reconcile(
            updated,
            target_epoch=target_epoch,
            target=target,
            subscribed=topic_ids(group.topics_of(updated, regexes), topics),
            is_held=lambda topic_id, number: (topic_id, number) in group.owners,
            owned=owned,
        )
    timeout_ms = None
    if reconciled != updated or is_new:
        found.append(records.current_record(group.group_id, reconciled))
        is_revoking = reconciled.state is MemberState.UNREVOKED_PARTITIONS
        timeout_ms = reconciled.rebalance_timeout_ms if is_revoking else 0
    return Step(found, reconciled, timeout_ms, delay_ms)


def assignment_delay_ms(group: ConsumerGroup, now_ms: int, settings: ConsumerSettings) -> int:
    """Return how long the group waits for its next assignment; 0: it is due.

    Never longer than the interval: else a wall clock that was set back would hold it up.
    """
    interval_ms = settings.assignment_interval_ms
    due_ms = group.assignment_timestamp_ms + interval_ms
    return min(max(due_ms - now_ms, 0), interval_ms)


def check_room(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
    """Raise KafkaError (GROUP_MAX_SIZE_REACHED) if there is no room for one more member."""
    if len(group.members) >= settings.members_max and member_id not in group.members:
        why = f"The consumer group has reached its maximum capacity of {settings.members_max} "
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{why}members.")


def _member_of(
    group: ConsumerGroup, beat: Heartbeat, found: list[CoordinatorRecord]
) -> tuple[str | None, ConsumerMember]:
    """Return the member that sent a heartbeat, and the id of a static one that it replaces."""
    if beat.instance_id is None:
        if beat.epoch == 0 and beat.member_id not in group.members:
            return None, ConsumerMember(beat.member_id)
        member = group.member(beat.member_id)
        _check_epoch(member, beat)
        return None, member
    if beat.epoch != 0:
        member = group.static_member(beat.instance_id, beat.member_id)
        _check_epoch(member, beat)
        return None, member
    return take_name(group, beat.instance_id, beat.member_id, found, is_classic=False)


def take_name(
    group: ConsumerGroup,
    instance_id: str,
    member_id: str,
    found: list[CoordinatorRecord],
    *,
    is_classic: bool,
) -> tuple[str | None, ConsumerMember]:
    """Return the same for a static member. Raises KafkaError (UNRELEASED_INSTANCE_ID)."""
    known_id = group.static_members.get(instance_id)
    if known_id is None:
        return None, group.members.get(member_id) or ConsumerMember(member_id)
    known = group.members[known_id]
    if known.epoch != LEAVE_STATIC_EPOCH and not is_classic and known.classic is None:
        why = f"Static member {member_id} with instance id {instance_id} cannot join "
        why += f"the group because the instance id is owned by {known_id} member."
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, why)
    member = known._replace(member_id=member_id, epoch=0, previous_epoch=0)
    group_id = group.group_id
    if known_id != member_id:
        found += records.member_tombstones(group_id, known_id)
    found.append(records.member_record(group_id, member))
    target = group.targets.get(known_id, NO_TARGET)
    found.append(records.target_record(group_id, member_id, target))
    found.append(records.current_record(group_id, member))
    return known_id, member


def _check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    """Raise KafkaError (FENCED_MEMBER_EPOCH) unless the member is in the expected epoch.

    It may be one epoch behind if it may have missed the answer that took it on.
    """
    if beat.epoch in (member.epoch, 0):
        return
    relation = "greater" if beat.epoch > member.epoch else "smaller"
    may_have_missed = beat.epoch == member.previous_epoch and relation == "smaller"
    if may_have_missed and beat.owned is not None and _has_all(member.assigned, beat.owned):
        return
    why = f"The consumer group member has a {relation} member epoch ({beat.epoch}) than the one "
    why += f"known by the group coordinator ({member.epoch}). The member must abandon all its "
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"{why}partitions and rejoin.")


def _has_all(partitions: Partitions, owned: Owned) -> bool:
    return all(
        number in partitions.get(topic_id, ())
        for topic_id, numbers in owned.items()
        for number in numbers
    )


def _updated(member: ConsumerMember, beat: Heartbeat) -> ConsumerMember:
    """Return the member with the fields that the heartbeat changes."""
    return member._replace(
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if beat.rebalance_timeout_ms == -1
            else beat.rebalance_timeout_ms
        ),
        topics=member.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        regex=member.regex if beat.regex is None else beat.regex,
        assignor=member.assignor if beat.assignor is None else beat.assignor,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )


def _asked(member: ConsumerMember) -> ConsumerMember:
    """Return the member without its epochs and partitions."""
    return member._replace(
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=NO_PARTITIONS,
        revoking=NO_PARTITIONS,
    )


def _is_full(beat: Heartbeat) -> bool:
    """Tell whether the heartbeat has all fields: the member joins, or missed an answer."""
    says_topics = beat.topics is not None or beat.regex is not None
    return beat.epoch == 0 or (
        beat.rebalance_timeout_ms != -1 and says_topics and beat.owned is not None
    )


def _numbers(partitions: Partitions) -> dict[TopicId, frozenset[int]]:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}


# Leaving.


def leaving(group: ConsumerGroup, beat: Heartbeat) -> ConsumerMember:
    """Return the member that leaves. Raises KafkaError."""
    if beat.instance_id is None:
        return group.member(beat.member_id)
    return group.static_member(beat.instance_id, beat.member_id)


def away(group: ConsumerGroup, member: ConsumerMember) -> Decision:
    """Let a static member go for a while; it keeps its partitions."""
    # Kafka drops the epochs of its partitions; so the log is the same here.
    assigned = {
        topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.assigned.items()
    }
    gone = member._replace(
        epoch=LEAVE_STATIC_EPOCH,
        state=MemberState.STABLE,
        assigned=assigned,
        revoking=NO_PARTITIONS,
    )
    answer = HeartbeatAnswer(member.member_id, LEAVE_STATIC_EPOCH)
    return Decision([records.current_record(group.group_id, gone)], answer, 0)


def fence(group: ConsumerGroup, gone: Sequence[ConsumerMember], topics: Topics) -> Steps[Decision]:
    """Remove members; the next assignment gives their partitions to others."""
    found: list[CoordinatorRecord] = []
    group_id = group.group_id
    for member in gone:
        found += records.member_tombstones(group_id, member.member_id)
    change = Change(gone)
    forgotten = sorted(group.tally.regexes_after(change).lost)
    found += [records.regex_tombstone(group_id, one) for one in forgotten if one in group.regexes]
    regexes: Mapping[str, ResolvedRegex] = group.regexes
    if forgotten:
        regexes = {one: known for one, known in regexes.items() if one not in forgotten}
    yield from next_epoch(group, change, regexes, topics, found, is_bumped=True)
    return Decision(found)


def assign(group: ConsumerGroup, topics: Topics, now_ms: int) -> Steps[Decision]:
    """Compute targets that had to wait for the interval."""
    found: list[CoordinatorRecord] = []
    if group.epoch > group.assignment_epoch and group.members:
        yield from assign_targets(
            group, NO_CHANGE, group.regexes, topics, found, epoch=group.epoch, now_ms=now_ms
        )
    return Decision(found)
