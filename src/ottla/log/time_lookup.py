"""From a time to a record: segments by their largest timestamp, batches by the index, then records.

The one look-up that opens batches. Between log.log and log.segment. Source: Kafka's ListOffsets
(KIP-79): the first record in offset order whose timestamp is at least the one asked for.
"""

from collections.abc import Iterable

from ottla.log.segment import Segment
from ottla.records.decode import decode_batches
from ottla.records.record import Record


def first_record_reaching(
    segments: Iterable[Segment], timestamp: int, from_offset: int, decompressed_bytes_max: int
) -> Record | None:
    """Return the first record at or after ``from_offset`` with a timestamp >= ``timestamp``.

    ``segments`` ascend. Each batch opened decompresses to at most ``decompressed_bytes_max``
    bytes. Blocks on cold segments. Raises KafkaError where the log cannot be read.
    """
    for segment in segments:
        if segment.largest_timestamp().timestamp < timestamp:
            continue
        batch = segment.first_batch_reaching(timestamp, from_offset)
        while batch is not None:
            view = memoryview(segment.file.read_at(batch.position, batch.size_bytes))
            for _, records in decode_batches(view, decompressed_bytes_max):
                for record in records:
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return record
            batch = segment.next_batch(batch.position + batch.size_bytes)
    return None
