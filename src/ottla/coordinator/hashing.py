"""Which partition of an internal topic coordinates a key: Kafka's rule, so that its data is found.

The same for groups and transactional ids. Source: Java's ``String.hashCode`` and Kafka's
``Utils.abs``; a directory that Kafka wrote must be read back key by key.
"""

from functools import lru_cache

INT32_SIGN = 1 << 31
_CACHED_KEYS_MAX = 16_384
_CACHED_KEY_LENGTH_MAX = 128
"""Longer keys are rare and would make the cache large."""


def java_hash(text: str) -> int:
    """Return Java's hash of ``text``: a signed 32-bit number, over UTF-16 code units."""
    value = 0
    if text.isascii():
        for byte in text.encode("ascii"):
            value = 31 * value + byte & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            unit = units[position] << 8 | units[position + 1]
            value = 31 * value + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & INT32_SIGN else value


_cached_hash = lru_cache(_CACHED_KEYS_MAX)(java_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition, in ``[0, partition_count)``, whose leader coordinates ``key``."""
    hashed = _cached_hash(key) if len(key) <= _CACHED_KEY_LENGTH_MAX else java_hash(key)
    # The one number without a positive twin is 0 in Kafka.
    return 0 if hashed == -INT32_SIGN else abs(hashed) % partition_count
