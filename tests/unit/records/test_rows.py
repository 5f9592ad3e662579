"""Records as tuples: packed as the builder packs them, and taken apart again; compiled or not."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.wire.partitioner import partition_of_key
from ottla.records import rows as imported
from ottla.records.batch import HEADER_SIZE_BYTES
from ottla.records.builder import build_batch, build_batch_of_rows
from ottla.records.decode import decode_rows, whole_batches
from ottla.records.record import Record


def load_interpreted():
    path = Path(imported.__file__).parent / "rows.py"
    spec = importlib.util.spec_from_file_location("interpreted_rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


FORMS = [imported, load_interpreted()]
DATA = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(0, 1 << 45), DATA, DATA, HEADERS), min_size=1, max_size=80)


@pytest.mark.parametrize("form", FORMS)
@given(rows=ROWS)
def test_rows_are_packed_as_the_builder_packs_records_and_come_back(form, rows):
    batch = build_batch([Record(timestamp=t, key=k, value=v, headers=h) for t, k, v, h in rows])
    payload = bytes(form.pack_rows(rows))
    assert payload == batch[HEADER_SIZE_BYTES:]
    found = form.unpack_rows(payload, len(rows), 7, rows[0][0], -1)
    assert found == [(7 + index, *row) for index, row in enumerate(rows)]
    assert build_batch_of_rows(rows) == batch
    ((magic, entry),) = whole_batches(batch)
    header, decoded = decode_rows(magic, entry, 1 << 20)
    assert header.record_count == len(rows)
    assert [row[1:] for row in decoded] == rows


@pytest.mark.parametrize("form", FORMS)
@given(data=st.binary(max_size=60), count=st.integers(-1, 9))
def test_bytes_that_are_no_records_are_refused_not_read_past(form, data, count):
    """Both forms say the same, whatever the bytes are."""
    found = form.unpack_rows(data, count, 0, 0, -1)
    assert found == FORMS[1].unpack_rows(data, count, 0, 0, -1)
    assert found is None or len(found) == count


@pytest.mark.parametrize("form", FORMS)
def test_records_cut_short_are_refused(form):
    payload = bytes(form.pack_rows([(1, b"key", b"value", (("h", b"x"),))] * 2))
    for size in range(len(payload)):
        assert form.unpack_rows(payload[:size], 2, 0, 0, -1) is None
    assert form.unpack_rows(payload + b"\0", 2, 0, 0, -1) is None


@pytest.mark.parametrize("form", FORMS)
def test_keys_hash_as_java_hashes_them(form):
    """The values are those of Kafka's own test of its hash."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    for data, expected in known.items():
        assert form.murmur2(data) == expected & 0xFFFFFFFF


LINES = st.lists(
    st.tuples(st.binary(max_size=6), st.sampled_from([b"", b"\t", b"ab", b"\r"]), st.binary()).map(
        b"".join
    )
)


@pytest.mark.parametrize("form", FORMS)
@given(
    lines=LINES,
    separator=st.sampled_from([b"\t", b":", b"ab", b"\r", b"\0", b"a"]),
    count=st.integers(1, 5),
    empty=st.none() | st.just((None, 0)) | st.just((b"default", 0)),
)
def test_lines_become_keys_and_values_by_partition(form, lines, separator, count, empty):
    headers = (("h", None),)
    found, sizes, taken = form.keyed_rows(lines, separator, 7, headers, count, empty)
    expected = [[] for _ in range(count)]
    number = 0
    for line in lines:
        key, is_there, value = line.removesuffix(b"\r").partition(separator)
        if not is_there:
            break
        number += 1
        index = partition_of_key(key, count)
        if empty is not None and not key:
            key, index = empty
        expected[index].append((7, key, value if value or empty is None else None, headers))
    assert (found, taken) == (expected, number)
    assert sizes == [
        sum(len(key or b"") + len(value or b"") for _, key, value, _ in rows) for rows in expected
    ]
