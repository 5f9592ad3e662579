"""The checksum of a transaction index: Kafka's file has none, so this one beside it vouches for it.

A bit flipped in a ``.txnindex`` makes the records of an aborted transaction visible. Owns the file
``<base offset>.txnsum``, which Kafka does not look at. It covers the entries that were there when
the index was last made durable; those behind it, and all of a directory that Kafka wrote, are held
against the log (``log.producers``). Grammar, big-endian:

    sum = version     int32    0
          count       int64    of the entries covered: the first ones of the index
          entries_sum uint32   CRC-32 of their bytes
          own_sum     uint32   CRC-32 of the fields before

Written in place, in one piece: a torn or damaged sum covers nothing, and the log decides. Below
log.transaction_index.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import NamedTuple
from zlib import crc32

from ottla.env.disk import Disk
from ottla.log.files import faults
from ottla.log.files.layout import TRANSACTION_INDEX_SUFFIX, TRANSACTION_SUM_SUFFIX

_FIELDS = Struct(">iqI")
_OWN = Struct(">I")
_VERSION = 0


class TransactionSum(NamedTuple):
    """What a sum says."""

    entry_count: int
    checksum: int


NOTHING = TransactionSum(0, 0)
"""What covers no entry."""


def sum_path(index_path: str) -> str:
    """Return where the sum of the index at ``index_path`` is, whatever suffix stands behind."""
    head, _, tail = index_path.rpartition(TRANSACTION_INDEX_SUFFIX)
    return f"{head}{TRANSACTION_SUM_SUFFIX}{tail}"


def write_sum(disk: Disk, index_path: str, found: TransactionSum) -> None:
    """Let ``found`` be what vouches for the index; durable but for the name. Blocks."""
    fields = _FIELDS.pack(_VERSION, *found)
    file = disk.open(sum_path(index_path), create=True)
    try:
        file.write_at(0, fields + _OWN.pack(crc32(fields)))
        faults.sync(file)
    finally:
        file.close()


def read_sum(disk: Disk, index_path: str) -> TransactionSum:
    """Return what vouches for the index; NOTHING when no whole sum is there. Raises OSError."""
    try:
        file = disk.open_read_only(sum_path(index_path))
    except FileNotFoundError:
        return NOTHING
    try:
        data = file.read_at(0, _FIELDS.size + _OWN.size)
    finally:
        file.close()
    fields = data[: _FIELDS.size]
    try:
        version, count, checksum = _FIELDS.unpack(fields)
        (own,) = _OWN.unpack(data[_FIELDS.size :])
    except StructError:
        return NOTHING
    if version != _VERSION or own != crc32(fields) or count < 0:
        return NOTHING
    return TransactionSum(count, checksum)


def checksum_of(read: Callable[[int, int], bytes], size_bytes: int, piece_bytes: int) -> int:
    """Return the checksum of the first ``size_bytes`` that ``read(position, length)`` gives."""
    checksum = 0
    for position in range(0, size_bytes, piece_bytes):
        checksum = crc32(read(position, min(piece_bytes, size_bytes - position)), checksum)
    return checksum
