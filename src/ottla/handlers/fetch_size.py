"""How long the answer to a Fetch would be, before it is made: what its quota counts.

Owns the layout of an answer as far as its length depends on it. Optional fields (tags) are left
out: only answers with errors have them. Needed only while there is a quota.
"""

from collections.abc import Sequence
from functools import lru_cache

from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.messages.fetch import TOPIC_IDS_SINCE
from ottla.replication.fetch import FetchedPartition

_FLEXIBLE_SINCE = 12
_TOPIC_ID_BYTES = 16
_ABORTED_BYTES = 16
_ONE_BYTE_MAX, _TWO_BYTES_MAX = 126, 16_382
"""Lengths above them take more than one byte, or two, in flexible versions."""


def answer_bytes(version: int, fetched: Sequence[FetchedPartition]) -> int:
    """Return the length of the answer that holds ``fetched``, with its length, without its header.

    Partitions of a topic stand together.
    """
    if len(fetched) != 1 or version < _FLEXIBLE_SINCE or (only := fetched[0]).aborted:
        return _of_many(version, fetched)
    size = ONE_PARTITION_BYTES[version]  # The usual answer, faster.
    if version < TOPIC_IDS_SINCE:
        name = only.topic_partition.topic
        name_bytes = len(name) if name.isascii() else len(name.encode())
        size += name_bytes + (name_bytes > _ONE_BYTE_MAX)
    region = only.region
    if region is None:
        return size
    records_bytes = region.length_bytes
    if records_bytes <= _ONE_BYTE_MAX:
        return size + records_bytes
    if records_bytes <= _TWO_BYTES_MAX:
        return size + records_bytes + 1
    return size + records_bytes + _varint_bytes(records_bytes + 1) - 1


def _of_many(version: int, fetched: Sequence[FetchedPartition]) -> int:
    whole, topic_bytes, partition_bytes, is_flexible = _fixed(version)
    size, topics, topic, of_topic = whole, 0, None, 0
    for one in fetched:
        region = one.region
        records_bytes = 0 if region is None else region.length_bytes
        size += partition_bytes + records_bytes
        if is_flexible:
            size += _varint_bytes(records_bytes + 1)
        if one.aborted:
            size += len(one.aborted) * (_ABORTED_BYTES + is_flexible)
            if is_flexible:
                size += _varint_bytes(len(one.aborted) + 1) - 1
        name = one.topic_partition.topic
        if name != topic:
            topic, topics = name, topics + 1
            size += topic_bytes
            if version < TOPIC_IDS_SINCE:
                name_bytes = len(name.encode())
                size += name_bytes + (is_flexible and name_bytes > 126)
            if is_flexible and of_topic > 126:
                size += _varint_bytes(of_topic + 1) - 1
            of_topic = 0
        of_topic += 1
    if is_flexible:
        size += _varint_bytes(topics + 1) + _varint_bytes(of_topic + 1) - 1
    return size


@lru_cache
def _fixed(version: int) -> tuple[int, int, int, bool]:
    """Return the bytes of an answer, a topic and a partition that do not depend on their contents.

    In flexible versions these are those with one byte for the length of a name and for the number
    of a topic's partitions and of aborted transactions, and none for the others.
    """
    is_flexible = version >= _FLEXIBLE_SINCE
    # The length, the throttle time, from v7 on a code and a session id; the number of topics; tags.
    whole = 8 + (6 if version >= 7 else 0) + (1 if is_flexible else 4)
    # The name's length or the id, the number of partitions; tags.
    name = _TOPIC_ID_BYTES if version >= TOPIC_IDS_SINCE else (1 if is_flexible else 2)
    topic = name + (2 if is_flexible else 4)
    # Index, code, two offsets; the start of the log; the replica; numbers of aborted, of records.
    partition = 22 + (8 if version >= 5 else 0) + (4 if version >= 11 else 0)
    return whole, topic, partition + (2 if is_flexible else 8), is_flexible


def _varint_bytes(number: int) -> int:
    return max(-(-number.bit_length() // 7), 1)


ONE_PARTITION_BYTES = tuple(
    sum(_fixed(version)[:3]) + 2 if version >= _FLEXIBLE_SINCE else 0
    for version in range(max(API_TABLE[ApiKey.FETCH].versions) + 1)
)
"""By flexible version, 0 for others: of an answer with one partition, without its records and the
topic's name; with one byte each for the number of topics and for the length of the records."""
