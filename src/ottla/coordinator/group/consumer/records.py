"""Writes and reads the records of KIP-848 groups, as Kafka 4.3 does. Pure.

Each function of the first half makes one record; ``replay`` takes any of them, and is the only way
in which a group changes, after an append as at a load. After compaction records come in any order,
so each of them may be the first of its group or member. The tables are in ``consumer.tables``.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, NamedTuple, TypeVar

from ottla.coordinator.group.classic.group import Protocol
from ottla.coordinator.group.consumer import tables
from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    ClassicPart,
    ConsumerMember,
    MemberState,
    Partitions,
    Target,
)
from ottla.coordinator.group.record_bytes import senseless
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.errors import MalformedMessage
from ottla.protocol.schema import Message
from ottla.sliced import Steps, each

Table = TypeVar("Table", bound=Message)
_INT16 = Struct(">h")
_VERSION = _INT16.pack(0)
_TEXT_AT = 2 * _INT16.size
"""The position of the group's name in a key: after the type and the length."""
_NO_TAGS = bytes((0,))
_NULL_CLASSIC_MEMBER = bytes((1, 0, 1, 0))
"""Kafka writes the tag even when it has nothing to say: one tag, number 0, one byte: null."""
_STATES = {int(state): state for state in MemberState}
KEY_TYPES = frozenset(
    (
        tables.GROUP,
        tables.PARTITION_METADATA,
        tables.MEMBER,
        tables.TARGET_EPOCH,
        tables.TARGET_MEMBER,
        tables.CURRENT_MEMBER,
        tables.REGEX,
    )
)
_OF_GROUP = frozenset((tables.GROUP, tables.PARTITION_METADATA, tables.TARGET_EPOCH))


# Writing.


def group_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group's epoch."""
    return _record(
        _group_key(tables.GROUP, group_id),
        tables.GroupValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's subscription."""
    value = tables.MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member=_classic_member(member.classic),
    )
    data = value.encode(0)
    if member.classic is None:
        data = data[: -len(_NO_TAGS)] + _NULL_CLASSIC_MEMBER
    return CoordinatorRecord(
        _member_key(tables.MEMBER, group_id, member.member_id), _VERSION + data
    )


def _classic_member(classic: ClassicPart | None) -> tables.ClassicMember | None:
    if classic is None:
        return None
    return tables.ClassicMember(
        session_timeout=classic.session_timeout_ms,
        supported_protocols=[
            tables.ClassicProtocol(name=one.name, metadata=one.metadata)
            for one in classic.protocols
        ],
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record that says that the targets are of ``epoch``."""
    return _record(
        _group_key(tables.TARGET_EPOCH, group_id),
        tables.TargetEpochValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """Return the record of one member's target."""
    value = tables.TargetMemberValue(
        topics=[
            tables.TargetPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in sorted(target.items())
        ]
    )
    return _record(_member_key(tables.TARGET_MEMBER, group_id, member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's epochs and partitions."""
    value = tables.CurrentMemberValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned=_partitions(member.assigned),
        pending_revocation=_partitions(member.revoking),
    )
    return _record(_member_key(tables.CURRENT_MEMBER, group_id, member.member_id), value)


def _partitions(partitions: Partitions) -> list[tables.CurrentPartitions]:
    return [
        tables.CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(numbers),
            assignment_epochs=[numbers[number] for number in sorted(numbers)],
        )
        for topic_id, numbers in sorted(partitions.items())
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Return the record of the topics that match an expression."""
    value = tables.RegexValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _record(_member_key(tables.REGEX, group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the tombstone of an expression that no member uses any more."""
    return CoordinatorRecord(_member_key(tables.REGEX, group_id, regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member."""
    kinds = (tables.CURRENT_MEMBER, tables.TARGET_MEMBER, tables.MEMBER)
    return [CoordinatorRecord(_member_key(kind, group_id, member_id), None) for kind in kinds]


def group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of a group, without its offsets."""
    group_id = group.group_id
    found: list[CoordinatorRecord] = []
    for member_id in {**group.members, **group.targets}:
        found += member_tombstones(group_id, member_id)
    found += [regex_tombstone(group_id, regex) for regex in group.regexes]
    found.append(CoordinatorRecord(_group_key(tables.TARGET_EPOCH, group_id), None))
    found.append(CoordinatorRecord(_group_key(tables.GROUP, group_id), None))
    return found


def conversion_tombstones(
    group: ConsumerGroup, new_ids: Mapping[str, str]
) -> Steps[list[CoordinatorRecord]]:
    """Return the tombstones of a group that becomes a classic one, in Kafka's order. In steps.

    ``new_ids``: the new ids of static members that the same batch replaces.
    """
    group_id = group.group_id
    ids = [new_ids.get(member_id, member_id) for member_id in group.members]

    def of_members(kind: int) -> Steps[list[CoordinatorRecord]]:
        return each(ids, lambda one: CoordinatorRecord(_member_key(kind, group_id, one), None))

    return [
        *(yield from of_members(tables.CURRENT_MEMBER)),
        *(yield from of_members(tables.TARGET_MEMBER)),
        CoordinatorRecord(_group_key(tables.TARGET_EPOCH, group_id), None),
        *(yield from of_members(tables.MEMBER)),
        *(regex_tombstone(group_id, regex) for regex in group.regexes),
        CoordinatorRecord(_group_key(tables.GROUP, group_id), None),
    ]


def _group_key(kind: int, group_id: str) -> bytes:
    return _INT16.pack(kind) + tables.ConsumerGroupKey(group=group_id).encode(0)


def _member_key(kind: int, group_id: str, name: str) -> bytes:
    return _INT16.pack(kind) + tables.ConsumerGroupMemberKey(group=group_id, name=name).encode(0)


def _record(key: bytes, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(key, _VERSION + value.encode(0))


# Reading.


class RecordKey(NamedTuple):
    """The subject of a record. ``name``: a member or a regular expression; empty: the group."""

    group: str
    name: str


def read_key(kind: int, stored: StoredRecord) -> RecordKey:
    """Return the subject of a record. Raises KafkaError (CORRUPT_MESSAGE).

    By hand, at a third of the cost: a load reads hundreds of thousands.
    """
    key = stored.key
    try:
        group_end = _TEXT_AT + _INT16.unpack_from(key, _INT16.size)[0]
        group = key[_TEXT_AT:group_end].decode("utf-8", "replace")
        if kind in _OF_GROUP:
            name_end, name = group_end, ""
        else:
            name_at = group_end + _INT16.size
            name_end = name_at + _INT16.unpack_from(key, group_end)[0]
            name = key[name_at:name_end].decode("utf-8", "replace")
    except StructError as error:
        raise senseless(stored, "a key that ends too early") from error
    if name_end != len(key) or group_end < _TEXT_AT:
        raise senseless(stored, "a key with texts of other lengths than it says")
    return RecordKey(group, name)


def replay(group: ConsumerGroup, kind: int, name: str, stored: StoredRecord) -> bool:
    """Take one record of ``group``; False: the group is gone. Raises KafkaError."""
    if stored.value is None:
        if kind == tables.GROUP:
            return False
        _FORGET[kind](group, name)
    else:
        _TAKE[kind](group, name, stored)
    return True


def _decode(table: type[Table], data: bytes) -> Table:
    value, _ = table.decoder(0)(memoryview(data), _INT16.size, len(data))
    return value


def _value(table: type[Table], stored: StoredRecord) -> Table:
    data = stored.value or b""
    if data[: _INT16.size] != _VERSION:
        raise senseless(stored, f"a value of version {data[: _INT16.size].hex()}")
    try:
        return _decode(table, data)
    except MalformedMessage as error:
        raise senseless(stored, str(error)) from error


def _known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _take_group(group: ConsumerGroup, _: str, stored: StoredRecord) -> None:
    value = _value(tables.GroupValue, stored)
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _take_partition_metadata(group: ConsumerGroup, _: str, stored: StoredRecord) -> None:
    """Skip a record of Kafka 4.0; its successors use the hash in the group's record instead."""


def _take_member(group: ConsumerGroup, name: str, stored: StoredRecord) -> None:
    value = _value(tables.MemberValue, stored)
    member = _known(group, name)._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(sorted(value.subscribed_topic_names)),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout,
        assignor=value.server_assignor,
        classic=_read_classic_member(value.classic_member),
    )
    group.put(member)


def _read_classic_member(value: tables.ClassicMember | None) -> ClassicPart | None:
    if value is None:
        return None
    protocols = tuple(Protocol(one.name, one.metadata) for one in value.supported_protocols)
    return ClassicPart(value.session_timeout, protocols)


def _take_target_epoch(group: ConsumerGroup, _: str, stored: StoredRecord) -> None:
    value = _value(tables.TargetEpochValue, stored)
    group.assignment_epoch = value.assignment_epoch
    group.assignment_timestamp_ms = value.assignment_timestamp


def _take_target(group: ConsumerGroup, name: str, stored: StoredRecord) -> None:
    value = _value(tables.TargetMemberValue, stored)
    group.targets[name] = {one.topic_id: frozenset(one.partitions) for one in value.topics}


def _take_current(group: ConsumerGroup, name: str, stored: StoredRecord) -> None:
    value = _value(tables.CurrentMemberValue, stored)
    member = _known(group, name)._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, MemberState.UNKNOWN),
        assigned=_read_partitions(value.assigned, value.member_epoch),
        revoking=_read_partitions(value.pending_revocation, value.member_epoch),
    )
    group.put(member)


def _read_partitions(topics: Sequence[tables.CurrentPartitions], epoch: int) -> Partitions:
    """Return partitions with their epochs; Kafka before 4.3 did not write them."""
    return {
        one.topic_id: dict(
            zip(
                one.partitions,
                one.assignment_epochs or [epoch] * len(one.partitions),
                strict=False,
            )
        )
        for one in topics
        if one.partitions
    }


def _take_regex(group: ConsumerGroup, name: str, stored: StoredRecord) -> None:
    value = _value(tables.RegexValue, stored)
    group.regexes[name] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def _forget_current(group: ConsumerGroup, name: str) -> None:
    member = group.members.get(name)
    if member is not None:
        group.put(
            member._replace(
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                revoking=NO_PARTITIONS,
            )
        )


def _forget_partition_metadata(group: ConsumerGroup, _: str) -> None:
    """Do nothing: the record was skipped."""


def _forget_target_epoch(group: ConsumerGroup, _: str) -> None:
    group.assignment_epoch = 0


_FORGET: Mapping[int, Callable[[ConsumerGroup, str], None]] = {
    tables.PARTITION_METADATA: _forget_partition_metadata,
    tables.MEMBER: lambda group, name: group.remove(name),
    tables.TARGET_EPOCH: _forget_target_epoch,
    tables.TARGET_MEMBER: lambda group, name: _drop(group.targets, name),
    tables.CURRENT_MEMBER: _forget_current,
    tables.REGEX: lambda group, name: _drop(group.regexes, name),
}


def _drop(values: dict[str, Any], name: str) -> None:
    values.pop(name, None)


_TAKE: Mapping[int, Callable[[ConsumerGroup, str, StoredRecord], None]] = {
    tables.GROUP: _take_group,
    tables.PARTITION_METADATA: _take_partition_metadata,
    tables.MEMBER: _take_member,
    tables.TARGET_EPOCH: _take_target_epoch,
    tables.TARGET_MEMBER: _take_target,
    tables.CURRENT_MEMBER: _take_current,
    tables.REGEX: _take_regex,
}
