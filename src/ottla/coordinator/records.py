"""What coordinators write to their partition and read back from it.

Owns the shapes that pass between a state machine and its log, and decodes stored batches into them.
Keys and values stay bytes here; each coordinator has tables of its own for them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_keys_and_values

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""The largest size of one stored batch when it is decompressed. Kafka compresses such batches if
``offsets.topic.compression.codec`` says so."""


class CoordinatorRecord(NamedTuple):
    """A record to be written. ``value`` None deletes the key."""

    key: bytes
    value: bytes | None


class ProducerIdAndEpoch(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    epoch: int


class StoredRecord(NamedTuple):
    """A record as it stands in the log."""

    offset: int
    producer_id: int
    """-1 unless it was written in a transaction: such a record counts once a marker commits it."""
    key: bytes
    value: bytes | None


class EndMarker(NamedTuple):
    """A producer's transaction ended in this partition."""

    producer_id: int
    is_commit: bool


class Slice(NamedTuple):
    """A stretch of a log, decoded."""

    entries: list[StoredRecord | EndMarker]
    next_offset: int
    """Where the next stretch begins; -1 when there was no whole batch."""


def decode_slice(data: bytes) -> Slice:
    """Decode stored batches. A batch that is cut at the end is left to the next slice.

    Thread-safe. Raises KafkaError: CORRUPT_MESSAGE and the codes of a codec.
    """
    entries: list[StoredRecord | EndMarker] = []
    next_offset = -1
    for header, records in decode_keys_and_values(data, DECOMPRESSED_BYTES_MAX):
        next_offset = header.next_offset
        producer_id = header.producer_id if header.is_transactional else -1
        if header.is_control:
            entries += _markers(producer_id, [key for _, key, _ in records])
            continue
        entries += [
            StoredRecord(offset, producer_id, key, value)
            for offset, key, value in records
            if key is not None
        ]
    return Slice(entries, next_offset)


def _markers(producer_id: int, keys: list[bytes | None]) -> Iterator[EndMarker]:
    for key in keys:
        control_type = control_type_of(key)
        if control_type is not None:
            yield EndMarker(producer_id, control_type is ControlType.COMMIT)
