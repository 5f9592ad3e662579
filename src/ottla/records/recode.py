"""A batch in another codec than it came in: what ``compression.type`` makes of a produced batch.

The records stay the bytes they are, so offsets, timestamps, keys and headers do, too; only payload,
length, codec bits and sum are new. The fields of the producer (id, epoch, sequence) are kept.
Used by log.append; pure and thread-safe, and slow: the caller decides on which thread. Source:
Kafka's documentation, "compression.type"; KIP-390 (levels).
"""

from struct import Struct

from ottla.records.batch import (
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    batch_crc,
    read_header,
)
from ottla.records.compression import Codec, compress, decompress

_LENGTH = Struct(">i")
_CRC_AND_ATTRIBUTES = Struct(">Ih")


def decompressed_batch(
    view: memoryview, header: BatchHeader, decompressed_bytes_max: int
) -> tuple[memoryview, BatchHeader]:
    """Return the batch filling ``view`` without compression; itself if it has none.

    Raises ``KafkaError`` as ``decompress`` does; ``decompressed_bytes_max`` bounds the payload.
    """
    codec = header.attributes & CODEC_MASK
    if not codec:
        return view, header
    payload = decompress(codec, view[HEADER_SIZE_BYTES:], decompressed_bytes_max)
    return _with_payload(view, header, Codec.NONE, payload)


def compressed_batch(
    view: memoryview, header: BatchHeader, codec: Codec, level: int | None
) -> tuple[memoryview, BatchHeader]:
    """Return the uncompressed batch filling ``view`` compressed; ``level`` None is the default."""
    assert not header.attributes & CODEC_MASK, "the payload would be compressed twice"
    if codec is Codec.NONE:
        return view, header
    return _with_payload(view, header, codec, compress(codec, view[HEADER_SIZE_BYTES:], level))


def _with_payload(
    view: memoryview, header: BatchHeader, codec: Codec, payload: bytes | memoryview
) -> tuple[memoryview, BatchHeader]:
    batch = bytearray(view[:HEADER_SIZE_BYTES])
    batch += payload
    _LENGTH.pack_into(batch, BATCH_LENGTH_POSITION, len(batch) - LOG_OVERHEAD_BYTES)
    attributes = header.attributes & ~CODEC_MASK | codec
    _CRC_AND_ATTRIBUTES.pack_into(batch, CRC_POSITION, 0, attributes)
    recoded = memoryview(batch)
    _CRC_AND_ATTRIBUTES.pack_into(batch, CRC_POSITION, batch_crc(recoded), attributes)
    return recoded, read_header(recoded)
