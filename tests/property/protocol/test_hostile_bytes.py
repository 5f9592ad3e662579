"""Whatever the bytes are, a decoder answers with a message or with MalformedMessage, and soon."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedMessage
from ottla.protocol.fields import Wire
from ottla.protocol.header import decode_request_header, decode_response_header

MUTATIONS = 25
HOSTILE_BYTES = [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF]


def survives(message, version, data):
    """Decode; a message that comes out must be whole, so encoding it again must work."""
    try:
        decoded = message.decode(data, version)
    except MalformedMessage:
        return
    decoded.encode(version)


def test_truncated_anywhere_is_malformed(message, each_version, full_message):
    for version in each_version(message):
        encoded = full_message(message, version).encode(version)
        for length in range(len(encoded)):
            with pytest.raises(MalformedMessage):
                message.decode(encoded[:length], version)


def test_truncated_inside_a_larger_buffer_is_malformed(message, each_version, full_message):
    for version in each_version(message):
        encoded = full_message(message, version).encode(version)
        decode = message.decoder(version)
        buffer = memoryview(b"\xff" * 3 + encoded + encoded)
        assert decode(buffer, 3, 3 + len(encoded)) == (
            full_message(message, version),
            3 + len(encoded),
        )
        for length in range(0, len(encoded), 7):
            with pytest.raises(MalformedMessage):
                decode(buffer, 3, 3 + length)


def test_mutated_messages_never_surprise(message, each_version, full_message):
    for version in each_version(message):
        encoded = full_message(message, version).encode(version)
        rng = random.Random(f"{message.__name__}{version}")
        for _ in range(MUTATIONS if encoded else 0):
            mutant = bytearray(encoded)
            for _ in range(rng.randint(1, 3)):
                mutant[rng.randrange(len(mutant))] = rng.choice(HOSTILE_BYTES)
            survives(message, version, bytes(mutant))


def test_noise_never_surprises(message, each_version):
    for version in each_version(message):
        rng = random.Random(f"noise {message.__name__}{version}")
        for size in (0, 1, 2, 3, 5, 8, 13, 21, 60, 300):
            survives(message, version, rng.randbytes(size))
            survives(message, version, bytes(rng.choice(HOSTILE_BYTES) for _ in range(size)))


def test_bytes_behind_the_message_are_accepted_unless_strict(message, each_version, full_message):
    for version in each_version(message):
        encoded = full_message(message, version).encode(version) + b"\x00"
        assert message.decode(encoded, version) == full_message(message, version)
        with pytest.raises(MalformedMessage, match="1 bytes left over"):
            message.decode(encoded, version, strict=True)


def array_positions(message, version, full_message):
    """Yield where in the encoded full message its outermost array counts stand."""
    full = full_message(message, version)
    encoded = full.encode(version)
    for name, field in message.FIELDS.items():
        if field.wire is not Wire.ARRAY or version not in field.versions or field.tag is not None:
            continue
        values = getattr(full, name)
        setattr(full, name, [])
        empty = full.encode(version)
        setattr(full, name, values)
        yield next(
            position
            for position, (one, other) in enumerate(zip(encoded, empty, strict=False))
            if one != other
        )


def test_array_bombs_are_refused_before_any_memory_is_taken(message, each_version, full_message):
    for version in each_version(message):
        flexible = version in message.FLEXIBLE
        encoded = full_message(message, version).encode(version)
        decode = message.decoder(version)  # compiled before memory is counted
        for position in array_positions(message, version, full_message):
            start = position if flexible else position - 3
            for count in (10**6, 2**31 - 1):
                bomb = uvarint(count) if flexible else count.to_bytes(4, "big")
                data = encoded[:start] + bomb + encoded[start + (1 if flexible else 4) :]
                tracemalloc.start()
                with pytest.raises(MalformedMessage):
                    decode(memoryview(data), 0, len(data))
                _, peak_bytes = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak_bytes < 64 * 1024


def uvarint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_headers_never_surprise(data):
    buffer = memoryview(data)
    for decode in (
        lambda: decode_request_header(buffer, 0, len(buffer)),
        lambda: decode_response_header(buffer, 0, len(buffer), api_key=3, api_version=12),
    ):
        try:
            decode()
        except MalformedMessage:
            continue
