"""How much a Fetch may ask for: the partitions that it names, and the bytes that it waits for."""

from ottla.protocol.messages.fetch import FetchRequest
from ottla.replication.fetch import FetchLimits

PARTITIONS_MAX = 10_000
"""A session cannot have more partitions: each of its answers would hold the loop for long. A
request that names more is answered completely, in slices, without a session."""


def limited(limits: FetchLimits, bytes_max: int) -> FetchLimits:
    """Return limits within which an answer fits into the client's quota at some time."""
    if limits.max_bytes <= bytes_max and limits.min_bytes <= bytes_max:
        return limits
    bytes_max = min(limits.max_bytes, bytes_max)
    return limits._replace(max_bytes=bytes_max, min_bytes=min(limits.min_bytes, bytes_max))


def named_count(request: FetchRequest) -> int:
    """Return how many partitions and topics a request names; stops above ``PARTITIONS_MAX``."""
    named = 0
    for topic in request.topics:
        named += 1 + len(topic.partitions)
        if named > PARTITIONS_MAX:
            return named
    for forgotten in request.forgotten_topics_data:
        named += 1 + len(forgotten.partitions)
        if named > PARTITIONS_MAX:
            return named
    return named
