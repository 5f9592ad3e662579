"""Record batches to Arrow, in the columns of the Kafka connector. The one place that knows both.

The executor's side, between the bytes of a fetch and Spark. Plain: one object per record on the
way, microseconds each. Knows no network. The columns, exactly as Spark's reader demands them:

    key binary, value binary, topic string, partition int32, offset int64,
    timestamp timestamp[us, UTC], timestampType int32 (0 CreateTime, 1 LogAppendTime)
    headers list<struct<key string, value binary>>, null when a record has none
"""

from collections.abc import Iterator

import pyarrow as pa

from ottla.records.decode import decode_batches
from ottla.records.record import Record
from ottla.spark.offsets import OffsetRange

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS))

ARROW_BATCH_BYTES = 4 << 20
"""From this size of keys and values on an Arrow batch is handed over."""
DECOMPRESSED_BYTES_MAX = 512 << 20
"""What one record batch may decompress to: a bound against bombs, far above honest batches."""


def decode_columns(
    records: memoryview, wanted: OffsetRange, *, include_headers: bool
) -> tuple[list[pa.RecordBatch], int]:
    """Return the rows of ``wanted`` in ``records``, and the offset to go on with.

    ``records`` are whole batches, perhaps the last cut short, perhaps with records before and
    after ``wanted``. Markers of transactions are no rows. The offset is ``wanted.start`` when there
    was no whole batch. Raises KafkaError CORRUPT_MESSAGE for a wrong sum or structure.
    """
    batches: list[pa.RecordBatch] = []
    rows: list[Record] = []
    size_bytes = 0
    next_offset = wanted.start
    for batch in decode_batches(records, DECOMPRESSED_BYTES_MAX):
        next_offset = max(next_offset, batch.header.next_offset)
        if not batch.header.is_control:
            fresh = [each for each in batch.records if wanted.start <= each.offset < wanted.end]
            rows += fresh
            size_bytes += sum(len(each.key or b"") + len(each.value or b"") for each in fresh)
        if size_bytes >= ARROW_BATCH_BYTES:
            batches.append(to_arrow(rows, wanted, include_headers=include_headers))
            rows, size_bytes = [], 0
        if next_offset >= wanted.end:
            break
    if rows:
        batches.append(to_arrow(rows, wanted, include_headers=include_headers))
    return batches, next_offset


def to_arrow(rows: list[Record], wanted: OffsetRange, *, include_headers: bool) -> pa.RecordBatch:
    """Return the records as one Arrow batch; topic and partition are those of ``wanted``."""
    arrays = [
        pa.array([each.key for each in rows], pa.binary()),
        pa.array([each.value for each in rows], pa.binary()),
        pa.repeat(wanted.topic, len(rows)),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), len(rows)),
        pa.array([each.offset for each in rows], pa.int64()),
        pa.array([each.timestamp * 1000 for each in rows], pa.timestamp("us", tz="UTC")),
        pa.array([each.timestamp_type for each in rows], pa.int32()),
    ]
    if not include_headers:
        return pa.record_batch(arrays, schema=SCHEMA)
    arrays.append(pa.array(_headers(rows), HEADERS))
    return pa.record_batch(arrays, schema=SCHEMA_WITH_HEADERS)


def _headers(rows: list[Record]) -> Iterator[list[dict[str, object]] | None]:
    for each in rows:
        yield [{"key": key, "value": value} for key, value in each.headers] or None
