"""Who sends a Fetch, and how many partitions it may name."""

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


def is_follower(request: FetchRequest) -> bool:
    """Whether the request says that a broker sends it. With one node there are no followers."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)
