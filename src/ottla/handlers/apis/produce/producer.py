"""Who wrote a batch of a Produce request, as the batch's header says."""

from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    read_header,
)


def is_transactional(records: memoryview) -> bool:
    """Whether the bytes are long enough for a batch header that says it is transactional."""
    return (
        len(records) >= HEADER_SIZE_BYTES
        and records[MAGIC_POSITION] == MAGIC_V2
        and bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)
    )


def producer_of(records: memoryview) -> tuple[int, int]:
    """Return producer id and epoch of a batch."""
    header = read_header(records)
    return header.producer_id, header.producer_epoch
