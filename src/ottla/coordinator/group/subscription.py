"""What consumers say in JoinGroup about the topics they read: the front of their metadata.

    subscription = version int16, topics array of string, ...

Later versions only append. Source: Kafka's ConsumerProtocolSubscription.
"""

from collections.abc import Iterable
from struct import Struct, error

_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (error, ValueError):
        return None
    return frozenset(topics)


def _topics(data: bytes) -> list[str]:
    _, count = _COUNT.unpack_from(data)
    position = _COUNT.size
    if not 0 <= count <= (len(data) - position) // _LENGTH.size:
        raise ValueError(f"{count} topics in {len(data)} bytes")
    topics = []
    for _ in range(count):
        length: int = _LENGTH.unpack_from(data, position)[0]
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise ValueError(f"a topic of {length} bytes")
        topics.append(data[position : position + length].decode())
        position += length
    return topics
