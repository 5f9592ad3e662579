"""Which partition a record goes to: Java's choice, so that equal keys meet whatever client wrote.

Source: Kafka's documentation of partitioner.class; murmur2 by Austin Appleby (public domain), with
the seed that Kafka's clients use.
"""

_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of ``data``, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if whole < length:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` among ``partition_count`` (>= 1), as Java's producer does."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
