"""Kafka's four codecs: compress a batch's records, and decompress them within a bound.

Owns the choice of libraries (each is imported on first use) and the framing Kafka wants of each:

    gzip     one or more gzip members
    snappy   xerial's stream: magic ``82 'SNAPPY' 00``, version int32, compatible int32, then blocks
             of (length int32, raw snappy); a single raw snappy block is read as well
    lz4      one LZ4 frame with *independent* blocks (Kafka rejects linked ones)
    zstd     one or more zstd frames

Payloads come from anybody, so nothing is decompressed past the caller's limit, whatever sizes the
payload declares. Stateless and thread-safe; blocks the processor only, so the caller decides on
which thread. Knows nothing of records. Source: Kafka's documentation, "compression.type"; KIP-390
(levels), KIP-57 (lz4 framing); https://github.com/xerial/snappy-java.
"""

# ruff: noqa: PLC0415 - a codec's library is loaded when the codec is first used

from enum import IntEnum
from functools import cache
from struct import Struct
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes; the names are those of ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_WINDOW_BITS = 31
GZIP_LEVEL_FASTEST = 1
GZIP_LEVEL_DEFAULT = -1
"""Kafka's name for "no level said"; zlib would take it for its level 6."""
LZ4_LEVEL_DEFAULT = 9
"""Kafka's name for lz4's fast mode; other levels are its high-compression mode."""
LZ4_STEP_BYTES_MIN = 64 * 1024
ZSTD_LEVEL_DEFAULT = 3

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_HEADER = Struct(">8sii")
_BLOCK_LENGTH = Struct(">i")


def codec_of(number: int) -> Codec:
    """Return the codec with that number; raises ``KafkaError`` UNSUPPORTED_COMPRESSION_TYPE."""
    try:
        return Codec(number)
    except ValueError:
        why = f"compression type {number} is not one of 0 to {max(Codec):d}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why) from None


def compress(codec: int, payload: "Buffer", level: int | None = None) -> "bytes | memoryview":
    """Compress ``payload`` in Kafka's framing; ``level`` None is the default of Kafka's producer.

    gzip without a level uses the fastest one, ten times as fast as zlib's for a fifth more bytes.
    snappy has no levels. Codec NONE returns a view of the payload itself.
    """
    match codec_of(codec):
        case Codec.NONE:
            return memoryview(payload)
        case Codec.GZIP:
            return _gzip_compress(payload, level)
        case Codec.SNAPPY:
            return _snappy_compress(payload)
        case Codec.LZ4:
            return _lz4_compress(payload, LZ4_LEVEL_DEFAULT if level is None else level)
        case Codec.ZSTD:
            compressed: bytes = _zstd().compress(
                payload, ZSTD_LEVEL_DEFAULT if level is None else level
            )
            return compressed


def decompress(codec: int, payload: "Buffer", limit_bytes: int) -> "bytes | memoryview":
    """Decompress to at most ``limit_bytes``; codec NONE returns a view of the payload itself.

    Raises ``KafkaError``: MESSAGE_TOO_LARGE past the limit (also when the payload only claims to
    be larger), INVALID_RECORD for what the codec cannot read to its end, and
    UNSUPPORTED_COMPRESSION_TYPE for a number that is no codec.
    """
    match codec_of(codec):
        case Codec.NONE:
            return memoryview(payload)
        case Codec.GZIP:
            return _gzip_decompress(payload, limit_bytes)
        case Codec.SNAPPY:
            return _snappy_decompress(memoryview(payload), limit_bytes)
        case Codec.LZ4:
            return _lz4_decompress(payload, limit_bytes)
        case Codec.ZSTD:
            return _zstd_decompress(payload, limit_bytes)


def _refuse_larger(codec: Codec, limit_bytes: int) -> NoReturn:
    why = f"{codec.name.lower()} payload decompresses to more than {limit_bytes} bytes"
    raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)


def _garbage(codec: Codec, why: object) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{codec.name.lower()} payload: {why}")


# gzip ---------------------------------------------------------------------------------------------


@cache
def _gzip() -> ModuleType:
    try:
        from isal import isal_zlib
    except ImportError:  # pragma: no cover - depends on the platform's wheels
        import zlib

        return zlib
    module: ModuleType = isal_zlib
    return module


def _gzip_compress(payload: "Buffer", level: int | None) -> bytes:
    module = _gzip()
    if level is not None:
        import zlib

        module = zlib  # isal has levels 0 to 3 of its own meaning
    compressor = module.compressobj(
        GZIP_LEVEL_FASTEST if level is None else level, module.DEFLATED, GZIP_WINDOW_BITS
    )
    compressed: bytes = compressor.compress(payload) + compressor.flush()
    return compressed


def _gzip_decompress(payload: "Buffer", limit_bytes: int) -> bytes:
    module = _gzip()
    parts: list[bytes] = []
    left = limit_bytes
    rest: Buffer = payload
    while True:
        member = module.decompressobj(GZIP_WINDOW_BITS)
        try:
            part: bytes = member.decompress(rest, left + 1)
        except module.error as error:
            raise _garbage(Codec.GZIP, error) from error
        left -= len(part)
        if left < 0:
            _refuse_larger(Codec.GZIP, limit_bytes)
        if not member.eof:
            raise _garbage(Codec.GZIP, "it ends early")
        parts.append(part)
        unused: bytes = member.unused_data
        if not unused:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        rest = unused


# snappy -------------------------------------------------------------------------------------------


@cache
def _snappy() -> ModuleType:
    from cramjam import snappy

    module: ModuleType = snappy
    return module


def _snappy_compress(payload: "Buffer") -> bytes:
    view = memoryview(payload)
    parts = [_XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)]
    for position in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = _snappy().compress_raw(view[position : position + XERIAL_BLOCK_BYTES])
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(payload: memoryview, limit_bytes: int) -> "bytes | memoryview":
    if payload[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block(payload, limit_bytes, limit_bytes)
    parts: list[memoryview] = []
    left = limit_bytes
    position = _XERIAL_HEADER.size
    while position < len(payload):
        start = position + _BLOCK_LENGTH.size
        length = _BLOCK_LENGTH.unpack_from(payload, position)[0] if start <= len(payload) else -1
        if length < 0 or length > len(payload) - start:
            raise _garbage(Codec.SNAPPY, f"bad block length at byte {position}")
        position = start + length
        part = _snappy_block(payload[start:position], left, limit_bytes)
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_block(block: memoryview, left: int, limit_bytes: int) -> memoryview:
    """Decompress one raw block to at most ``left`` bytes, asking its declared size first."""
    snappy = _snappy()
    try:
        if snappy.decompress_raw_len(block) > left:
            _refuse_larger(Codec.SNAPPY, limit_bytes)
        return memoryview(snappy.decompress_raw(block))
    except _cramjam_error() as error:
        raise _garbage(Codec.SNAPPY, error) from error


@cache
def _cramjam_error() -> type[Exception]:
    from cramjam import DecompressionError

    error: type[Exception] = DecompressionError
    return error


# lz4 ----------------------------------------------------------------------------------------------


@cache
def _lz4() -> ModuleType:
    import lz4.frame

    module: ModuleType = lz4.frame
    return module


def _lz4_compress(payload: "Buffer", level: int) -> bytes:
    lz4 = _lz4()
    compressed: bytes = lz4.compress(
        payload,
        compression_level=0 if level == LZ4_LEVEL_DEFAULT else level,
        block_size=lz4.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _lz4_decompress(payload: "Buffer", limit_bytes: int) -> bytes:
    """Decompress in steps that double: the library allocates each step's bound beforehand."""
    decompressor = _lz4().LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = limit_bytes
    step = max(LZ4_STEP_BYTES_MIN, 4 * memoryview(payload).nbytes)
    rest: Buffer = payload
    while not decompressor.eof:
        try:
            part: bytes = decompressor.decompress(rest, max_length=min(step, left + 1))
        except RuntimeError as error:
            raise _garbage(Codec.LZ4, error) from error
        left -= len(part)
        if left < 0:
            _refuse_larger(Codec.LZ4, limit_bytes)
        if not part and not decompressor.eof:
            raise _garbage(Codec.LZ4, "it ends early")
        parts.append(part)
        step *= 2
        rest = b""
    if decompressor.unused_data:
        raise _garbage(Codec.LZ4, "bytes follow the frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


# zstd ---------------------------------------------------------------------------------------------


@cache
def _zstd() -> ModuleType:
    import importlib
    import sys

    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return importlib.import_module(name)


def _zstd_decompress(payload: "Buffer", limit_bytes: int) -> bytes:
    zstd = _zstd()
    parts: list[bytes] = []
    left = limit_bytes
    rest: Buffer = payload
    while True:
        frame = zstd.ZstdDecompressor()
        try:
            part: bytes = frame.decompress(rest, max_length=left + 1)
        except zstd.ZstdError as error:
            raise _garbage(Codec.ZSTD, error) from error
        left -= len(part)
        if left < 0:
            _refuse_larger(Codec.ZSTD, limit_bytes)
        if not frame.eof:
            raise _garbage(Codec.ZSTD, "it ends early")
        parts.append(part)
        unused: bytes = frame.unused_data
        if not unused:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        rest = unused
