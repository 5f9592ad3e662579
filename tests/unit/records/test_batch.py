import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.record import Record


def batch(**options):
    return build_batch([Record(timestamp=5), Record(timestamp=7)], **options)


def test_the_header_is_61_bytes_and_its_fields_stand_where_the_grammar_says():
    assert b.HEADER_SIZE_BYTES == 61
    data = batch(base_offset=100, leader_epoch=3, producer_id=9, producer_epoch=2, base_sequence=4)
    header = b.read_header(data)
    for name, position, size in [
        ("batch_length", b.BATCH_LENGTH_POSITION, 4),
        ("partition_leader_epoch", b.LEADER_EPOCH_POSITION, 4),
        ("magic", b.MAGIC_POSITION, 1),
        ("crc", b.CRC_POSITION, 4),
        ("attributes", b.ATTRIBUTES_POSITION, 2),
        ("last_offset_delta", b.LAST_OFFSET_DELTA_POSITION, 4),
        ("base_timestamp", b.BASE_TIMESTAMP_POSITION, 8),
        ("max_timestamp", b.MAX_TIMESTAMP_POSITION, 8),
        ("producer_id", b.PRODUCER_ID_POSITION, 8),
        ("producer_epoch", b.PRODUCER_EPOCH_POSITION, 2),
        ("base_sequence", b.BASE_SEQUENCE_POSITION, 4),
        ("record_count", b.RECORD_COUNT_POSITION, 4),
    ]:
        assert int.from_bytes(data[position : position + size], "big") == getattr(header, name)


def test_what_follows_from_the_header():
    data = batch(base_offset=100, base_sequence=0x7FFFFFFF, producer_id=0, producer_epoch=0)
    header = b.read_header(data)
    assert header.size_bytes == len(data) == b.read_size_bytes(data)
    assert (header.last_offset, header.next_offset) == (101, 102)
    assert header.last_sequence == 0, "sequences wrap after 2^31-1"
    assert header.has_producer_id
    assert b.read_header(batch()).last_sequence == b.NO_SEQUENCE
    assert not b.read_header(batch()).has_producer_id


@pytest.mark.parametrize(
    ("bit", "name"),
    [
        (b.TIMESTAMP_TYPE_BIT, "timestamp_type"),
        (b.TRANSACTIONAL_BIT, "is_transactional"),
        (b.CONTROL_BIT, "is_control"),
        (b.DELETE_HORIZON_BIT, "has_delete_horizon"),
        (3, "codec"),
    ],
)
def test_each_attribute_bit_has_one_reader(bit, name):
    names = ["timestamp_type", "is_transactional", "is_control", "has_delete_horizon", "codec"]
    header = b.read_header(batch())._replace(attributes=bit)
    assert [n for n in names if getattr(header, n)] == [name]


def test_offsets_are_assigned_without_touching_the_sum():
    data = batch()
    before = bytes(data)
    b.patch_offsets(memoryview(data), 1 << 40, 12)
    header = b.read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert b.batch_crc(memoryview(data)) == header.crc
    assert data[b.MAGIC_POSITION :] == before[b.MAGIC_POSITION :]


def test_log_append_time_sets_bit_time_and_sum():
    data = batch()
    b.set_log_append_time(memoryview(data), 1234)
    header = b.read_header(data)
    assert header.timestamp_type is b.TimestampType.LOG_APPEND_TIME
    assert (header.base_timestamp, header.max_timestamp) == (5, 1234)
    assert b.batch_crc(memoryview(data)) == header.crc
    b.set_max_timestamp(data, b.TimestampType.CREATE_TIME, 7)
    assert data == batch()


def test_headers_are_walked_up_to_a_partial_batch():
    one, two = batch(base_offset=0), batch(base_offset=2)
    for cut in (0, 1, 12, 61, len(two) - 1):
        found = list(b.iterate_headers(one + two[:cut]))
        assert [(p, h.base_offset) for p, h in found] == [(0, 0)]
    found = list(b.iterate_headers(b"skip" + one + two, 4))
    assert [(p, h.base_offset) for p, h in found] == [(4, 0), (4 + len(one), 2)]


@pytest.mark.parametrize(
    ("position", "value"), [(8, b"\xff\xff\xff\xff"), (8, bytes(4)), (16, b"\1")]
)
def test_a_length_or_magic_that_no_batch_has_is_named(position, value):
    data = batch()
    data[position : position + len(value)] = value
    with pytest.raises(KafkaError, match="batch at byte 0") as raised:
        list(b.iterate_headers(data))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
