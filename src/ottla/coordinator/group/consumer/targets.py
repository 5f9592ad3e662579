"""Finds what a KIP-848 group reads, and shares it: expressions, epochs, targets. Pure.

The parts that a heartbeat, a JoinGroup and a departure have in common: each looks at the group with
its members as they will be, and adds the records of the changes. Work that grows with the members
or with the topics is done in steps, between which the group does not change. Source: KIP-848; Kafka
4.3, asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.assignors import ASSIGNORS, Subscriber
from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.consumer.member import NO_TARGET, ConsumerMember, Target
from ottla.coordinator.group.consumer.metadata_hash import group_hash, topic_hash
from ottla.coordinator.group.consumer.tally import NO_CHANGE, Change
from ottla.coordinator.group.consumer.topic_pattern import TopicPattern
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.records import CoordinatorRecord
from ottla.ids import TopicId
from ottla.sliced import STRIDE, Steps, each, sifted, sorted_in_steps

# What the members read.


def resolve_regexes(
    group: ConsumerGroup,
    change: Change,
    topics: Topics,
    now_ms: int,
    found: list[CoordinatorRecord],
    *,
    may_describe: Callable[[str], bool] | None = None,
    matches: bool = True,
) -> Steps[Mapping[str, ResolvedRegex]]:
    """Match the expressions of the members after ``change`` with the present topics.

    ``may_describe``: which topics may be matched, by name; None: all. As in Kafka, it is that of
    the member whose heartbeat finds that there is something to match. ``matches`` False: nothing is
    matched now, what is known holds on.
    """
    turnover = group.tally.regexes_after(change)
    if not turnover and not group.is_stale:
        return group.regexes
    wanted = (group.tally.regexes.keys() - turnover.lost) | turnover.gained
    resolved: dict[str, ResolvedRegex] = {}
    for regex in sorted(wanted):
        known = group.regexes.get(regex)
        if not matches or (known is not None and not group.is_stale):
            if known is not None:
                resolved[regex] = known
            continue
        changed = group.changed_topics
        if known is None or changed is None:
            names = yield from _matching(regex, list(topics.topics), may_describe)
        else:
            there = [name for name in changed if name in topics.topics]
            names = known.topics - changed | (yield from _matching(regex, there, may_describe))
        if known is not None and known.topics == names:
            resolved[regex] = known
        else:
            resolved[regex] = ResolvedRegex(names, topics.revision, now_ms)
            found.append(records.regex_record(group.group_id, regex, resolved[regex]))
    forgotten = [regex for regex in group.regexes if regex not in wanted]
    found += [records.regex_tombstone(group.group_id, regex) for regex in forgotten]
    return resolved


def _matching(
    regex: str, names: Sequence[str], may_describe: Callable[[str], bool] | None
) -> Steps[frozenset[str]]:
    # Topics that the member must not know of are left out first: how much there is to match tells
    # of their names, where a client chooses the expression.
    if may_describe is not None:
        names, _ = yield from sifted(names, may_describe)
    return frozenset((yield from TopicPattern(regex).select(names)))


def next_epoch(
    group: ConsumerGroup,
    change: Change,
    regexes: Mapping[str, ResolvedRegex],
    topics: Topics,
    found: list[CoordinatorRecord],
    *,
    is_bumped: bool,
) -> Steps[int]:
    """Return the group's epoch: one more if ``is_bumped`` or if the topics have changed.

    ``regexes``: those of the members after ``change``; the group's own if they are the same.
    """
    metadata_hash = group.metadata_hash
    reads_other = regexes is not group.regexes or group.tally.topics_after(change)
    if group.is_stale or reads_other:
        names = group.topics_read(regexes, change)
        metadata_hash = yield from metadata_hash_of(names, topics)
    if not is_bumped and metadata_hash == group.metadata_hash:
        return group.epoch
    epoch = group.epoch + 1
    found.append(records.group_record(group.group_id, epoch, metadata_hash))
    return epoch


def metadata_hash_of(names: Iterable[str], topics: Topics) -> Steps[int]:
    """Return a number that changes with ids, partition counts and racks; 0: no topic exists."""
    ordered = yield from sorted_in_steps(names)

    def hash_of(name: str) -> int | None:
        topic = topics.topic(name)
        if topic is None:
            return None
        return topic_hash(topic.name, topic.topic_id, topics.racks(topic))

    hashes = yield from each(ordered, hash_of)
    return group_hash([one for one in hashes if one is not None])


def topic_ids(names: Iterable[str], topics: Topics) -> list[TopicId]:
    """Return the ids of the topics that exist, sorted."""
    found = (topics.topic(name) for name in names)
    return sorted(topic.topic_id for topic in found if topic is not None)


def names_by_id(names: Iterable[str], topics: Topics) -> dict[TopicId, str]:
    """Return the topics that exist, by their ids."""
    return {topic.topic_id: name for name in names if (topic := topics.topic(name)) is not None}


# Targets.


def assign_targets(
    group: ConsumerGroup,
    change: Change,
    regexes: Mapping[str, ResolvedRegex],
    topics: Topics,
    found: list[CoordinatorRecord],
    *,
    epoch: int,
    now_ms: int,
) -> Steps[dict[str, Target]]:
    """Return the target for ``epoch`` of every member of the group after ``change``."""
    members = _members_after(group, change)
    names = group.topics_read(regexes, change)
    known = [topic for name in names if (topic := topics.topic(name)) is not None]
    counts = {topic.topic_id: len(topic.partitions) for topic in known}
    assignor = ASSIGNORS[preferred_assignor(group, change)]
    ids: dict[tuple[tuple[str, ...], str], tuple[TopicId, ...]] = {}

    def subscriber(member: ConsumerMember) -> Subscriber:
        wanted = ids.get(member.subscription)
        if wanted is None:
            read = topic_ids(group.topics_of(member, regexes), topics)
            wanted = ids[member.subscription] = tuple(one for one in read if one in counts)
        target = _target_before(group, member)
        return Subscriber(member.member_id, member.instance_id, wanted, target)

    ordered = [members[member_id] for member_id in (yield from sorted_in_steps(members))]
    subscribers = yield from each(ordered, subscriber)
    targets = yield from assignor(subscribers, counts)
    for ordinal, (member_id, target) in enumerate(targets.items()):
        if not ordinal % STRIDE:
            yield None
        if member_id not in group.targets or group.targets[member_id] != target:
            found.append(records.target_record(group.group_id, member_id, target))
    found.append(records.target_epoch_record(group.group_id, epoch, now_ms))
    return targets


def _target_before(group: ConsumerGroup, member: ConsumerMember) -> Target:
    """Return a member's target; a static member that came back has that of its old id."""
    target = group.targets.get(member.member_id)
    if target is None and member.instance_id is not None:
        target = group.targets.get(group.static_members.get(member.instance_id, ""))
    return NO_TARGET if target is None else target


def _members_after(group: ConsumerGroup, change: Change) -> Mapping[str, ConsumerMember]:
    if change == NO_CHANGE:
        return group.members
    members = dict(group.members)
    for one in change.going:
        del members[one.member_id]
    if change.coming is not None:
        members[change.coming.member_id] = change.coming
    return members


def preferred_assignor(group: ConsumerGroup, change: Change = NO_CHANGE) -> str:
    """Return the assignor that most members ask for; of equals, or if none ask, the first."""
    return max(ASSIGNORS, key=lambda name: group.tally.votes_after(change, name))
