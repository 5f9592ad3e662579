"""A record batch that is being filled by the kernel: its room, and what closes it.

Stands between ``writer``, which writes the records, and the producer that sends batches. Owns the
header that goes before them and the compression; producer, sequence number and sum come later
(``batch.set_producer``). Knows nothing of partitions.
"""

from array import array

from ottla.records.batch import (
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from ottla.records.columnar.writer import (
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    NEEDED_BYTES,
    POSITION,
    RECORD_COUNT,
    STATE_SIZE,
)
from ottla.records.compression import Codec, compress


class FillingBatch:
    """Records behind a header that is not written yet."""

    __slots__ = ("data", "state")

    def __init__(self, data: bytearray) -> None:
        """Take ``data`` as room, the header's included; what is in it does not matter."""
        self.data = data
        self.state = array("q", bytes(8 * STATE_SIZE))
        """The kernel's, see ``writer``."""
        self.state[POSITION] = HEADER_SIZE_BYTES

    @property
    def size_bytes(self) -> int:
        """Header and records so far, uncompressed."""
        return self.state[POSITION]

    @property
    def record_count(self) -> int:
        """Records so far."""
        return self.state[RECORD_COUNT]

    @property
    def wanted_bytes(self) -> int:
        """Size with the record that did not fit."""
        return self.state[POSITION] + self.state[NEEDED_BYTES]

    def grow(self, room_bytes: int) -> None:
        """Enlarge the buffer to ``room_bytes``, which is more than it has."""
        larger = bytearray(room_bytes)
        end = self.size_bytes
        larger[HEADER_SIZE_BYTES:end] = memoryview(self.data)[HEADER_SIZE_BYTES:end]
        self.data = larger

    def close(
        self, codec: Codec, level: int | None = None, *, transactional: bool = False
    ) -> tuple[bytearray, int]:
        """Return the batch and its size; without compression it lies in ``data`` itself.

        ``level`` is the codec's, None its default. There must be a record.
        """
        state = self.state
        assert state[RECORD_COUNT] > 0, "a batch has at least one record"
        batch, size = self.data, state[POSITION]
        if codec is not Codec.NONE:
            records = memoryview(self.data)[HEADER_SIZE_BYTES:size]
            compressed = compress(codec, records, level)
            size = HEADER_SIZE_BYTES + len(compressed)
            batch = bytearray(HEADER_SIZE_BYTES)
            batch += compressed
        HEADER.pack_into(
            batch,
            0,
            0,
            size - LOG_OVERHEAD_BYTES,
            NO_LEADER_EPOCH,
            MAGIC_V2,
            0,
            codec | (TRANSACTIONAL_BIT if transactional else 0),
            state[RECORD_COUNT] - 1,
            state[BASE_TIMESTAMP],
            state[MAX_TIMESTAMP],
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            state[RECORD_COUNT],
        )
        return batch, size
