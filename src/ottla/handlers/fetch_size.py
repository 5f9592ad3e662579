"""How long the answer to a Fetch would be, before it is made: what its quota counts.

Owns the layout of an answer as far as its length depends on it. Optional fields (tags) are left
out: only answers with errors have them. Needed only while there is a quota.
"""

from collections.abc import Iterable

from ottla.protocol.messages.fetch import TOPIC_IDS_SINCE
from ottla.replication.fetch import FetchedPartition, size_of

FLEXIBLE_SINCE = 12
_LENGTH_BYTES = 4
_TOPIC_ID_BYTES = 16
_ABORTED_BYTES = 16


def answer_bytes(version: int, fetched: Iterable[FetchedPartition]) -> int:
    """Return the length of the answer that holds ``fetched``, without its header."""
    by_topic: dict[str, list[FetchedPartition]] = {}
    for one in fetched:
        by_topic.setdefault(one.topic_partition.topic, []).append(one)
    is_flexible = version >= FLEXIBLE_SINCE
    # The throttle time, and from v7 on an error code and a session id; in the end perhaps no tags.
    size = _LENGTH_BYTES + 4 + (6 if version >= 7 else 0) + is_flexible
    size += _count_bytes(len(by_topic), is_flexible)
    for topic, partitions in by_topic.items():
        if version >= TOPIC_IDS_SINCE:
            size += _TOPIC_ID_BYTES
        else:
            name_bytes = len(topic.encode())
            size += name_bytes + (_varint_bytes(name_bytes + 1) if is_flexible else 2)
        size += _count_bytes(len(partitions), is_flexible) + is_flexible
        size += sum(_partition_bytes(one, version, is_flexible) for one in partitions)
    return size


def _partition_bytes(one: FetchedPartition, version: int, is_flexible: bool) -> int:
    """Index, code, two offsets; the start of the log; the replica; aborted; records; tags."""
    size = 22 + (8 if version >= 5 else 0) + (4 if version >= 11 else 0) + is_flexible
    size += _count_bytes(len(one.aborted), is_flexible)
    size += len(one.aborted) * (_ABORTED_BYTES + is_flexible)
    records_bytes = size_of(one)
    return size + records_bytes + _count_bytes(records_bytes, is_flexible)


def _count_bytes(count: int, is_flexible: bool) -> int:
    return _varint_bytes(count + 1) if is_flexible else 4


def _varint_bytes(number: int) -> int:
    return max(-(-number.bit_length() // 7), 1)
