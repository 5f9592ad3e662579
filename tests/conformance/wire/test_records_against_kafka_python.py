"""Batches of ours read by kafka-python, and kafka-python's read by us: every format and codec."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.compression import Codec, compress, decompress
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.decode import decode_batches
from ottla.records.message_set import up_convert
from ottla.records.record import Record
from ottla.records.validate import check_produced_batch

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

LIMIT = 1 << 20
DATA = st.none() | st.binary(max_size=100)
TIMES = st.integers(min_value=0, max_value=1 << 44)
NAMES = st.text(max_size=10)
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=3).map(tuple)
NEW = {"offset": st.just(0), "timestamp_type": st.just(b.TimestampType.CREATE_TIME)}
RECORD = st.builds(Record, timestamp=TIMES, key=DATA, value=DATA, headers=HEADERS, **NEW)
RECORDS = st.lists(RECORD, min_size=1, max_size=10)
CODECS = st.sampled_from(Codec)


def test_the_oracle_has_every_codec():
    for name in ("gzip", "snappy", "lz4", "zstd"):
        assert getattr(kafka.codec, f"has_{name}")(), f"kafka-python cannot read {name} here"


def read_by_them(data):
    return [
        Record(
            r.offset,
            r.timestamp,
            b.TimestampType(r.timestamp_type),
            r.key,
            r.value,
            tuple(r.headers),
        )
        for batch in MemoryRecords(bytes(data))
        for r in batch
    ]


def read_by_us(data):
    return [r for batch in decode_batches(data, LIMIT) for r in batch.records]


@given(RECORDS, CODECS)
def test_ours_to_theirs(records, codec):
    data = build_batch(records, base_offset=1000, codec=codec, producer_id=7, producer_epoch=1)
    assert DefaultRecordBatch(bytes(data)).validate_crc()
    assert read_by_them(data) == read_by_us(data)
    assert [r.value for r in read_by_us(data)] == [r.value for r in records]


@given(RECORDS, CODECS)
def test_theirs_to_ours(records, codec):
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, 7, 1, 3, LIMIT)
    for index, r in enumerate(records):
        assert builder.append(index, r.timestamp, r.key, r.value, list(r.headers))
    data = bytes(builder.build())
    info = check_produced_batch(memoryview(data), LIMIT)
    assert (info.header.producer_id, info.header.producer_epoch) == (7, 1)
    assert info.header.base_sequence == 3
    assert read_by_us(data) == read_by_them(data)
    if codec is Codec.NONE:
        options = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 3}
        ours = build_batch(records, **options)
        b.patch_offsets(ours, 0, b.read_header(data).partition_leader_epoch)
        assert ours == data


@pytest.mark.parametrize("attribute", ["log append time", "transactional", "control"])
def test_attribute_bits(attribute):
    data = build_batch(
        [Record(timestamp=5)],
        timestamp_type=b.TimestampType(attribute == "log append time"),
        transactional=attribute == "transactional",
        control=attribute == "control",
    )
    theirs, ours = DefaultRecordBatch(bytes(data)), b.read_header(data)
    assert theirs.timestamp_type == ours.timestamp_type
    assert theirs.is_transactional == ours.is_transactional
    assert theirs.is_control_batch == ours.is_control


@pytest.mark.parametrize("control_type", list(ControlType))
def test_markers(control_type):
    marker = EndTransactionMarker(control_type, 3)
    data = build_end_transaction_marker(marker, producer_id=1, producer_epoch=0, timestamp_ms=9)
    (record,) = DefaultRecordBatch(bytes(data))
    assert (record.commit, record.abort) == (bool(control_type), not control_type)


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)],  # v0's lz4: see the unit test
)
def test_old_message_sets(magic, codec):
    builder = LegacyRecordBatchBuilder(magic, codec, LIMIT)
    for n in range(5):
        key, value = (b"k%d" % n if n else None), (b"v" * 100 * n if n % 2 else None)
        builder.append(n, timestamp=1000 - n if magic else None, key=key, value=value)
    data = builder.build()
    if codec:
        data[:8] = (4).to_bytes(8, "big")  # as a broker numbers a wrapper: by its last entry
    data = bytes(data)
    theirs = [(r.offset, r.timestamp, r.key, r.value) for x in MemoryRecords(data) for r in x]
    for ours in (read_by_us(data), read_by_us(up_convert(data, LIMIT))):
        times = (lambda t: t) if magic else (lambda t: None if t == b.NO_TIMESTAMP else t)
        assert [(r.offset, times(r.timestamp), r.key, r.value) for r in ours] == theirs
    converted = read_by_them(up_convert(data, LIMIT))
    assert [(r.offset, r.key, r.value) for r in converted] == [(o, k, v) for o, _, k, v in theirs]


@given(
    st.binary(min_size=1, max_size=3000) | st.binary(min_size=1, max_size=9).map(lambda d: d * 9000)
)
def test_codecs(payload):
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        encode = getattr(kafka.codec, f"{codec.name.lower()}_encode")
        decode = getattr(kafka.codec, f"{codec.name.lower()}_decode")
        assert decode(bytes(compress(codec, payload))) == payload
        assert memoryview(decompress(codec, encode(payload), len(payload))) == payload
    raw = kafka.codec.snappy_encode(payload, xerial_compatible=False)
    assert memoryview(decompress(Codec.SNAPPY, raw, len(payload))) == payload
