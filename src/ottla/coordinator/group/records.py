"""Between the group coordinator's memory and the bytes of ``__consumer_offsets``.

What is written is what Kafka 4.3 writes, version by version; read is every version there ever was.
Pure. The tables are in ``tables`` and are the truth. A commit of today's version is packed and
unpacked here without making objects of them, a third of the cost: a load replays them by the
hundred thousand. A test holds both ways against each other.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from ottla.coordinator.group import tables
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Member, Protocol
from ottla.coordinator.group.offsets import NEVER_EXPIRES, CommittedOffset, OffsetKey
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, TopicId
from ottla.records.builder import KeyAndValue

_INT16 = Struct(">h")
_INT16_INT16 = Struct(">hh")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VALUE_HEAD = Struct(">hqi")
_PLAIN_VALUE = Struct(">hqiBq3s16s")
"""A commit of today's version without metadata: all of it."""
_GROUP_KEY = _INT16.pack(tables.GROUP_METADATA)
OFFSET_KEY_TYPES = (tables.LEGACY_OFFSET_COMMIT, tables.OFFSET_COMMIT)
_SHORT_TEXT_BYTES_MAX = 126
"""The compact length of a longer one takes a second byte."""
_TOPIC_ID_TAG = bytes((1, 0, 16))
"""One tag, its number, and the bytes behind it."""
_CACHED_KEY_HEADS_MAX = 4096
_CACHED_NAMES_LENGTH_MAX = 256
"""Longer ones are nobody's habit, and would make the cache large."""
OFFSET_COMMIT_VERSIONS = 4
GROUP_METADATA_VERSIONS = 4


# Writing.


def offset_records(  # noqa: PLR0917 - what a topic's commits have in common
    group: str,
    topic: str,
    topic_id: TopicId,
    commits: Iterable[tuple[int, int, int, str | None]],
    time_ms: int,
    expire_ms: int,
) -> list[KeyAndValue]:
    """Return the records of commits: partition, offset, leader epoch and metadata of each.

    Raises StructError for a text that is too long to store.
    """
    if len(group) + len(topic) <= _CACHED_NAMES_LENGTH_MAX:
        head = _cached_key_head(group, topic)
    else:
        head = _offset_key_head(group, topic)
    is_usual = expire_ms == NEVER_EXPIRES and topic_id != NULL_TOPIC_ID
    tail = _INT64.pack(time_ms) + _TOPIC_ID_TAG + topic_id
    empty_and_tail = b"\1" + tail
    pack_partition, pack_head, version = _INT32.pack, _VALUE_HEAD.pack, tables.OFFSET_COMMIT_VERSION
    found: list[KeyAndValue] = []
    for partition, offset, epoch, text in commits:
        metadata = text.encode() if text else b""
        if not is_usual or len(metadata) > _SHORT_TEXT_BYTES_MAX:
            value = _offset_value(offset, epoch, text or "", time_ms, expire_ms, topic_id)
        elif metadata:
            length = bytes((len(metadata) + 1,))
            value = b"".join((pack_head(version, offset, epoch), length, metadata, tail))
        else:
            value = pack_head(version, offset, epoch) + empty_and_tail
        found.append((head + pack_partition(partition), value))
    return found


def _offset_value(  # noqa: PLR0917 - the fields of a value
    offset: int, epoch: int, metadata: str, time_ms: int, expire_ms: int, topic_id: TopicId
) -> bytes:
    version = tables.OFFSET_COMMIT_VERSION
    if expire_ms != NEVER_EXPIRES:
        version = tables.OFFSET_COMMIT_VERSION_WITH_EXPIRY
    elif topic_id == NULL_TOPIC_ID:
        version = tables.OFFSET_COMMIT_VERSION_WITHOUT_ID
    message = tables.OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch,
        metadata=metadata,
        commit_timestamp=time_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    return _INT16.pack(version) + message.encode(version)


def offset_tombstone(key: OffsetKey) -> CoordinatorRecord:
    """Return the record that forgets a commit."""
    return CoordinatorRecord(offset_key(key), None)


def offset_key(key: OffsetKey) -> bytes:
    """Return the key of a committed offset."""
    return _offset_key_head(key.group, key.topic) + _INT32.pack(key.partition)


def _offset_key_head(group_id: str, topic_name: str) -> bytes:
    """Return what the keys of a topic's partitions begin with."""
    group, topic = group_id.encode(), topic_name.encode()
    return b"".join(
        (
            _INT16_INT16.pack(tables.OFFSET_COMMIT, len(group)),
            group,
            _INT16.pack(len(topic)),
            topic,
        )
    )


_cached_key_head = lru_cache(_CACHED_KEY_HEADS_MAX)(_offset_key_head)


def written(make: Callable[[], CoordinatorRecord]) -> CoordinatorRecord:
    """Return the record, or raise KafkaError (UNKNOWN_SERVER_ERROR) for a text too long to store.

    A request's texts are short enough, but grow by what stands for bytes that are no UTF-8.
    """
    try:
        return make()
    except StructError as error:
        raise too_long() from error


def too_long() -> KafkaError:
    """Return what is said of a text that is too long to store."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a text is too long to store")


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
    return CoordinatorRecord(group_key(group_id), _INT16.pack(version) + value.encode(version))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that forgets a classic group."""
    return CoordinatorRecord(group_key(group_id), None)


def group_key(group_id: str) -> bytes:
    """Return the key of a classic group."""
    key = tables.GroupMetadataKey(group=group_id)
    return _GROUP_KEY + key.encode(tables.GROUP_METADATA)


# Reading.


def key_type(stored: StoredRecord) -> int:
    """Return what kind of key a record has. Raises KafkaError (CORRUPT_MESSAGE)."""
    if len(stored.key) < _INT16.size:
        raise _senseless(stored, "a key without a type")
    number: int = _INT16.unpack_from(stored.key)[0]
    return number


class OffsetKeyReader:
    """Reads the keys of offsets. Those of one commit mostly differ in their partition only."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        """Use: the last key, without its partition."""
        self._group = self._topic = ""
        """Use: what stands in it."""

    def read(self, stored: StoredRecord) -> OffsetKey:
        """Return the key of an offset. Raises KafkaError (CORRUPT_MESSAGE)."""
        head = stored.key[: -_INT32.size]
        if head == self._head:
            partition = int.from_bytes(stored.key[-_INT32.size :], "big", signed=True)
            return OffsetKey(self._group, self._topic, partition)
        key, end = _offset_key(stored)
        if end == len(stored.key):
            self._head, self._group, self._topic = head, key.group, key.topic
        return key


def _offset_key(stored: StoredRecord) -> tuple[OffsetKey, int]:
    """Return the key of an offset, and where it ends. Raises KafkaError (CORRUPT_MESSAGE)."""
    key = stored.key
    try:
        _, group_bytes = _INT16_INT16.unpack_from(key)
        group_end = _INT16_INT16.size + group_bytes
        (topic_bytes,) = _INT16.unpack_from(key, group_end)
        topic_end = group_end + _INT16.size + topic_bytes
        (partition,) = _INT32.unpack_from(key, topic_end)
    except StructError as error:
        raise _senseless(stored, "an offset's key that ends too early") from error
    if group_bytes < 0 or topic_bytes < 0:
        raise _senseless(stored, f"texts of {group_bytes} and {topic_bytes} bytes")
    group = key[_INT16_INT16.size : group_end].decode("utf-8", "replace")
    topic = key[group_end + _INT16.size : topic_end].decode("utf-8", "replace")
    return OffsetKey(group, topic, partition), topic_end + _INT32.size


def read_offset_value(stored: StoredRecord) -> CommittedOffset:
    """Return a committed offset. Raises KafkaError (CORRUPT_MESSAGE)."""
    value = stored.value or b""
    if len(value) == _PLAIN_VALUE.size:
        version, offset, leader_epoch, length, time_ms, tag, topic_id = _PLAIN_VALUE.unpack(value)
        if version == tables.OFFSET_COMMIT_VERSION and length == 1 and tag == _TOPIC_ID_TAG:
            return CommittedOffset(
                offset, leader_epoch, "", time_ms, NEVER_EXPIRES, TopicId(topic_id), stored.offset
            )
    if len(value) > _VALUE_HEAD.size:
        metadata_bytes = value[_VALUE_HEAD.size] - 1
        time_at = _VALUE_HEAD.size + 1 + metadata_bytes
        tag_at = time_at + _INT64.size
        id_at = tag_at + len(_TOPIC_ID_TAG)
        version, offset, leader_epoch = _VALUE_HEAD.unpack_from(value)
        if (
            version == tables.OFFSET_COMMIT_VERSION
            and 0 <= metadata_bytes <= _SHORT_TEXT_BYTES_MAX
            and len(value) == id_at + TOPIC_ID_BYTES
            and value[tag_at:id_at] == _TOPIC_ID_TAG
        ):
            return CommittedOffset(
                offset,
                leader_epoch,
                value[_VALUE_HEAD.size + 1 : time_at].decode("utf-8", "replace"),
                _INT64.unpack_from(value, time_at)[0],
                NEVER_EXPIRES,
                TopicId(value[id_at:]),
                stored.offset,
            )
    return _read_offset_value(stored)


def _read_offset_value(stored: StoredRecord) -> CommittedOffset:
    data, version = _value(stored, OFFSET_COMMIT_VERSIONS)
    try:
        value, _ = tables.OffsetCommitValue.decoder(version)(data, _INT16.size, len(data))
    except MalformedMessage as error:
        raise _senseless(stored, str(error)) from error
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        stored.offset,
    )


def read_group_key(stored: StoredRecord) -> str:
    """Return the id of a classic group. Raises KafkaError (CORRUPT_MESSAGE)."""
    try:
        key, _ = tables.GroupMetadataKey.decoder(tables.GROUP_METADATA)(
            memoryview(stored.key), _INT16.size, len(stored.key)
        )
    except MalformedMessage as error:
        raise _senseless(stored, str(error)) from error
    return key.group


def read_group(group_id: str, stored: StoredRecord) -> ClassicGroup:
    """Return a classic group as it was written. Raises KafkaError (CORRUPT_MESSAGE)."""
    data, version = _value(stored, GROUP_METADATA_VERSIONS)
    try:
        value, _ = tables.GroupMetadataValue.decoder(version)(data, _INT16.size, len(data))
    except MalformedMessage as error:
        raise _senseless(stored, str(error)) from error
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


def _value(stored: StoredRecord, versions_max: int) -> tuple[memoryview, int]:
    data = memoryview(stored.value or b"")
    version: int = _INT16.unpack_from(data)[0] if len(data) >= _INT16.size else -1
    if not 0 <= version <= versions_max:
        raise _senseless(stored, f"a value of version {version}")
    return data, version


def _senseless(stored: StoredRecord, why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"offset {stored.offset}: {why}")
