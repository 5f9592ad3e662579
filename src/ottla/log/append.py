"""Checks a batch before it may enter a log, and computes its place. Pure and thread-safe.

The first half of an append: ``analyse`` checks the bytes (frame, checksum, records) and may run in
an executor. The second half, ``Log.append_analysed``, runs on the loop: it gives the batch offsets
(``place`` writes them into it) and writes it. Knows limits, but no logs or files. Source: Kafka's
UnifiedLog.append and LogValidator, as the seed on Kafka's log describes them; error codes as Apache
Kafka 4.3 answers.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError, RecordError, RecordsRejected
from ottla.log.config import LogConfig
from ottla.log.segment.scan import Batch
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER_SIZE_BYTES,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    TimestampType,
    batch_crc,
    patch_offsets,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.records.compression import Codec
from ottla.records.decode import iterate_records
from ottla.records.recode import compressed_batch, decompressed_batch
from ottla.records.record import Record
from ottla.records.validate import (
    BatchInfo,
    check_batch_records,
    check_usual_batch,
    decompressed_bytes_limit,
    frame_produced_batch,
)

EXECUTOR_SIZE_BYTES = 64 * 1024
"""A compressed batch larger than this is opened off the loop (design D3)."""

RECODE_SIZE_BYTES = 16 * 1024
"""A batch larger than this gets another codec off the loop."""

REJECTED_NAMED_MAX = 100
"""Records of a batch that are named as the reason why it is refused. Kafka names all: a million."""
REJECTED_ON_LOOP_BYTES_MAX = 16 * 1024
"""A refused batch is read on the loop up to this size."""
LOOP_DECOMPRESSED_BYTES_MAX = 1024 * 1024
"""What a batch may decompress to on the loop: a millisecond's work. See ``TooLongForLoop``."""


class TooLongForLoop(Exception):
    """A small batch turned out to hold far more than its size tells: ``analyse`` it elsewhere."""


class AppendOrigin(Enum):
    """The origin of an append: it decides what is checked and who gives the offsets."""

    CLIENT = "client"
    """A producer: exactly one batch, not trusted; the log gives offsets."""

    COORDINATOR = "coordinator"
    """This broker itself: one or more batches, control batches too; the log gives offsets."""


CLIENT = AppendOrigin.CLIENT
"""For the hot way: see ``ottla.log.health.OPEN``."""


class AnalysedBatch(NamedTuple):
    """One batch of an append: where it stands in the bytes, and its header as it will be stored.

    With LogAppendTime the header's timestamps are set when the batch is written.
    """

    position: int
    header: BatchHeader


class Analysis(NamedTuple):
    """Records that passed every check that needs no log."""

    records: memoryview
    """Writable: offsets, and the time with LogAppendTime, are patched in place."""

    origin: AppendOrigin
    batches: tuple[AnalysedBatch, ...]
    """At least one."""

    transaction_version: int = 0
    """Of a coordinator's markers: with 2 they carry a higher epoch than the records (KIP-890)."""

    @property
    def is_own_data(self) -> bool:
        """Whether it is one batch of a coordinator, and no marker."""
        return (
            self.origin is AppendOrigin.COORDINATOR
            and len(self.batches) == 1
            and not self.batches[0].header.attributes & CONTROL_BIT
        )


def built(batch: bytearray, header: BatchHeader, *, transaction_version: int = 0) -> Analysis:
    """Return one batch that this broker has just built, sum and all, as if it had been checked."""
    batches = (AnalysedBatch(0, header),)
    return Analysis(memoryview(batch), AppendOrigin.COORDINATOR, batches, transaction_version)


def own(records: memoryview, *, transaction_version: int = 0) -> Analysis:
    """Return batches that this broker made, markers among them, when they are whole.

    ``transaction_version``: see ``Analysis``. Raises KafkaError CORRUPT_MESSAGE.
    """
    return Analysis(
        records, AppendOrigin.COORDINATOR, _check_own_batches(records), transaction_version
    )


def needs_executor(records: memoryview, compression: Codec | None) -> bool:
    """Tell whether ``analyse`` would take long: a large batch to be opened or to be recoded.

    ``compression``: see ``LogConfig``. Larger ones than ``RECODE_SIZE_BYTES`` need be asked about.
    """
    codec = records[ATTRIBUTES_POSITION + 1] & CODEC_MASK
    if compression is not None and codec != compression:
        return True
    return bool(codec) and len(records) > EXECUTOR_SIZE_BYTES


def analyse(
    records: memoryview, config: LogConfig, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
) -> Analysis:
    """Check ``records`` as far as that is possible without the log. Raises KafkaError.

    ``records`` is patched in place later and must not change meanwhile; bytes that cannot be
    written are copied. ``now_ms`` is what timestamps of a producer are compared with.

    CLIENT: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE from
    ``ottla.records.validate``; INVALID_TIMESTAMP outside of the topic's bounds; INVALID_RECORD for
    a record without a key on a compacted topic. Others: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE.
    """
    if records.readonly:
        records = memoryview(bytearray(records))
    if origin is AppendOrigin.CLIENT:
        limit = decompressed_bytes_limit(config.max_message_bytes)
        view, header = check_client_batch(records, config, now_ms, limit)
        return Analysis(view, origin, (AnalysedBatch(0, header),))
    return Analysis(records, origin, _check_own_batches(records))


def check_client_batch(
    records: memoryview, config: LogConfig, now_ms: int, limit: int
) -> tuple[memoryview, BatchHeader]:
    """Check what a producer sent; return the one batch in it, and its header. See ``analyse``.

    ``records`` must be writable: a wrong largest timestamp is put right in place. Where the topic
    has a codec of its own the batch returned is another one, in that codec. ``limit``: bytes that
    the records may decompress to; raises TooLongForLoop if it is that of the loop.
    """
    # A topic's own codec (if it is not "none") leaves no batch as it came.
    info = None if config.compression else check_usual_batch(records, config.max_message_bytes)
    view, is_recoded = records, False
    if info is None:
        view, info, is_recoded = _check_unusual(records, config, limit)
    header, min_timestamp, max_timestamp, first_null_key = info
    if config.is_compacted and first_null_key >= 0:
        raise _keyless(view, config, limit)
    if header.attributes & TIMESTAMP_TYPE_BIT:
        min_timestamp = max_timestamp = _time_claimed(header, config)
    if config.message_timestamp_type is CREATE_TIME:
        if (
            now_ms - min_timestamp > config.message_timestamp_before_max_ms
            or max_timestamp - now_ms > config.message_timestamp_after_max_ms
        ):
            _refuse_timestamps(view, config, now_ms, limit)
        if max_timestamp != header.max_timestamp or header.attributes & TIMESTAMP_TYPE_BIT:
            set_max_timestamp(view, TimestampType.CREATE_TIME, max_timestamp)
            header = read_header(view)
    return _recoded(view, header, config) if is_recoded else (view, header)


def _check_unusual(
    records: memoryview, config: LogConfig, limit: int
) -> tuple[memoryview, BatchInfo, bool]:
    """Check step by step; return the batch, decompressed if it is to have another codec."""
    view, header = frame_produced_batch(records, config.max_message_bytes)
    codec = config.compression
    is_recoded = codec is not None and header.attributes & CODEC_MASK != codec
    try:
        if is_recoded:
            # To compress costs tens of times what to decompress does.
            is_on_loop = limit == LOOP_DECOMPRESSED_BYTES_MAX
            bound = RECODE_SIZE_BYTES if is_on_loop else limit
            view, header = decompressed_batch(view, header, bound)
        return view, check_batch_records(view, header, limit), is_recoded
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and limit == LOOP_DECOMPRESSED_BYTES_MAX:
            raise TooLongForLoop from error
        raise


def _recoded(
    view: memoryview, header: BatchHeader, config: LogConfig
) -> tuple[memoryview, BatchHeader]:
    """Compress the checked batch as the topic wants it; it may have become too large by that."""
    assert config.compression is not None
    view, header = compressed_batch(view, header, config.compression, config.compression_level)
    if len(view) > config.max_message_bytes:
        why = (
            f"batch of {len(view)} bytes after compression with {config.compression.name.lower()};"
            f" max.message.bytes is {config.max_message_bytes}"
        )
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    return view, header


def _time_claimed(header: BatchHeader, config: LogConfig) -> int:
    """Return the time of all records of a batch that says it was stamped by a broker.

    A producer has no business to say so. As Kafka: the claim is overwritten where the topic keeps
    the producer's time and the batch has one, and is INVALID_TIMESTAMP elsewhere.
    """
    is_create_time = config.message_timestamp_type is TimestampType.CREATE_TIME
    if not is_create_time or header.max_timestamp == NO_TIMESTAMP:
        why = "a producer may not set the timestamp type to LogAppendTime"
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, why)
    return header.max_timestamp


def _keyless(view: memoryview, config: LogConfig, limit: int) -> RecordsRejected:
    """Name the records that a compacted topic cannot take, or the first of them."""
    rejected = tuple(
        RecordError(index, "a compacted topic cannot accept a record without a key")
        for index, _ in _found(view, config, limit, lambda record: record.key is None)
    )
    return RecordsRejected(ErrorCode.INVALID_RECORD, "records without a key", rejected)


def _refuse_timestamps(view: memoryview, config: LogConfig, now_ms: int, limit: int) -> None:
    """Raise INVALID_TIMESTAMP, unless all that is out of bounds is the mark for "no timestamp"."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms

    def is_bad(record: Record) -> bool:
        timestamp = record.timestamp
        return timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest

    rejected = tuple(
        RecordError(
            index,
            f"timestamp {record.timestamp} is out of range: allowed are {earliest} to {latest}",
        )
        for index, record in _found(view, config, limit, is_bad)
    )
    if rejected:
        why = "timestamps out of range"
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, why, rejected)


def _found(
    view: memoryview, config: LogConfig, limit: int, is_bad: Callable[[Record], bool]
) -> Iterator[tuple[int, Record]]:
    """Return the first bad records of a batch, with their indexes: as many as are named.

    Reading records one by one is slow: raises TooLongForLoop unless the batch is small.
    """
    is_small = read_header(view).codec is Codec.NONE and len(view) <= REJECTED_ON_LOOP_BYTES_MAX
    if limit == LOOP_DECOMPRESSED_BYTES_MAX and not is_small:
        raise TooLongForLoop
    records = iterate_records(view, decompressed_bytes_limit(config.max_message_bytes))
    bad = ((index, record) for index, record in enumerate(records) if is_bad(record))
    return islice(bad, REJECTED_NAMED_MAX)


def _check_own_batches(records: memoryview) -> tuple[AnalysedBatch, ...]:
    """Check frame and checksum of each batch that a broker made or stored."""
    batches: list[AnalysedBatch] = []
    position, end = 0, len(records)
    while end - position >= HEADER_SIZE_BYTES:
        header = read_header(records, position)
        after = position + header.size_bytes
        if header.magic != MAGIC_V2 or header.batch_length < BATCH_LENGTH_MIN or after > end:
            break
        if batch_crc(records[position:after]) != header.crc or header.last_offset_delta < 0:
            break
        batches.append(AnalysedBatch(position, header))
        position = after
    if position != end or not batches:
        why = f"bytes {position} to {end} are no whole batch of format 2"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
    return tuple(batches)


def place(
    records: memoryview,
    batches: tuple[AnalysedBatch, ...],
    base_offset: int,
    leader_epoch: int,
    append_time: int,
) -> list[Batch]:
    """Patch offsets, epoch and (unless -1) the append time into the bytes; tell what is where."""
    placed: list[Batch] = []
    for position, header in batches:
        size_bytes = header.batch_length + 12
        view = records if len(batches) == 1 else records[position : position + size_bytes]
        patch_offsets(view, base_offset, leader_epoch)
        max_timestamp = header.max_timestamp
        if append_time != NO_TIMESTAMP:
            set_log_append_time(view, append_time)
            max_timestamp = append_time
        last_offset = base_offset + header.last_offset_delta
        placed.append(
            Batch(position, size_bytes, base_offset, last_offset, leader_epoch, max_timestamp)
        )
        base_offset = last_offset + 1
    return placed
