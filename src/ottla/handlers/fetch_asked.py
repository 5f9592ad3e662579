"""How many partitions a Fetch may name."""

from ottla.protocol.messages.fetch import FetchRequest

PARTITIONS_MAX = 10_000
"""A session cannot have more partitions: each of its answers would hold the loop for long. A
request that names more is answered completely, in slices, without a session."""


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
