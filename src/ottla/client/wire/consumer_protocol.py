"""What consumers of a classic group say to each other through the broker, and how they share. Pure.

    subscription = version int16, topics array of string, user_data bytes, ...
    assignment   = version int16, topics array of (topic string, partitions array of int32), ...

Later versions only append. Source: Kafka's ConsumerProtocol; the range assignor's documentation.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, error
from struct import pack as pack_struct

from ottla.ids import TopicPartition

PROTOCOL_TYPE = "consumer"
RANGE = "range"
_INT16, _INT32 = Struct(">h"), Struct(">i")
_NO_BYTES = _INT32.pack(-1)


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Return what a member says it reads."""
    names = sorted(topics)
    parts = [_INT16.pack(0), _INT32.pack(len(names)), *map(_string, names), _NO_BYTES]
    return b"".join(parts)


def decode_subscription(data: bytes) -> list[str]:
    """Return the topics a member reads. Raises ValueError."""
    try:
        (count,), position = _INT32.unpack_from(data, 2), 6
        topics = []
        for _ in range(_bounded(count, data)):
            topic, position = _read_string(data, position)
            topics.append(topic)
    except error as short:
        raise ValueError(f"{data[:20]!r} is no subscription") from short
    return topics


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return what a member is given."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT16.pack(0), _INT32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += [_string(topic), pack_struct(f">i{len(indexes)}i", len(indexes), *indexes)]
    return b"".join([*parts, _NO_BYTES])


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return what a member was given; nothing when ``data`` is empty. Raises ValueError."""
    partitions: list[TopicPartition] = []
    if not data:
        return partitions
    try:
        (count,), position = _INT32.unpack_from(data, 2), 6
        for _ in range(_bounded(count, data)):
            topic, position = _read_string(data, position)
            (size,) = _INT32.unpack_from(data, position)
            indexes = Struct(f">{_bounded(size, data)}i").unpack_from(data, position + 4)
            partitions += [TopicPartition(topic, index) for index in indexes]
            position += 4 + 4 * size
    except error as short:
        raise ValueError(f"{data[:20]!r} is no assignment") from short
    return partitions


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Give each member of ``subscriptions`` a stretch of every topic it reads.

    Members by their ids, topics by their names: whoever computes it gets the same.
    """
    given: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        readers = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(partition_counts.get(topic, 0), len(readers))
        begin = 0
        for index, member in enumerate(readers):
            end = begin + each + (index < more)
            given[member] += [TopicPartition(topic, one) for one in range(begin, end)]
            begin = end
    return given


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, position)
    begin, end = position + 2, position + 2 + length
    if not begin <= end <= len(data):
        raise ValueError(f"a text of {length} bytes")
    return data[begin:end].decode(), end


def _bounded(count: int, data: bytes) -> int:
    if not 0 <= count <= len(data):
        raise ValueError(f"{count} elements in {len(data)} bytes")
    return count
