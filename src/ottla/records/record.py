"""One record as people and clients see it. The broker's hot paths never make one of these."""

from typing import NamedTuple

from ottla.records.batch import NO_TIMESTAMP, BatchHeader, TimestampType


class Record(NamedTuple):
    """A key, a value, and where and when. All fields have defaults, for producers."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970; -1: none."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    key: bytes | None = None
    value: bytes | None = None
    """None marks the key as deleted in a compacted topic."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """In their order; a name may occur more than once."""


class DecodedBatch(NamedTuple):
    """A batch with its records decoded.

    The header is the one read; for an entry of an old message set it is what an up-converted
    batch would say, with the entry's own magic, length and CRC.
    """

    header: BatchHeader
    records: list[Record]
