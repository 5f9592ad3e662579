"""XXH3, 64 bits, seed 0: the hash by which Kafka notices that a group's topics have changed. Pure.

Python, not compiled: what is hashed is a topic's name, id and partition count, when they change.
Source: the XXH3 specification (xxHash, doc/xxhash_spec.md); compared with hash4j, Kafka's.
"""

from collections.abc import Sequence
from struct import Struct

_MASK = (1 << 64) - 1
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578"
    "825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea3"
    "71644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931"
    "c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES = 64
_STRIPES_PER_BLOCK = 16
_BLOCK_BYTES = _STRIPE_BYTES * _STRIPES_PER_BLOCK
_U32, _U64 = Struct("<I"), Struct("<Q")
_LANES = Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """Return the hash, unsigned."""
    size = len(data)
    if size <= 16:
        return _short(data)
    if size <= 128:
        return _medium(data)
    return _mid(data) if size <= 240 else _long(data)


def _read(data: bytes, position: int) -> int:
    number: int = _U64.unpack_from(data, position)[0]
    return number


def _key(position: int) -> int:
    return _read(_SECRET, position)


def _fold(one: int, other: int) -> int:
    """Return the two halves of the 128-bit product, one upon the other."""
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MX1 & _MASK
    return value ^ value >> 32


def _old_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _short(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _read(data, 0) ^ _key(24) ^ _key(32)
        high = _read(data, size - 8) ^ _key(40) ^ _key(48)
        swapped = int.from_bytes(_U64.pack(low), "big")
        return _avalanche(size + swapped + high + _fold(low, high) & _MASK)
    if size >= 4:
        first: int = _U32.unpack_from(data)[0]
        last: int = _U32.unpack_from(data, size - 4)[0]
        value = (last + (first << 32)) ^ _key(8) ^ _key(16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _MX2 & _MASK
        value ^= (value >> 35) + size
        value = value * _MX2 & _MASK
        return value ^ value >> 28
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        key = _U32.unpack_from(_SECRET)[0] ^ _U32.unpack_from(_SECRET, 4)[0]
        return _old_avalanche(combined ^ key)
    return _old_avalanche(_key(56) ^ _key(64))


def _mixed(data: bytes, position: int, secret_position: int) -> int:
    low = _read(data, position) ^ _key(secret_position)
    return _fold(low, _read(data, position + 8) ^ _key(secret_position + 8))


def _medium(data: bytes) -> int:
    size = len(data)
    value = size * _P64_1
    for pair in reversed(range((size - 1) // 32 + 1)):
        value += _mixed(data, 16 * pair, 32 * pair)
        value += _mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(value & _MASK)


def _mid(data: bytes) -> int:
    size = len(data)
    value = size * _P64_1
    for index in range(8):
        value += _mixed(data, 16 * index, 16 * index)
    value = _avalanche(value & _MASK)
    for index in range(8, size // 16):
        value += _mixed(data, 16 * index, 16 * (index - 8) + 3)
    return _avalanche(value + _mixed(data, size - 16, 136 - 17) & _MASK)


def _accumulate(lanes: list[int], stripe: Sequence[int], secret_position: int) -> None:
    for lane, data in enumerate(stripe):
        key = data ^ _key(secret_position + 8 * lane)
        lanes[lane ^ 1] = lanes[lane ^ 1] + data & _MASK
        lanes[lane] = lanes[lane] + (key & 0xFFFFFFFF) * (key >> 32) & _MASK


def _long(data: bytes) -> int:
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    size = len(data)
    for number in range((size - 1) // _STRIPE_BYTES):
        in_block = number % _STRIPES_PER_BLOCK
        _accumulate(lanes, _LANES.unpack_from(data, number * _STRIPE_BYTES), 8 * in_block)
        if in_block == _STRIPES_PER_BLOCK - 1:
            for lane, value in enumerate(lanes):
                value ^= value >> 47 ^ _key(128 + 8 * lane)  # noqa: PLW2901 - a step
                lanes[lane] = value * _P32_1 & _MASK
    _accumulate(lanes, _LANES.unpack_from(data, size - _STRIPE_BYTES), 192 - 64 - 7)
    value = size * _P64_1
    for index in range(4):
        low = lanes[2 * index] ^ _key(11 + 16 * index)
        value += _fold(low, lanes[2 * index + 1] ^ _key(19 + 16 * index))
    return _avalanche(value & _MASK)
