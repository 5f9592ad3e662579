"""Batches of the message formats before Kafka 0.11, as a walk over a log file meets them.

Nobody may append them any more, but a directory that an old Kafka wrote begins with them. One entry
is one batch: a message, or a wrapper around compressed ones. Rare and slow on purpose: each entry
is read and decoded as a whole, its sum checked. Stands beside log.scan; the format itself is
records.message_set's. They carry no leader epoch and no producer: both are -1, as Kafka has it.
"""

from typing import NamedTuple

from ottla.env.disk import File
from ottla.errors import KafkaError
from ottla.records.batch import MAGIC_POSITION, BatchHeader, read_size_bytes
from ottla.records.message_set import decode_message_set
from ottla.records.validate import decompressed_bytes_limit


class NoBatch(NamedTuple):
    """Why the bytes are no batch."""

    why: str


def is_old(head: memoryview) -> bool:
    """Tell whether the batch that begins with ``head`` claims to be of format 0 or 1."""
    return len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < 2


def read_old_batch(file: File, position: int, end: int, head: memoryview) -> BatchHeader | NoBatch:
    """Return the header that the entry at ``position`` would have as a batch of format 2.

    ``head``: the entry's first bytes. ``end`` (exclusive) bounds the entry. Its length is the
    entry's own. Raises OSError.
    """
    size_bytes = read_size_bytes(head)
    if not MAGIC_POSITION < size_bytes <= end - position:
        magic = head[MAGIC_POSITION]
        return NoBatch(f"magic {magic}, {size_bytes} bytes, {end - position} bytes left")
    view = memoryview(file.read_at(position, size_bytes))
    try:
        header = decode_message_set(view, decompressed_bytes_limit(size_bytes)).header
    except KafkaError as error:
        return NoBatch(error.why)
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return NoBatch(f"base offset {header.base_offset}, delta {header.last_offset_delta}")
    return header
