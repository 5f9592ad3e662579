"""Reads and writes the bytes in which consumers tell what they read, own and are assigned. Pure.

    subscription = version int16, topics array of string, user_data bytes,
                   1+: owned array of partitions, 2+: generation int32, 3+: rack string
    assignment   = version int16, array of partitions, user_data bytes
    partitions   = topic string, array of int32

Later versions only append. Whoever joins may say that millions of topics follow, each of two bytes:
no more than ``ELEMENTS_MAX`` are read in one go. Source: Kafka's ConsumerProtocolSubscription and
-Assignment.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, error, pack
from typing import NamedTuple

VERSION_MAX = 3
ELEMENTS_MAX = 100_000
"""The most numbers of partitions that are read in one go: some ms."""
NAME_COST = 5
"""A name takes so much longer to read than a number."""
LISTS_KEPT = 8
LIST_BYTES_MAX = 64 * 1024
"""So many lists of topics, and none that is longer, are known by their bytes when they come again.
"""
OWNED_SINCE, GENERATION_SINCE, RACK_SINCE = 1, 2, 3
_INT16, _INT32 = Struct(">h"), Struct(">i")
_NULL_BYTES = _INT32.pack(-1)


class Subscription(NamedTuple):
    """The topics that a member reads, and the partitions that it owns."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    """Empty before version 1."""
    rack_id: str | None


def subscribed_topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None when they cannot be read, or are too many.

    Members that read the same topics name them by the same bytes, which are read once.
    """
    topics: set[str] = set()
    known: list[bytes] = []
    left = ELEMENTS_MAX
    try:
        for subscription in subscriptions:
            reader = _Reader(subscription, left)
            if any(subscription.startswith(one, _INT16.size) for one in known):
                continue
            topics.update(reader.texts())
            left = reader.left
            passed = reader.passed(_INT16.size)
            if len(known) < LISTS_KEPT and len(passed) <= LIST_BYTES_MAX:
                known.append(passed)
    except (error, ValueError):
        return None
    return frozenset(topics)


def read_subscription(data: bytes) -> Subscription:
    """Return a member's subscription from JoinGroup. Raises ValueError."""
    try:
        reader = _Reader(data)
        topics = tuple(reader.texts())
        reader.skip_bytes()
        owned = reader.partitions() if reader.version >= OWNED_SINCE else {}
        if reader.version >= GENERATION_SINCE:
            reader.skip(_INT32.size)
        rack_id = reader.text_or_none() if reader.version >= RACK_SINCE else None
    except error as short:
        raise ValueError(f"a subscription of {len(data)} bytes ends too early") from short
    return Subscription(topics, owned, rack_id)


def read_assignment(data: bytes) -> Mapping[str, tuple[int, ...]]:
    """Return a member's assignment by its leader. Raises ValueError."""
    try:
        return _Reader(data).partitions()
    except error as short:
        raise ValueError(f"an assignment of {len(data)} bytes ends too early") from short


def assignment_bytes(subscription: bytes, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Return an assignment in the version of a member's subscription. Raises ValueError."""
    parts = [_INT16.pack(_Reader(subscription).version), _INT32.pack(len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        name, ordered = topic.encode(), sorted(numbers)
        parts += [_INT16.pack(len(name)), name, pack(f">i{len(ordered)}i", len(ordered), *ordered)]
    return b"".join([*parts, _NULL_BYTES])


class _Reader:
    """Reads the bytes from left to right. Raises struct.error and ValueError."""

    def __init__(self, data: bytes, left: int | None = None) -> None:
        self._data = data
        self.left = ELEMENTS_MAX if left is None else left
        """Use: how many elements may still be read."""
        self._position = 0
        if len(data) < _INT16.size:
            raise ValueError(f"{len(data)} bytes have no version")
        self.version = min(self._int16(), VERSION_MAX)
        if self.version < 0:
            raise ValueError(f"version {self.version}")

    def _int16(self) -> int:
        number: int = _INT16.unpack_from(self._data, self._position)[0]
        self._position += _INT16.size
        return number

    def passed(self, begin: int) -> bytes:
        """Return what was read, from a position on."""
        return self._data[begin : self._position]

    def _count(self, element_bytes: int, cost: int) -> int:
        number: int = _INT32.unpack_from(self._data, self._position)[0]
        self._position += _INT32.size
        if not 0 <= number <= (len(self._data) - self._position) // element_bytes:
            raise ValueError(f"{number} elements in {len(self._data)} bytes")
        self.left -= number * cost
        if self.left < 0:
            raise ValueError(f"{number} elements, too many to read in one go")
        return number

    def skip(self, size_bytes: int) -> None:
        self._position += size_bytes
        if self._position > len(self._data):
            raise ValueError(f"{len(self._data)} bytes end too early")

    def skip_bytes(self) -> None:
        (size,) = _INT32.unpack_from(self._data, self._position)
        self.skip(_INT32.size + max(size, 0))

    def text_or_none(self) -> str | None:
        length = self._int16()
        if length < 0:
            return None
        text = self._data[self._position : self._position + length]
        if len(text) < length:
            raise ValueError(f"a text of {length} bytes")
        self._position += length
        return text.decode()

    def _text(self) -> str:
        text = self.text_or_none()
        if text is None:
            raise ValueError("a name is null")
        return text

    def texts(self) -> Sequence[str]:
        return [self._text() for _ in range(self._count(_INT16.size, NAME_COST))]

    def partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self._count(_INT16.size + _INT32.size, NAME_COST)):
            topic = self._text()
            count = self._count(_INT32.size, 1)
            found[topic] = Struct(f">{count}i").unpack_from(self._data, self._position)
            self._position += count * _INT32.size
        return found
