"""Writes and reads the records of committed offsets in ``__consumer_offsets``. Pure.

Writes what Kafka 4.3 writes, version by version; reads every version there ever was. The tables in
``tables`` are the truth. A commit of today's version is packed and unpacked here without the
objects of the tables, at a third of the cost: a load replays hundreds of thousands. A test compares
both ways.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from ottla.coordinator.group.offsets import tables
from ottla.coordinator.group.offsets.committed import NEVER_EXPIRES, CommittedOffset, OffsetKey
from ottla.coordinator.group.record_bytes import INT16, senseless, value_of
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.errors import MalformedMessage
from ottla.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, TopicId
from ottla.records.builder import KeyAndValue

_INT16_INT16 = Struct(">hh")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VALUE_HEAD = Struct(">hqi")
_PLAIN_VALUE = Struct(">hqiBq3s16s")
"""The whole value of a commit of today's version without metadata."""
OFFSET_KEY_TYPES = (tables.LEGACY_OFFSET_COMMIT, tables.OFFSET_COMMIT)
_SHORT_TEXT_BYTES_MAX = 126
"""The compact length of a longer text takes a second byte."""
_TOPIC_ID_TAG = bytes((1, 0, 16))
"""One tag, its number, and its length in bytes."""
_CACHED_KEY_HEADS_MAX = 4096
_CACHED_NAMES_LENGTH_MAX = 256
"""Longer names are rare and would make the cache large."""
OFFSET_COMMIT_VERSIONS = 4


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
    return INT16.pack(version) + message.encode(version)


def offset_tombstone(key: OffsetKey) -> CoordinatorRecord:
    """Return the record that deletes a committed offset."""
    return CoordinatorRecord(offset_key(key), None)


def offset_key(key: OffsetKey) -> bytes:
    """Return the key of a committed offset."""
    return _offset_key_head(key.group, key.topic) + _INT32.pack(key.partition)


def _offset_key_head(group_id: str, topic_name: str) -> bytes:
    """Return the bytes with which the keys of a topic's partitions begin."""
    group, topic = group_id.encode(), topic_name.encode()
    return b"".join(
        (
            _INT16_INT16.pack(tables.OFFSET_COMMIT, len(group)),
            group,
            INT16.pack(len(topic)),
            topic,
        )
    )


_cached_key_head = lru_cache(_CACHED_KEY_HEADS_MAX)(_offset_key_head)


# Reading.


class OffsetKeyReader:
    """Reads the keys of offsets. The keys of one commit mostly differ in their partition only."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        """Use: the last key, without its partition."""
        self._group = self._topic = ""
        """Use: the names in it."""

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
        (topic_bytes,) = INT16.unpack_from(key, group_end)
        topic_end = group_end + INT16.size + topic_bytes
        (partition,) = _INT32.unpack_from(key, topic_end)
    except StructError as error:
        raise senseless(stored, "an offset's key that ends too early") from error
    if group_bytes < 0 or topic_bytes < 0:
        raise senseless(stored, f"texts of {group_bytes} and {topic_bytes} bytes")
    group = key[_INT16_INT16.size : group_end].decode("utf-8", "replace")
    topic = key[group_end + INT16.size : topic_end].decode("utf-8", "replace")
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
    data, version = value_of(stored, OFFSET_COMMIT_VERSIONS)
    try:
        value, _ = tables.OffsetCommitValue.decoder(version)(data, INT16.size, len(data))
    except MalformedMessage as error:
        raise senseless(stored, str(error)) from error
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        stored.offset,
    )
