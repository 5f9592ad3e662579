"""Any records, built and read back; any bytes, refused by name and alike by both kernels."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as b
from ottla.records.builder import build_batch, build_plain_batch
from ottla.records.compression import Codec, compress, decompress
from ottla.records.decode import decode_batches, decode_keys_and_values
from ottla.records.message_set import up_convert
from ottla.records.record import Record
from ottla.records.validate import check_produced_batch

pytestmark = pytest.mark.slow

LIMIT = 1 << 20
DATA = st.none() | st.binary(max_size=200)
TIMES = st.integers(min_value=-1, max_value=1 << 44)
HEADERS = st.lists(st.tuples(st.text(max_size=20), DATA), max_size=4).map(tuple)
NEW = {"offset": st.just(0), "timestamp_type": st.just(b.TimestampType.CREATE_TIME)}
RECORD = st.builds(Record, timestamp=TIMES, key=DATA, value=DATA, headers=HEADERS, **NEW)
RECORDS = st.lists(RECORD, min_size=1, max_size=20)
CODECS = st.sampled_from(Codec)


def numbered(records, start=0):
    return [record._replace(offset=start + n) for n, record in enumerate(records)]


@given(RECORDS, CODECS, st.integers(min_value=0, max_value=1 << 60))
def test_what_is_built_is_valid_and_decodes_to_itself(records, codec, base_offset):
    data = build_batch(records, codec=codec)
    info = check_produced_batch(memoryview(data), LIMIT)
    times = [record.timestamp for record in records]
    assert (info.min_timestamp, info.max_timestamp) == (min(times), max(times))
    assert info.max_timestamp == info.header.max_timestamp
    nulls = [n for n, record in enumerate(records) if record.key is None]
    assert info.first_null_key_index == (nulls[0] if nulls else -1)
    b.patch_offsets(data, base_offset, 3)
    ((header, decoded),) = decode_batches(data, LIMIT)
    assert decoded == numbered(records, base_offset)
    assert header.last_offset == decoded[-1].offset


@given(RECORDS, CODECS, st.data())
def test_keys_and_values_are_those_of_the_records(records, codec, data):
    batch = build_batch(records, codec=codec)
    for _ in range(data.draw(st.integers(min_value=0, max_value=2))):
        position = data.draw(st.integers(min_value=b.ATTRIBUTES_POSITION, max_value=len(batch) - 1))
        batch[position] = data.draw(st.integers(min_value=0, max_value=255))
    struct.pack_into(">I", batch, b.CRC_POSITION, b.batch_crc(memoryview(batch)))
    found, wanted = code_or(decode_keys_and_values, batch), code_or(decode_batches, batch)
    if isinstance(wanted, list):
        ((header, records),) = wanted
        wanted = [(header, [(one.offset, one.key, one.value) for one in records])]
    assert found == wanted


def code_or(decode, batch):
    try:
        return list(decode(batch, LIMIT))
    except KafkaError as error:
        return error.code


@given(RECORDS, CODECS, st.data())
def test_no_single_changed_byte_is_taken_for_good(records, codec, data):
    """All but base offset, leader epoch and length is summed; a length is told by what it cuts."""
    batch = build_batch(records, codec=codec)
    position = data.draw(st.sampled_from([*range(8), *range(8, 12), *range(16, len(batch))]))
    batch[position] ^= data.draw(st.integers(min_value=1, max_value=255))
    with pytest.raises(KafkaError) as raised:
        check_produced_batch(memoryview(batch), LIMIT)
    assert raised.value.code in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}


@given(RECORDS, CODECS, st.data())
def test_a_broken_batch_with_a_right_sum_is_refused_by_a_known_error(records, codec, data):
    batch = build_batch(records, codec=codec)
    for _ in range(data.draw(st.integers(min_value=1, max_value=3))):
        position = data.draw(st.integers(min_value=b.ATTRIBUTES_POSITION, max_value=len(batch) - 1))
        batch[position] = data.draw(st.integers(min_value=0, max_value=255))
    struct.pack_into(">I", batch, b.CRC_POSITION, b.batch_crc(memoryview(batch)))
    for read in (
        lambda: check_produced_batch(memoryview(batch), LIMIT),
        lambda: list(decode_batches(batch, LIMIT)),
    ):
        try:
            read()
        except KafkaError as error:
            assert error.why  # noqa: PT017 - either outcome is right


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_a_known_error(data):
    for read in (
        lambda: check_produced_batch(memoryview(data), LIMIT),
        lambda: list(decode_batches(data, LIMIT)),
        lambda: up_convert(data, LIMIT),
        lambda: list(b.iterate_headers(data)),
    ):
        try:
            read()
        except KafkaError as error:
            assert error.why  # noqa: PT017 - either outcome is right


@given(RECORDS, st.data())
def test_both_kernels_agree_on_broken_records(kernel_forms, records, data):
    payload = build_batch(records)[b.HEADER_SIZE_BYTES :]
    for _ in range(data.draw(st.integers(min_value=0, max_value=3))):
        position = data.draw(st.integers(min_value=0, max_value=len(payload) - 1))
        payload[position] = data.draw(st.integers(min_value=0, max_value=255))
    count = data.draw(st.sampled_from([len(records), len(records) + 1, 0]))
    one, other = (validate(bytes(payload), count) for validate in kernel_forms)
    assert one == other


@given(st.binary(max_size=100), st.integers(min_value=0, max_value=5))
@example(b"\x16\x00" + b"\xff" * 9 + b"\x01\x00", 1)
def test_both_kernels_agree_on_any_bytes(kernel_forms, payload, count):
    one, other = (validate(payload, count) for validate in kernel_forms)
    assert one == other


@given(RECORDS)
def test_the_kernel_accepts_what_the_decoder_reads(kernel_forms, records):
    batch = build_batch(records)
    for validate in kernel_forms:
        assert validate(batch[b.HEADER_SIZE_BYTES :], len(records))[0] == 0


@given(st.binary(max_size=2000) | st.binary(max_size=20).map(lambda d: d * 500), CODECS)
def test_codecs_there_and_back(payload, codec):
    compressed = bytes(compress(codec, payload))
    assert memoryview(decompress(codec, compressed, len(payload))) == payload


@given(st.binary(max_size=200), st.sampled_from([codec for codec in Codec if codec]))
def test_codecs_refuse_any_bytes_by_a_known_error(payload, codec):
    try:
        assert len(decompress(codec, payload, 1000)) <= 1000
    except KafkaError as error:
        assert error.code in {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}  # noqa: PT017


@given(
    st.lists(st.tuples(st.binary(max_size=600), st.none() | st.binary(max_size=9000)), min_size=1),
    st.integers(0, 2**50),
    st.none() | st.tuples(st.integers(0, 2**50), st.integers(0, 2**15 - 1)),
)
def test_the_plain_way_to_build_a_batch_makes_the_same_bytes(pairs, timestamp, producer):
    producer_id, epoch = producer or (-1, -1)
    batch, header = build_plain_batch(
        pairs, timestamp, producer_id=producer_id, producer_epoch=epoch
    )
    assert batch == build_batch(
        [Record(timestamp=timestamp, key=key, value=value) for key, value in pairs],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=producer is not None,
    )
    assert header == b.read_header(batch)
