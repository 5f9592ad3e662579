"""The number by which a KIP-848 group notices that the topics it reads have changed. Pure.

    topic = xxh3(0 int8, id int64 int64, name, count int32, (number int32, (length int32, rack)*)*)
    group = xxh3(topic int64, in the order of the topics' names)

Integers are little-endian; a text is UTF-16 little-endian with its length in units behind it. It
is Kafka's number, to the bit: a group goes on from the log of either without a rebalance.
Source: Kafka's coordinator (KIP-1101, Utils.computeTopicHash); groups of a live Kafka 4.3.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct

from ottla.coordinator.group.consumer.xxh3 import xxh3_64
from ottla.ids import TopicId

NO_TOPICS = 0
_MAGIC = bytes(1)
_INT32, _UINT64 = Struct("<i"), Struct("<Q")
_SIGN = 1 << 63
Racks = tuple[str, ...]


def group_hash(topic_hashes: Sequence[int]) -> int:
    """Return the signed hash of topics given in the order of their names; 0 for none."""
    if not topic_hashes:
        return NO_TOPICS
    return _signed(xxh3_64(b"".join(map(_UINT64.pack, topic_hashes))))


@lru_cache(maxsize=4096)
def topic_hash(name: str, topic_id: TopicId, racks: tuple[Racks, ...]) -> int:
    """Return the unsigned hash of a topic; ``racks`` has those of each partition's replicas."""
    parts = [_MAGIC, topic_id[7::-1], topic_id[:7:-1], _text(name), _INT32.pack(len(racks))]
    for number, of_partition in enumerate(racks):
        parts.append(_INT32.pack(number))
        parts += _racks(of_partition)
    return xxh3_64(b"".join(parts))


def _racks(racks: Iterable[str]) -> Iterable[bytes]:
    for rack in sorted(racks):
        yield _INT32.pack(len(rack.encode("utf-16-le")) // 2)
        yield _text(rack)


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + _INT32.pack(len(units) // 2)


def _signed(number: int) -> int:
    return (number ^ _SIGN) - _SIGN
