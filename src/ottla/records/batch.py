"""The RecordBatch v2 header: read it, check its sum, patch it in place. Never looks at records.

First on the produce path (a view over the receive buffer) and the unit of everything the log
stores. Source: Kafka's documentation, "Record Batch"; KIP-98 (producer fields), KIP-534 (delete
horizon). Grammar, big-endian, positions relative to the batch:

    batch              = base_offset            int64    0
                         batch_length           int32    8   bytes after this field: size - 12
                         partition_leader_epoch int32   12   set by the leader
                         magic                  int8    16   2
                         crc                    uint32  17   CRC32C of everything after it
                         attributes             int16   21
                         last_offset_delta      int32   23
                         base_timestamp         int64   27   or the delete horizon, see bit 6
                         max_timestamp          int64   35
                         producer_id            int64   43   -1: not idempotent
                         producer_epoch         int16   51
                         base_sequence          int32   53
                         record_count           int32   57
                         records                        61   see ``ottla.records.kernels``
    attributes         = bits 0-2 codec, 3 timestamp type (1: LogAppendTime), 4 transactional,
                         5 control, 6 delete horizon set

The base offset and the leader epoch lie outside the checksum, so the leader assigns both without
touching the rest. Magic stands at byte 16 in every message format Kafka ever had.
"""

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE_BYTES = HEADER.size
LOG_OVERHEAD_BYTES = 12
"""Base offset and batch length: what every message format starts with."""
BATCH_LENGTH_MIN = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES
MAGIC_V2 = 2

BATCH_LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
PRODUCER_EPOCH_POSITION = 51
BASE_SEQUENCE_POSITION = 53
RECORD_COUNT_POSITION = 57

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
SEQUENCES = 1 << 31
"""A producer's sequence numbers go on from 0 before they reach this."""
NO_LEADER_EPOCH = -1

_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_PRODUCER = Struct(">qhi")


class TimestampType(IntEnum):
    """Who set the timestamps: the producer, or the leader when it appended."""

    NO_TIMESTAMP_TYPE = -1
    """Of records in message format 0, which has no timestamps. No header says so."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


CREATE_TIME = TimestampType.CREATE_TIME
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
"""For the hot way: Python 3.11 takes a fifth of a microsecond to find a member of an enum."""


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. Numbers as they stand there: nothing is checked yet."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record: what the next batch starts with."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, inclusive; it wraps from 2^31-1 to 0. -1: none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """The compression's number; 0 is none, 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps. With LogAppendTime every record has ``max_timestamp``."""
        if not self.magic:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType((self.attributes & TIMESTAMP_TYPE_BIT) >> 3)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def is_transactional(self) -> bool:
        """Whether the records (or the marker) belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers written by a broker, not data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time after which compaction drops tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(buffer: "Buffer", position: int = 0) -> BatchHeader:
    """Read the header at ``position``; the caller knows that 61 bytes are there."""
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def read_size_bytes(buffer: "Buffer", position: int = 0) -> int:
    """Return the size that the batch at ``position`` claims, header included; 12 bytes are there.

    Holds for every message format. A hostile length gives any number, also a negative one.
    """
    length: int = _LENGTH.unpack_from(buffer, position + BATCH_LENGTH_POSITION)[0]
    return length + LOG_OVERHEAD_BYTES


def batch_crc(view: memoryview) -> int:
    """Compute the CRC32C that the batch filling ``view`` should carry."""
    return crc32c(view[ATTRIBUTES_POSITION:])


def patch_offsets(
    view: "memoryview | bytearray", base_offset: int, leader_epoch: int = NO_LEADER_EPOCH
) -> None:
    """Assign base offset and leader epoch in place. The checksum does not cover them."""
    _OFFSET.pack_into(view, 0, base_offset)
    _LEADER_EPOCH.pack_into(view, LEADER_EPOCH_POSITION, leader_epoch)


def set_max_timestamp(
    view: "memoryview | bytearray", timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set timestamp type and largest timestamp in place and sum the batch filling ``view`` anew."""
    attributes: int = _ATTRIBUTES.unpack_from(view, ATTRIBUTES_POSITION)[0]
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    else:
        attributes &= ~TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(view, CRC_POSITION, batch_crc(memoryview(view)))


def set_log_append_time(view: "memoryview | bytearray", timestamp_ms: int) -> None:
    """Make ``timestamp_ms`` the time of every record of the batch filling ``view``."""
    set_max_timestamp(view, TimestampType.LOG_APPEND_TIME, timestamp_ms)


def set_producer(
    view: "memoryview | bytearray", producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Write producer and sequence number into the batch that fills ``view``, and its new sum."""
    _PRODUCER.pack_into(view, PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(view, CRC_POSITION, batch_crc(memoryview(view)))


def iterate_headers(buffer: "Buffer", position: int = 0) -> "Iterator[tuple[int, BatchHeader]]":
    """Yield ``(position, header)`` of each complete batch from ``position`` on; sums unchecked.

    Stops without a word at a partial trailing batch (a fetch may cut one). Raises ``KafkaError``
    CORRUPT_MESSAGE at a length below the header's or a magic other than 2.
    """
    end = memoryview(buffer).nbytes
    while end - position >= HEADER_SIZE_BYTES:
        header = read_header(buffer, position)
        if header.magic != MAGIC_V2 or header.batch_length < BATCH_LENGTH_MIN:
            why = f"batch at byte {position}: magic {header.magic}, length {header.batch_length}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes
