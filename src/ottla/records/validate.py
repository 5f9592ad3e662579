"""Checks a batch that a client has produced, before the leader assigns its offset.

Owns the rules and their error codes: first for frame and header (``frame_produced_batch``,
microseconds, on the event loop), then for the records (``check_batch_records``: a walk of the
kernel, which unpacks a compressed payload; the caller may run it in an executor). Both are pure and
thread-safe. Knows nothing of topics, logs or producer state: with the returned ``BatchInfo`` the
caller checks sequences, bounds of timestamps, and keys that a compacted topic requires.
Source: the checks and codes of Apache Kafka 4.3, asked on the wire. Stricter than Kafka on purpose:
offset deltas other than 0, 1, 2 ... in an uncompressed batch (Kafka stores them and serves offsets
twice), null keys with a length other than -1, and bytes after a compressed payload.
"""

from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    batch_crc,
    read_header,
    read_size_bytes,
)
from ottla.records.compression import codec_of, decompress
from ottla.records.kernels import REASONS, read_usual_batch, validate_records

DECOMPRESSED_BYTES_MIN = 64 * 1024 * 1024
DECOMPRESSED_RATIO_MAX = 64

_MESSAGE_OVERHEAD_V0 = 14
"""The shortest length field of any format: a MessageSet v0 entry without key and value."""
_new = tuple.__new__
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class BatchInfo(NamedTuple):
    """What a checked batch holds, beside its header. Timestamps in ms, extremes inclusive.

    The records' own timestamps: the caller compares ``max_timestamp`` with the header's, which a
    producer may have set wrong, and corrects that (``ottla.records.batch.set_max_timestamp``), as
    Kafka does. ``max_timestamp`` is -1 at least, the mark of records without a timestamp.
    """

    header: BatchHeader
    min_timestamp: int
    max_timestamp: int
    first_null_key_index: int
    """Index in the batch of the first record without a key; -1: every record has one."""


def decompressed_bytes_limit(max_message_bytes: int) -> int:
    """How far a batch of at most ``max_message_bytes`` may decompress: a bound against bombs."""
    return max(DECOMPRESSED_BYTES_MIN, DECOMPRESSED_RATIO_MAX * max_message_bytes)


def check_produced_batch(records: memoryview, max_message_bytes: int) -> BatchInfo:
    """Check the records of one partition of a Produce request, wholly and on this thread.

    The batch is the first ``info.header.size_bytes`` bytes of ``records``. Raises ``KafkaError``.
    """
    view, header = frame_produced_batch(records, max_message_bytes)
    return check_batch_records(view, header, decompressed_bytes_limit(max_message_bytes))


def check_usual_batch(
    records: memoryview, max_message_bytes: int
) -> tuple[BatchHeader, int, int, int] | None:
    """Check the batch of most producers, by one call of the kernel and one sum.

    None says nothing but that this is not the way to check it: it may be good or bad. What comes
    back are the parts of a BatchInfo that would have come from ``frame_produced_batch`` and
    ``check_batch_records``, too, and the batch fills ``records``.
    """
    found = read_usual_batch(records)
    if found is None or len(records) > max_message_bytes or batch_crc(records) != found[4]:
        return None
    # As BatchHeader(*found[:13]), in a third of the time: every produce comes through here.
    header = _new(BatchHeader, found[:13])
    return header, found[13], found[14], found[15]


def frame_produced_batch(
    records: memoryview, max_message_bytes: int
) -> tuple[memoryview, BatchHeader]:
    """Return the one batch in ``records`` with its header: size, magic, sum, count, bits checked.

    Raises ``KafkaError``: CORRUPT_MESSAGE (length, magic or sum wrong), INVALID_RECORD (not
    exactly one batch, an old format, or a header no client may send), MESSAGE_TOO_LARGE (larger
    than ``max_message_bytes``), UNSUPPORTED_COMPRESSION_TYPE. Does not look at the records.
    """
    view = _only_batch(records)
    header = read_header(view)
    if header.base_offset != 0:
        raise _invalid(f"base offset {header.base_offset}; a client sends 0")
    if len(view) > max_message_bytes:
        why = f"batch of {len(view)} bytes; max.message.bytes is {max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    crc = batch_crc(view)
    if crc != header.crc:
        raise _corrupt(f"CRC32C {crc:#010x}; the batch says {header.crc:#010x}")
    _check_header(header)
    return view, header


def check_batch_records(
    view: memoryview, header: BatchHeader, decompressed_bytes_max: int
) -> BatchInfo:
    """Walk the records of a framed batch, decompressing them to at most the given size.

    Raises ``KafkaError``: INVALID_RECORD for records or a payload that cannot be read exactly,
    MESSAGE_TOO_LARGE past the bound. Cost: nanoseconds a record, plus the codec.
    """
    payload: bytes | memoryview = view[HEADER_SIZE_BYTES:]
    codec = header.attributes & CODEC_MASK
    if codec:
        payload = decompress(codec, payload, decompressed_bytes_max)
    reason, index, first_null_key, delta_min, delta_max = validate_records(
        payload, header.record_count
    )
    if reason:
        raise _invalid(f"record {index} of {header.record_count}: {REASONS[reason]}")
    min_timestamp = header.base_timestamp + delta_min
    max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + delta_max)
    if min_timestamp < _INT64_MIN or max_timestamp > _INT64_MAX:
        raise _invalid(f"timestamps {min_timestamp} to {max_timestamp} do not fit 64 bits")
    return BatchInfo(header, min_timestamp, max_timestamp, first_null_key)


def _only_batch(records: memoryview) -> memoryview:
    """Cut the one batch out of ``records``; what is too short for another is dropped, as by Kafka.

    A second complete batch is refused here and not appended by half, and so is a length or magic
    that no batch has.
    """
    size = _batch_size(records)
    if not size:
        raise _invalid(f"no complete record batch in {len(records)} bytes")
    if len(records) > size:
        if _batch_size(records[size:]):
            raise _invalid("more than one record batch")
        records = records[:size]
    magic = records[MAGIC_POSITION]
    if magic < MAGIC_V2:
        raise _invalid(f"magic {magic}; a batch that is produced has {MAGIC_V2}")
    if size < HEADER_SIZE_BYTES:
        raise _corrupt(f"batch length {size - LOG_OVERHEAD_BYTES}")
    return records


def _batch_size(records: memoryview) -> int:
    """Return the size of the batch at the start of ``records``, 0 if there is no complete one."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 0
    size = read_size_bytes(records)
    if size < LOG_OVERHEAD_BYTES + _MESSAGE_OVERHEAD_V0:
        raise _corrupt(f"batch length {size - LOG_OVERHEAD_BYTES}")
    if size > len(records):
        return 0
    if records[MAGIC_POSITION] > MAGIC_V2:
        raise _corrupt(f"magic {records[MAGIC_POSITION]}")
    return size


def _check_header(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"record count {header.record_count}, last offset delta {header.last_offset_delta}"
        )
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise _invalid(f"producer id {header.producer_id}, base sequence {header.base_sequence}")
    if header.attributes & (CONTROL_BIT | CODEC_MASK):
        _check_attributes(header)


def _check_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("a client may not write control records")
    codec_of(header.codec)


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, why)
