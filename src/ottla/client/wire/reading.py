"""From fetched batches to the records a reader wants. No input or output.

Owns which records are left out: those before the wanted offset, control records, and those of
aborted transactions. Source: Kafka's documentation of isolation.level; KIP-98.
"""

from collections.abc import Callable, Iterator, Sequence

from ottla.errors import KafkaError
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_rows, whole_batches
from ottla.records.record import Record
from ottla.records.rows import FoundRow

DECOMPRESSED_MAX_BYTES = 1 << 30
OnCorrupt = Callable[[int, KafkaError], None]
"""Is told the offset that a damaged batch begins at, and what is wrong with it."""


def read_records(
    records: memoryview,
    offset: int,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Record]:
    """Yield the records from ``offset`` on.

    ``aborted`` (producer id, first offset) comes with a read of committed records; empty, nothing
    is left out. A damaged batch is left out if ``on_corrupt`` is given and returns. Raises
    KafkaError, CORRUPT_MESSAGE most of all, without it, and when no batch can be found any more.
    """
    for header, rows in read_rows(records, offset, aborted, on_corrupt=on_corrupt):
        kind = header.timestamp_type
        for at, timestamp, key, value, headers in rows:
            yield Record(at, timestamp, kind, key, value, headers)


def read_rows(
    records: memoryview,
    offset: int,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    on_corrupt: OnCorrupt | None = None,
    may_hold: Callable[[bytes], bool] | None = None,
) -> Iterator[tuple[BatchHeader, list[FoundRow]]]:
    """Yield the records of ``read_records`` as plain tuples, batch by batch.

    ``may_hold`` is that of ``decode.decode_rows``: batches that it turns down are left out.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    being_aborted: set[int] = set()
    for magic, entry in whole_batches(records):
        try:
            header, rows = decode_rows(magic, entry, DECOMPRESSED_MAX_BYTES, may_hold)
        except KafkaError as error:
            if on_corrupt is None:
                raise
            on_corrupt(int.from_bytes(entry[:8], "big", signed=True), error)
            continue
        while waiting and waiting[0][1] <= header.last_offset:
            being_aborted.add(waiting.pop(0)[0])
        if header.is_control:
            if any(control_type_of(row[2]) is ControlType.ABORT for row in rows):
                being_aborted.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in being_aborted:
            continue
        if rows and rows[0][0] < offset:
            rows = [row for row in rows if row[0] >= offset]
        if rows:
            yield header, rows
