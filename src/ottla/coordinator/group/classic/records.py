"""Writes and reads the records of classic groups in ``__consumer_offsets``. Pure.

Writes what Kafka 4.3 writes; reads every version there ever was. The tables in ``tables`` are the
truth.
"""

from collections.abc import Mapping

from ottla.coordinator.group.classic import tables
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Member, Protocol
from ottla.coordinator.group.record_bytes import INT16, senseless, value_of
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.errors import MalformedMessage

KEY_TYPES = (tables.GROUP_METADATA,)
_GROUP_KEY = INT16.pack(tables.GROUP_METADATA)
GROUP_METADATA_VERSIONS = 4


# Writing.


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a classic group as it is now, but with ``assignments``."""
    value = tables.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            tables.MemberMetadata(
                member_id=member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=assignments.get(member_id, b""),
            )
            for member_id, member in group.members.items()
        ],
    )
    return _group_record(group.group_id, value)


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record that says a group exists, before it has had a generation."""
    value = tables.GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.state_timestamp_ms,
        members=[],
    )
    return _group_record(group.group_id, value)


def _group_record(group_id: str, value: tables.GroupMetadataValue) -> CoordinatorRecord:
    version = tables.GROUP_METADATA_VERSION
    return CoordinatorRecord(group_key(group_id), INT16.pack(version) + value.encode(version))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a classic group."""
    return CoordinatorRecord(group_key(group_id), None)


def group_key(group_id: str) -> bytes:
    """Return the key of a classic group."""
    key = tables.GroupMetadataKey(group=group_id)
    return _GROUP_KEY + key.encode(tables.GROUP_METADATA)


# Reading.


def read_group_key(stored: StoredRecord) -> str:
    """Return the id of a classic group. Raises KafkaError (CORRUPT_MESSAGE)."""
    try:
        key, _ = tables.GroupMetadataKey.decoder(tables.GROUP_METADATA)(
            memoryview(stored.key), INT16.size, len(stored.key)
        )
    except MalformedMessage as error:
        raise senseless(stored, str(error)) from error
    return key.group


def read_group(group_id: str, stored: StoredRecord) -> ClassicGroup:
    """Return a classic group as it was written. Raises KafkaError (CORRUPT_MESSAGE)."""
    data, version = value_of(stored, GROUP_METADATA_VERSIONS)
    try:
        value, _ = tables.GroupMetadataValue.decoder(version)(data, INT16.size, len(data))
    except MalformedMessage as error:
        raise senseless(stored, str(error)) from error
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    for one in value.members:
        member = Member(
            one.member_id,
            instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout_ms=(
                one.session_timeout if one.rebalance_timeout < 0 else one.rebalance_timeout
            ),
            session_timeout_ms=one.session_timeout,
            protocols=(Protocol(value.protocol or "", one.subscription),),
            assignment=one.assignment,
        )
        group.add(member, value.protocol_type)
    if group.members:
        group.state = GroupState.STABLE
        if value.leader in group.members:
            group.leader = value.leader
    group.note_subscriptions()
    return group
