"""What a KIP-848 group does about a heartbeat: one event in, records and an answer out. Pure.

``heartbeat``, ``leave``, ``fence`` and ``assign`` look at a group and decide; nothing changes until
the records are durable and replayed. Time, topics and settings come as arguments. Source: KIP-848;
the answers, and the order of the checks, of a live Kafka 4.3.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group.assignors import ASSIGNORS, Subscriber
from ottla.coordinator.group.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
    ResolvedRegex,
    Target,
)
from ottla.coordinator.group.consumer_reconcile import reconcile
from ottla.coordinator.group.topic_pattern import TopicPattern
from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId
from ottla.metadata.image import TopicImage

DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))
_HASH_BYTES = 8


class ConsumerSettings(NamedTuple):
    """What the node's options say to all KIP-848 groups; see ``group.consumer.*``."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """Between two assignments of a group: what changes meanwhile is assigned at once."""
    members_max: int


class Topics(Protocol):
    """What is looked at of the metadata."""

    @property
    def revision(self) -> int:
        """How new it is."""

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """All topics by name."""

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic."""


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


class HeartbeatAnswer(NamedTuple):
    """The answer. ``assignment`` None: nothing new."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class Decision(NamedTuple):
    """What is to be written; once it is durable, answered and waited for."""

    records: list[CoordinatorRecord]
    answer: HeartbeatAnswer | None = None
    rebalance_timeout_ms: int | None = None
    """A member has so long to give up what it must; 0: it need not any more; None: as before."""
    assignment_delay_ms: int | None = None
    """It is too early for an assignment: compute it so much later."""


def check_heartbeat(beat: Heartbeat, group_id: str) -> None:
    """Raise KafkaError for what no group would take, in Kafka's order and words."""
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
    """Take a member in, or one step further. Raises KafkaError."""
    _check_room(group, beat.member_id, settings)
    found: list[CoordinatorRecord] = []
    replaced, member = _member_of(group, beat, found)
    updated = _updated(member, beat)
    has_changed_mind = updated.subscription != member.subscription
    is_new = beat.member_id not in group.members
    if is_new or _asked(updated) != _asked(member):
        found.append(records.member_record(group.group_id, updated))

    members = _members_with(group, updated, replaced)
    epoch, regexes = group.epoch, group.regexes
    if has_changed_mind or group.is_stale:
        regexes = _resolved(group, members, topics, now_ms, found)
        epoch = _next_epoch(group, members, regexes, topics, found, is_bumped=has_changed_mind)

    target_epoch = group.assignment_epoch
    target = group.targets.get(replaced or beat.member_id, NO_TARGET)
    delay_ms = None
    if epoch > target_epoch:
        delay_ms = group.assignment_timestamp_ms + settings.assignment_interval_ms - now_ms
        if delay_ms <= 0 or group.assignment_epoch == 0:
            delay_ms = None
            targets = _assigned(group, members, regexes, topics, found, epoch=epoch, now_ms=now_ms)
            target_epoch, target = epoch, targets[beat.member_id]

    reconciled = updated
    if has_changed_mind or not updated.is_reconciled_to(target_epoch):
        reconciled = reconcile(
            updated,
            target_epoch=target_epoch,
            target=target,
            subscribed=_topic_ids(group.topics_of(updated, regexes), topics),
            is_held=lambda topic_id, number: (topic_id, number) in group.owners,
            owned=beat.owned,
        )
    timeout_ms = None
    if reconciled != updated or is_new:
        found.append(records.current_record(group.group_id, reconciled))
        is_revoking = reconciled.state is MemberState.UNREVOKED_PARTITIONS
        timeout_ms = reconciled.rebalance_timeout_ms if is_revoking else 0
    answer = HeartbeatAnswer(beat.member_id, reconciled.epoch, settings.heartbeat_interval_ms)
    if _is_full(beat) or _numbers(reconciled.assigned) != _numbers(member.assigned):
        answer = answer._replace(assignment=reconciled.assigned)
    return Decision(found, answer, timeout_ms, delay_ms)


def _check_room(group: ConsumerGroup, member_id: str, settings: ConsumerSettings) -> None:
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
    known_id = group.static_members.get(beat.instance_id)
    if beat.epoch != 0:
        member = _static(group, beat.instance_id, beat.member_id)
        _check_epoch(member, beat)
        return None, member
    if known_id is None:
        return None, group.members.get(beat.member_id) or ConsumerMember(beat.member_id)
    known = group.members[known_id]
    if known.epoch != LEAVE_STATIC_EPOCH:
        why = f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join "
        why += f"the group because the instance id is owned by {known_id} member."
        raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, why)
    member = known._replace(member_id=beat.member_id, epoch=0, previous_epoch=0)
    group_id = group.group_id
    if known_id != beat.member_id:
        found += records.member_tombstones(group_id, known_id)
    found.append(records.member_record(group_id, member))
    target = group.targets.get(known_id, NO_TARGET)
    found.append(records.target_record(group_id, beat.member_id, target))
    found.append(records.current_record(group_id, member))
    return known_id, member


def _static(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    known_id = group.static_members.get(instance_id)
    if known_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known_id != member_id:
        why = f"Static member {member_id} with instance id {instance_id} was fenced by member "
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{why}{known_id}.")
    return group.members[known_id]


def _check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    """Raise KafkaError (FENCED_MEMBER_EPOCH) unless the member is where we think it is.

    It may be one epoch behind, if it cannot have seen the answer that brought it on.
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
    """Return the member with what the heartbeat says anew."""
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
    )


def _asked(member: ConsumerMember) -> ConsumerMember:
    """Return the member without how far it is."""
    return member._replace(
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=NO_PARTITIONS,
        revoking=NO_PARTITIONS,
    )


def _members_with(
    group: ConsumerGroup, updated: ConsumerMember, replaced: str | None
) -> dict[str, ConsumerMember]:
    members = {**group.members, updated.member_id: updated}
    if replaced is not None and replaced != updated.member_id:
        del members[replaced]
    return members


def _is_full(beat: Heartbeat) -> bool:
    """Tell whether the member says everything: it joins, or has missed an answer."""
    says_topics = beat.topics is not None or beat.regex is not None
    return beat.epoch == 0 or (
        beat.rebalance_timeout_ms != -1 and says_topics and beat.owned is not None
    )


def _numbers(partitions: Partitions) -> dict[TopicId, frozenset[int]]:
    return {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}


# What the members read.


def _resolved(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    topics: Topics,
    now_ms: int,
    found: list[CoordinatorRecord],
) -> dict[str, ResolvedRegex]:
    """Hold the members' expressions against the topics there are."""
    wanted = {member.regex for member in members.values() if member.regex}
    resolved: dict[str, ResolvedRegex] = {}
    for regex in sorted(wanted):
        known = group.regexes.get(regex)
        if known is not None and not group.is_stale:
            resolved[regex] = known
            continue
        changed = group.topics_changed
        if known is None or changed is None:
            names = frozenset(filter(TopicPattern(regex).matches, topics.topics))
        else:
            there = [name for name in changed if name in topics.topics]
            names = known.topics - changed | set(filter(TopicPattern(regex).matches, there))
        if known is not None and known.topics == names:
            resolved[regex] = known
        else:
            resolved[regex] = ResolvedRegex(names, topics.revision, now_ms)
            found.append(records.regex_record(group.group_id, regex, resolved[regex]))
    found += _forgotten(group, wanted)
    return resolved


def _forgotten(group: ConsumerGroup, wanted: Collection[str | None]) -> list[CoordinatorRecord]:
    """Return what forgets the expressions that no member has any more."""
    return [
        records.regex_tombstone(group.group_id, regex)
        for regex in group.regexes
        if regex not in wanted
    ]


def _next_epoch(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    regexes: Mapping[str, ResolvedRegex],
    topics: Topics,
    found: list[CoordinatorRecord],
    *,
    is_bumped: bool,
) -> int:
    """Return the group's epoch: one more if ``is_bumped`` or if what is read has changed."""
    metadata_hash = _metadata_hash(_names(group, members.values(), regexes), topics)
    if not is_bumped and metadata_hash == group.metadata_hash:
        return group.epoch
    epoch = group.epoch + 1
    found.append(records.group_record(group.group_id, epoch, metadata_hash))
    return epoch


def _names(
    group: ConsumerGroup, members: Iterable[ConsumerMember], regexes: Mapping[str, ResolvedRegex]
) -> set[str]:
    names: set[str] = set()
    for member in members:
        names |= group.topics_of(member, regexes)
    return names


def _metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a number that changes with the ids and partition counts of topics; 0: none exist."""
    known = [topic for name in sorted(names) if (topic := topics.topic(name)) is not None]
    if not known:
        return 0
    text = repr([(topic.name, topic.topic_id, len(topic.partitions)) for topic in known])
    digest = blake2b(text.encode(), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, signed=True)


def _topic_ids(names: Iterable[str], topics: Topics) -> list[TopicId]:
    found = (topics.topic(name) for name in names)
    return sorted(topic.topic_id for topic in found if topic is not None)


# Targets.


def assign(group: ConsumerGroup, topics: Topics, now_ms: int) -> Decision:
    """Compute the targets that had to wait."""
    found: list[CoordinatorRecord] = []
    if group.epoch > group.assignment_epoch and group.members:
        regexes = group.regexes
        _assigned(group, group.members, regexes, topics, found, epoch=group.epoch, now_ms=now_ms)
    return Decision(found)


def _assigned(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    regexes: Mapping[str, ResolvedRegex],
    topics: Topics,
    found: list[CoordinatorRecord],
    *,
    epoch: int,
    now_ms: int,
) -> dict[str, Target]:
    """Return every member's target for ``epoch``."""
    names = _names(group, members.values(), regexes)
    known = [topic for name in names if (topic := topics.topic(name)) is not None]
    counts = {topic.topic_id: len(topic.partitions) for topic in known}
    subscribers = [
        Subscriber(
            member.member_id,
            member.instance_id,
            tuple(_topic_ids(group.topics_of(member, regexes), topics)),
            _target_before(group, member),
        )
        for _, member in sorted(members.items())
    ]
    targets = ASSIGNORS[preferred_assignor(members.values())](subscribers, counts)
    for member_id, target in targets.items():
        if member_id not in group.targets or group.targets[member_id] != target:
            found.append(records.target_record(group.group_id, member_id, target))
    found.append(records.target_epoch_record(group.group_id, epoch, now_ms))
    return targets


def _target_before(group: ConsumerGroup, member: ConsumerMember) -> Target:
    """Return a member's target; a static one that came back has that of its old id."""
    target = group.targets.get(member.member_id)
    if target is None and member.instance_id is not None:
        target = group.targets.get(group.static_members.get(member.instance_id, ""))
    return NO_TARGET if target is None else target


def preferred_assignor(members: Iterable[ConsumerMember]) -> str:
    """Return the assignor that most members ask for."""
    votes: dict[str, int] = {}
    for member in members:
        if member.assignor is not None and member.assignor in ASSIGNORS:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=votes.__getitem__) if votes else DEFAULT_ASSIGNOR


# Leaving.


def leave(group: ConsumerGroup, beat: Heartbeat, topics: Topics) -> Decision:
    """Let a member go, for good or (a static one) for a while. Raises KafkaError."""
    answer = HeartbeatAnswer(beat.member_id, beat.epoch)
    if beat.instance_id is None:
        return fence(group, [group.member(beat.member_id)], topics)._replace(answer=answer)
    member = _static(group, beat.instance_id, beat.member_id)
    if beat.epoch == LEAVE_EPOCH:
        return fence(group, [member], topics)._replace(answer=answer)
    away = member._replace(
        epoch=LEAVE_STATIC_EPOCH, revoking=NO_PARTITIONS, state=MemberState.STABLE
    )
    return Decision([records.current_record(group.group_id, away)], answer, 0)


def fence(group: ConsumerGroup, gone: Sequence[ConsumerMember], topics: Topics) -> Decision:
    """Take members out; what they had goes to others at the next assignment."""
    found: list[CoordinatorRecord] = []
    left = dict(group.members)
    for member in gone:
        found += records.member_tombstones(group.group_id, member.member_id)
        left.pop(member.member_id, None)
    wanted = {member.regex for member in left.values()}
    found += _forgotten(group, wanted)
    _next_epoch(group, left, group.regexes, topics, found, is_bumped=True)
    return Decision(found)


# Offsets.


def check_member_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> ConsumerMember:
    """Return the member. Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    member = group.member(member_id)
    if epoch != member.epoch:
        raise _stale(member, epoch)
    return member


def check_committed(
    group: ConsumerGroup, member_id: str, epoch: int, commits: Iterable[tuple[TopicId, int]]
) -> None:
    """Raise KafkaError unless the member may commit these partitions in ``epoch``.

    A member that has gone on since may commit what it has had all the time (KIP-1251).
    """
    if epoch < 0 and not group.members:
        return
    member = group.member(member_id)
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, epoch)
    for topic_id, number in commits:
        since = member.assigned.get(topic_id, {}).get(number)
        if since is None:
            since = member.revoking.get(topic_id, {}).get(number)
        if since is None or epoch < since:
            raise _stale(member, epoch)


def _stale(member: ConsumerMember, epoch: int) -> KafkaError:
    why = f"The received member epoch {epoch} does not match the expected member epoch "
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"{why}{member.epoch}.")
