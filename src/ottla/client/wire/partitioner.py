"""Which partition a record goes to: Java's choice, so that equal keys meet whatever client wrote.

Source: Kafka's documentation of partitioner.class. The hash is in ``ottla.records.rows``.
"""

from ottla.records.rows import murmur2

__all__ = ["murmur2", "partition_of_key"]


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` among ``partition_count`` (>= 1), as Java's producer does."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
