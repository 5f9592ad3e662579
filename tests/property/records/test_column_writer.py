"""Columns to records and back: what is decoded are the rows, whatever their sizes and nulls.

On the compiled and the interpreted form. kafka-python judges the hash, since it is Java's.
"""

import importlib.util
from array import array
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from ottla.client.wire import partitioner
from ottla.records.batch import HEADER_SIZE_BYTES, set_producer
from ottla.records.columnar import filling
from ottla.records.columnar import writer as imported
from ottla.records.columnar.layout import Headers, Numbers, Octets
from ottla.records.compression import Codec
from ottla.records.decode import decode_batches


def interpreted():
    path = Path(imported.__file__).parent / "writer.py"
    spec = importlib.util.spec_from_file_location("interpreted_column_writer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"compiled": imported, "interpreted": interpreted()}
NOW = 1_700_000_000_000

SIZES = [0, 1, 5, 62, 63, 64, 65, 127, 128, 8191, 8192]
sizes = st.one_of(st.none(), st.sampled_from(SIZES))
"""Of a key or value; None is a null. Drawn as a number, since bytes are slow to draw and print."""
times = st.sampled_from([None, 0, 999, 1000, NOW * 1000, NOW * 1000 + 7_777_777, 1 << 50])
headers = st.sampled_from([None, [], [("", None)], [("a", b""), ("\u00e9" * 40, b"x" * 70)]])
rows = st.lists(st.tuples(sizes, sizes, times, headers), min_size=1, max_size=20).map(
    lambda drawn: [(filled(k), filled(v), time, pairs) for k, v, time, pairs in drawn]
)


def filled(size):
    return None if size is None else (b"%d." % size * size)[:size]


@pytest.fixture(params=list(FORMS), scope="module")
def form(request):
    return FORMS[request.param]


def bits(flags, shift):
    number = sum(1 << (shift + index) for index, flag in enumerate(flags) if flag)
    return number.to_bytes((shift + len(flags) + 7) // 8, "little")


def octets_column(values, shift=0):
    data = b"-" * shift + b"".join(each or b"" for each in values)
    offsets = array("i", [shift])
    for each in values:
        offsets.append(offsets[-1] + len(each or b""))
    validity = bits([each is not None for each in values], shift) if None in values else None
    return Octets(memoryview(offsets), data, validity, shift)


def numbers_column(kind, values, shift=0):
    validity = bits([each is not None for each in values], shift) if None in values else None
    numbers = array(kind, [each or 0 for each in values])
    return Numbers(memoryview(numbers), validity, shift)


def headers_column(values, shift=0):
    offsets = array("i", [0])
    for each in values:
        offsets.append(offsets[-1] + len(each or ()))
    flat = [pair for each in values for pair in each or ()]
    validity = bits([each is not None for each in values], shift) if None in values else None
    return Headers(
        memoryview(offsets),
        octets_column([name.encode() for name, _ in flat]),
        octets_column([value for _, value in flat], shift=3),
        validity,
        shift,
    )


def writer_of(form, rows, shift=0):
    return form.ColumnWriter(
        len(rows),
        now_ms=NOW,
        key=octets_column([row[0] for row in rows], shift),
        value=octets_column([row[1] for row in rows], shift),
        timestamp=numbers_column("q", [row[2] for row in rows], shift),
        headers=headers_column([row[3] for row in rows], shift),
    )


def expected(row):
    key, value, micros, pairs = row
    return key, value, NOW if micros is None else micros // 1000, tuple(pairs or ())


def decoded(data, size):
    set_producer(memoryview(data)[:size], -1, -1, -1)
    (batch,) = decode_batches(memoryview(data)[:size], 1 << 30)
    assert batch.header.size_bytes == size
    assert batch.header.max_timestamp == max(each.timestamp for each in batch.records)
    assert [each.offset for each in batch.records] == list(range(len(batch.records)))
    return [(each.key, each.value, each.timestamp, each.headers) for each in batch.records]


@given(
    rows=rows,
    shift=st.integers(0, 17),
    room=st.integers(HEADER_SIZE_BYTES, 30_000),
    codec=st.sampled_from(list(Codec)),
)
def test_what_is_decoded_are_the_rows(form, rows, shift, room, codec):
    writer = writer_of(form, rows, shift)
    order = array("i", range(len(rows)))
    found = []
    at = 0
    while at < len(rows):
        batch = filling.FillingBatch(bytearray(b"\xaa" * room))
        at = writer.encode(order, at, len(rows), batch.data, batch.state)
        if batch.record_count == 0:
            batch.grow(batch.wanted_bytes)
            at = writer.encode(order, at, len(rows), batch.data, batch.state)
            assert batch.size_bytes == len(batch.data)
        assert batch.size_bytes <= max(room, len(batch.data))
        found += decoded(*batch.close(codec))
    assert found == [expected(row) for row in rows]


@given(first=rows, second=rows)
def test_a_batch_takes_rows_of_several_sets(form, first, second):
    batch = filling.FillingBatch(bytearray(1 << 20))
    for part in (first, second):
        writer = writer_of(form, part)
        count = len(part)
        assert writer.encode(array("i", range(count)), 0, count, batch.data, batch.state) == count
    assert decoded(*batch.close(Codec.NONE)) == [expected(row) for row in first + second]


@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=20),
    count=st.integers(1, 1000),
)
@example(keys=[b"", b"a", b"ab", b"abc", b"abcd", b"\xff" * 7, None], count=7)
def test_keys_find_the_partition_of_javas_producer(form, keys, count):
    writer = form.ColumnWriter(
        len(keys), now_ms=NOW, value=octets_column(keys), key=octets_column(keys)
    )
    chosen = array("i", bytes(4 * len(keys)))
    arguments = {"partition_count": count, "sticky": count - 1, "room_bytes": 1 << 40}
    assert writer.choose_partitions(chosen, 0, **arguments)[0] == len(keys)
    for key, partition in zip(keys, chosen, strict=True):
        if key is None:
            assert partition == count - 1
            continue
        assert form.murmur2(key) == partitioner.murmur2(key) == murmur2(key) & 0xFFFFFFFF
        assert partition == (murmur2(key) & 0x7FFFFFFF) % count


@given(asked=st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1), shift=st.integers(0, 9))
def test_the_partition_asked_for_goes_before_the_key(form, asked, shift):
    keys = [b"key"] * len(asked)
    writer = form.ColumnWriter(
        len(asked), now_ms=NOW, value=octets_column(keys), key=octets_column(keys)
    )
    chosen = array("i", bytes(4 * len(asked)))
    column = numbers_column("i", asked, shift)
    arguments = {"partition_count": 5, "sticky": 0, "room_bytes": 99, "partition": column}
    assert writer.choose_partitions(chosen, 0, **arguments) == (len(asked), 99)
    by_key = partitioner.partition_of_key(b"key", 5)
    assert list(chosen) == [by_key if each is None else each for each in asked]


@given(chosen=st.lists(st.integers(0, 6), max_size=200))
def test_rows_are_sorted_by_partition_and_stay_in_order(form, chosen):
    order, ends = array("i", bytes(4 * len(chosen))), array("i", bytes(28))
    form.group_rows(array("i", chosen), len(chosen), order, ends)
    start = 0
    for partition, end in enumerate(ends):
        rows = [row for row, each in enumerate(chosen) if each == partition]
        assert list(order[start:end]) == rows
        start = end


def choose(form, count, **arguments):
    values = octets_column([bytes(90)] * count)
    writer = form.ColumnWriter(count, now_ms=NOW, value=values, **arguments.pop("columns", {}))
    chosen = array("i", [-9] * count)
    told = {"partition_count": 3, "sticky": 1, "room_bytes": 1000} | arguments
    return writer.choose_partitions(chosen, 0, **told), list(chosen)


def test_rows_without_key_go_on_elsewhere_when_the_room_is_used_up(form):
    (row, room), chosen = choose(form, 30)
    assert (row, room) == (10, 0)
    assert chosen == [1] * 10 + [-9] * 20


def test_rows_that_cannot_go_are_told(form):
    column = numbers_column("i", [0, 2, 3, 0])
    assert choose(form, 4, partition=column)[0] == (2, -1)
    column = numbers_column("i", [0, -1, 0, 0])
    assert choose(form, 4, partition=column)[0] == (1, -1)
    old = {"timestamp": numbers_column("q", [5, None, -1, 0])}
    assert choose(form, 4, columns=old)[0] == (2, -1)


@pytest.mark.parametrize("offsets", [[0, 5, 3], [0, 1, 99], [-1, 1, 2], [0, 1], [0, 1, 2, 3]])
def test_buffers_that_do_not_fit_their_rows_are_refused(form, offsets):
    column = Octets(memoryview(array("i", offsets)), b"12345")
    with pytest.raises(ValueError, match="offsets"):
        form.ColumnWriter(2, now_ms=NOW, value=column)
    with pytest.raises(ValueError, match="offsets"):
        form.ColumnWriter(
            2,
            now_ms=NOW,
            value=octets_column([b"", b""]),
            headers=Headers(
                memoryview(array("i", offsets)), octets_column([b"a"]), octets_column([b"a"])
            ),
        )


def test_headers_without_any_offset_are_refused(form):
    """Arrow allows an array of no items to have no offsets: reading the first would be a fault."""
    none = Octets(memoryview(array("i", [])), b"")
    headers = Headers(memoryview(array("i", [0, 0])), none, none)
    with pytest.raises(ValueError, match="offsets"):
        form.ColumnWriter(1, now_ms=NOW, value=octets_column([b"v"]), headers=headers)


def test_validity_that_does_not_reach_is_refused(form):
    column = octets_column([None] * 9)
    with pytest.raises(ValueError, match="validity"):
        form.ColumnWriter(9, now_ms=NOW, value=column._replace(bit=8))
    with pytest.raises(ValueError, match="validity"):
        form.ColumnWriter(9, now_ms=NOW, value=column._replace(validity=b"\xff"))


def test_numbers_of_rows_that_are_not_there_are_refused(form):
    writer = form.ColumnWriter(1, now_ms=NOW, value=octets_column([b"v"]))
    batch = filling.FillingBatch(bytearray(100))
    for order in ([1], [-1]):
        with pytest.raises(ValueError, match="row"):
            writer.encode(array("i", order), 0, 1, batch.data, batch.state)
    with pytest.raises(ValueError, match="rows"):
        writer.encode(array("i", [0]), 0, 2, batch.data, batch.state)
    with pytest.raises(ValueError, match="range"):
        form.group_rows(array("i", [3]), 1, array("i", [0]), array("i", [0]))


def test_a_record_of_megabytes(form):
    value = bytes(3_000_000)
    writer = form.ColumnWriter(1, now_ms=NOW, value=octets_column([value]))
    batch = filling.FillingBatch(bytearray(100))
    assert writer.encode(array("i", [0]), 0, 1, batch.data, batch.state) == 0
    batch.grow(batch.wanted_bytes)
    assert writer.encode(array("i", [0]), 0, 1, batch.data, batch.state) == 1
    assert decoded(*batch.close(Codec.NONE)) == [(None, value, NOW, ())]


def test_forms(form):
    is_compiled = form is imported and imported.COMPILED
    assert form.COMPILED is is_compiled
