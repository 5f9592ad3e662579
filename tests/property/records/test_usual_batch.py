"""The kernel's one look at a usual batch against the step by step way; what it takes is good."""

import importlib.util
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ottla.records
from ottla.errors import KafkaError
from ottla.records import batch as b
from ottla.records import kernels as imported
from ottla.records import validate
from ottla.records.builder import build_batch
from ottla.records.record import Record

LIMIT = 1 << 20
DATA = st.none() | st.binary(max_size=150)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(min_value=-1, max_value=1 << 44),
        key=DATA,
        value=DATA,
        headers=st.lists(st.tuples(st.text(max_size=5), DATA), max_size=2).map(tuple),
        offset=st.just(0),
        timestamp_type=st.just(b.TimestampType.CREATE_TIME),
    ),
    min_size=1,
    max_size=12,
)
PRODUCER = st.sampled_from(
    [{}, {"producer_id": 1 << 40, "producer_epoch": 7, "base_sequence": 2**31 - 1}]
)


def interpreted():
    path = Path(ottla.records.__path__[0]) / "kernels.py"
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = (imported.read_usual_batch, interpreted().read_usual_batch)


def step_by_step(records):
    """What the ordinary checks say; None if they refuse."""
    try:
        return validate.check_produced_batch(memoryview(records), LIMIT)
    except KafkaError:
        return None


@pytest.mark.parametrize("read", FORMS)
@given(records=RECORDS, producer=PRODUCER)
def test_a_usual_batch_is_taken_and_told_as_step_by_step(read, records, producer):
    data = build_batch(records, **producer)
    found = read(data)
    assert found is not None
    assert (b.BatchHeader._make(found[:13]), *found[13:]) == tuple(step_by_step(data))


@given(records=RECORDS, producer=PRODUCER, more=st.data())
def test_nothing_is_taken_that_is_refused_step_by_step(records, producer, more):
    """Any bytes changed, with a right sum: taken means that all the other checks say the same."""
    data = build_batch(records, **producer)
    for _ in range(more.draw(st.integers(min_value=1, max_value=3))):
        position = more.draw(st.integers(min_value=0, max_value=len(data) - 1))
        data[position] = more.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    data = data[: more.draw(st.integers(min_value=0, max_value=len(data)) | st.just(len(data)))]
    if len(data) >= b.HEADER_SIZE_BYTES:
        struct.pack_into(">I", data, b.CRC_POSITION, b.batch_crc(memoryview(data)))
    compiled, plain = (read(data) for read in FORMS)
    assert compiled == plain
    if plain is not None:
        assert (b.BatchHeader._make(plain[:13]), *plain[13:]) == tuple(step_by_step(data))


@pytest.mark.parametrize(
    ("position", "form", "value"),
    [
        (b.BASE_TIMESTAMP_POSITION, ">q", -2),
        (b.BASE_TIMESTAMP_POSITION, ">q", 2**63 - 1),
        (b.ATTRIBUTES_POSITION, ">h", b.TIMESTAMP_TYPE_BIT),
        (b.ATTRIBUTES_POSITION, ">h", -32768),
        (0, ">q", 1),
        (b.BASE_SEQUENCE_POSITION, ">i", -1),
        (b.RECORD_COUNT_POSITION, ">i", 0),
        (b.LAST_OFFSET_DELTA_POSITION, ">i", 1),
        (b.BATCH_LENGTH_POSITION, ">i", 1),
        (b.MAGIC_POSITION, "b", 1),
    ],
)
@pytest.mark.parametrize("read", FORMS)
def test_what_is_rare_is_left_to_the_ordinary_way(read, position, form, value):
    data = build_batch([Record(timestamp=5, value=b"v")], producer_id=3, base_sequence=0)
    assert read(data) is not None
    struct.pack_into(form, data, position, value)
    assert read(data) is None


def test_a_wrong_sum_or_too_many_bytes_are_not_usual():
    data = build_batch([Record(timestamp=5, value=b"v")])
    assert validate.check_usual_batch(memoryview(data), len(data)) is not None
    assert validate.check_usual_batch(memoryview(data), len(data) - 1) is None
    data[-1] ^= 1
    assert validate.check_usual_batch(memoryview(data), len(data)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_no_usual_batch_and_no_crash(data):
    for read in FORMS:
        assert read(data) is None
