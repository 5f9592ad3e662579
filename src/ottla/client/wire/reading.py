"""From fetched batches to the records a reader wants. No input or output.

Owns which records are left out: those before the wanted offset, control records, and those of
aborted transactions. Source: Kafka's documentation of isolation.level; KIP-98.
"""

from collections.abc import Callable, Iterator, Sequence

from ottla.errors import KafkaError
from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_entry, whole_batches
from ottla.records.record import DecodedBatch, Record

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
    waiting = sorted(aborted, key=lambda each: each[1])
    being_aborted: set[int] = set()
    for magic, entry in whole_batches(records):
        try:
            batch = decode_entry(magic, entry, DECOMPRESSED_MAX_BYTES)
        except KafkaError as error:
            if on_corrupt is None:
                raise
            on_corrupt(int.from_bytes(entry[:8], "big", signed=True), error)
            continue
        header = batch.header
        while waiting and waiting[0][1] <= header.last_offset:
            being_aborted.add(waiting.pop(0)[0])
        if header.is_control:
            if _is_abort(batch):
                being_aborted.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in being_aborted:
            continue
        for record in batch.records:
            if record.offset >= offset:
                yield record


def _is_abort(batch: DecodedBatch) -> bool:
    return any(control_type_of(record.key) is ControlType.ABORT for record in batch.records)
