"""Columns against the plain decoder: the same rows of any batches, in both forms of the kernel."""

import importlib.util
import os
import re
import struct
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.client.wire.reading import read_records
from ottla.errors import KafkaError
from ottla.records import batch as b
from ottla.records import batch_walk, cleaning_scope
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.columnar import avro_tables, scope
from ottla.records.columnar import buffers as column_buffers
from ottla.records.columnar import columns as imported
from ottla.records.columnar.decoder import ColumnDecoder
from ottla.records.compression import Codec, compress
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record

ALL = 63
ENOUGH = settings(
    max_examples=int(os.environ.get("OTTLA_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.too_slow],  # much is drawn for each example
    deadline=None,
)
SMALL = st.none() | st.binary(max_size=12)
DATA = SMALL | st.integers(0, 70).map(lambda size: b"x" * size)
RECORDS = st.lists(
    st.tuples(
        st.integers(min_value=-1, max_value=1 << 44),
        DATA,
        DATA,
        st.lists(st.tuples(st.text(max_size=3), SMALL), max_size=3).map(tuple),
        st.integers(min_value=1, max_value=3),  # how much higher its offset is: compaction's holes
    ),
    min_size=1,
    max_size=7,
)
KINDS = st.sampled_from(["plain", "plain", "transactional", "commit", "abort", "old"])
BATCHES = st.lists(
    st.tuples(KINDS, RECORDS, st.sampled_from(Codec), st.integers(0, 2), st.booleans()),
    max_size=6,
)


def load_interpreted(kernel=imported):
    name = kernel.__name__.rsplit(".", 1)[-1]
    path = Path(kernel.__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"interpreted_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"compiled": imported, "interpreted": load_interpreted()}
WALKS = (batch_walk, load_interpreted(batch_walk))


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    if request.param == "compiled" and not imported.COMPILED:
        pytest.skip("the extension is not built: python setup.py build_ext --inplace")
    return request.param


@pytest.mark.parametrize("tables", [scope, avro_tables, cleaning_scope])
def test_the_compilers_numbers_are_the_documented_ones(tables):
    declared = Path(tables.__file__).with_suffix(".pxd").read_text()
    found = re.findall(r"^    (\w+) = (-?\d+)$", declared, re.MULTILINE)
    assert len(found) > 20
    for name, number in found:
        assert getattr(tables, name) == int(number), name


@contextmanager
def kernel(form):
    before, column_buffers.kernel = column_buffers.kernel, FORMS[form]
    try:
        yield
    finally:
        column_buffers.kernel = before


def entry(offset, key, value, *, magic, timestamp, attributes=0):
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def old_batch(records, codec, magic, *, log_append):
    """The records as one entry each, or, with a codec, as one wrapper."""
    entries = b""
    for record in records:
        offset = record.offset - (records[0].offset if magic and codec else 0)
        options = {"magic": magic, "timestamp": record.timestamp}
        entries += entry(offset, record.key, record.value, **options)
    if not codec:
        return entries
    attributes = codec | (8 if magic and log_append else 0)
    value = bytes(compress(codec, entries))
    options = {"magic": magic, "timestamp": 77, "attributes": attributes}
    return entry(records[-1].offset, None, value, **options)


def built(batches):
    """The bytes of all batches, and the offset behind them."""
    data, offset = bytearray(), 5
    for kind, drawn, codec, producer, log_append in batches:
        records = []
        for timestamp, key, value, headers, step in drawn:
            offset += step
            record = Record(offset, timestamp, b.TimestampType(log_append), key, value, headers)
            records.append(record)
        if kind in {"commit", "abort"}:
            marker = build_end_transaction_marker(
                EndTransactionMarker(ControlType[kind.upper()], 3),
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=9,
            )
            b.patch_offsets(marker, records[0].offset)
            offset = records[0].offset
            data += marker
        elif kind == "old":
            # There was no zstd then, and lz4 of format 0 has a checksum of its own.
            their_codec = codec if codec < Codec.LZ4 or (codec is Codec.LZ4 and producer) else 0
            data += old_batch(records, their_codec, min(producer, 1), log_append=log_append)
        else:
            data += build_batch(
                records,
                base_offset=None,
                codec=codec,
                timestamp_type=b.TimestampType(log_append),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=kind == "transactional",
            )
    return data, offset + 1


def octets(column, count):
    ends, data = list(column.ends), bytes(column.data)
    return [data[ends[n] : ends[n + 1]] if is_set(column.bits, n) else None for n in range(count)]


def is_set(bits, index):
    return bits is None or bool(bits[index >> 3] >> (index & 7) & 1)


def rows_of(filled):
    """The rows as Records; checks what Arrow would take on trust."""
    headers = filled.headers
    names, contents = octets(headers.names, headers.total), octets(headers.contents, headers.total)
    assert (headers.contents.bits is None) == (headers.contents.nulls == 0)
    assert contents.count(None) == headers.contents.nulls
    assert headers.names_plain == all(name.isascii() for name in names)
    keys, values = octets(filled.key, filled.rows), octets(filled.value, filled.rows)
    assert (keys.count(None), values.count(None)) == (filled.key.nulls, filled.value.nulls)
    rows = []
    for n in range(filled.rows):
        own = slice(headers.ends[n], headers.ends[n + 1])
        assert is_set(headers.bits, n) == (own.stop > own.start)
        pairs = zip(
            (name.decode("utf-8", "replace") for name in names[own]), contents[own], strict=True
        )
        time = filled.timestamp[n] // 1000
        kind = b.TimestampType(filled.timestamp_type[n])
        record = Record(filled.offset[n], time, kind, keys[n], values[n], tuple(pairs))
        rows.append(record)
    return rows


def columns(form, data, start, end, aborted=(), **options):
    """All rows, and the offset to go on with."""
    with kernel(form):
        decoder = ColumnDecoder(ALL, decompressed_bytes_max=1 << 20, **options)
        rows = []
        for each in decoder.decode(memoryview(data), start, end, aborted):
            rows += rows_of(each)
        rest = decoder.rest()
        assert decoder.rest() is None
    return rows + (rows_of(rest) if rest else []), decoder.next_offset


def plain(data, start, end, aborted=()):
    return [each for each in read_records(memoryview(data), start, aborted) if each.offset < end]


@ENOUGH
@given(
    BATCHES,
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([1, 40, 1 << 20]),
    st.sampled_from([1, 3, 1000]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=3),
)
def test_any_batches_give_the_rows_of_the_plain_decoder(
    form, batches, start, length, target, rows_max, aborted
):
    data, _ = built(batches)
    options = {"target_bytes": target, "rows_max": rows_max}
    rows, after = columns(form, data, start, start + length, aborted, **options)
    assert rows == plain(data, start, start + length, aborted)
    assert start <= after <= max(start, next_offset(memoryview(data), start))
    left = plain(data, after, start + length, aborted)
    assert not [each for each in left if each not in rows]


@ENOUGH
@given(BATCHES, st.data())
def test_batches_cut_anywhere_are_read_up_to_the_cut_and_on_from_there(form, batches, more):
    data, end = built(batches)
    cut = more.draw(st.integers(0, len(data)))
    rows, after = columns(form, data[:cut], 0, end)
    for walk in WALKS:
        assert after == walk.next_offset(memoryview(data)[:cut], 0)
    more_rows, _ = columns(form, data, after, end)
    assert rows + more_rows == plain(data, 0, end)


@ENOUGH
@given(BATCHES, st.data())
def test_hostile_bytes_with_right_sums_are_refused_alike_and_never_read_beyond(batches, more):
    """What both forms take, the plain decoder takes as well, with the same rows."""
    data, end = built(batches)
    position = 0
    while len(data) - position > 61 and data[position + 16] == 2:
        size = b.read_size_bytes(data, position)
        for _ in range(more.draw(st.integers(0, 2))):
            at = position + more.draw(st.integers(21, size - 1))
            data[at] = more.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
        crc = b.batch_crc(memoryview(data)[position : position + size])
        struct.pack_into(">I", data, position + b.CRC_POSITION, crc)
        position += size
    told = []
    for form in FORMS:
        try:
            told.append(columns(form, data, 0, end + 100, target_bytes=64))
        except KafkaError as error:
            told.append(str(error))
    assert told[0] == told[1]


@given(st.binary(max_size=300))
def test_any_bytes_end_in_rows_or_an_error(form, data):
    try:
        rows, after = columns(form, data, 0, 1 << 62)
    except KafkaError:
        return
    assert rows == []
    assert after == 0
