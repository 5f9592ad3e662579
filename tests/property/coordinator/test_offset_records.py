"""Committed offsets packed by hand and by the message tables: the same bytes, the same values."""

import hypothesis.strategies as st
from hypothesis import given

from ottla.coordinator.group import records, tables
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.records import OffsetKey
from ottla.coordinator.records import StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicId

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.text("ab", max_size=200)
)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
topic_ids = st.one_of(st.just(NULL_TOPIC_ID), st.binary(min_size=16, max_size=16).map(TopicId))
keys = st.builds(OffsetKey, texts, texts, int32s)
values = st.builds(
    CommittedOffset, int64s, int32s, texts, int64s, st.one_of(st.just(-1), int64s), topic_ids
)


@given(keys, values)
def test_both_ways_agree(key, value):
    record = records.offset_record(key, value)
    assert record == records._offset_record(key, value)
    table = tables.OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    assert record.key == b"\x00\x01" + table.encode(1)
    stored = StoredRecord(7, -1, record.key, record.value)
    assert records.OffsetKeyReader().read(stored) == key
    assert records.read_offset_value(stored) == records._read_offset_value(stored)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_alike_or_refused(data):
    for begin in (b"", b"\x00\x01", b"\x00\x04", b"\x00\x03"):
        stored = StoredRecord(7, -1, begin + data, begin + data)
        assert read(records.read_offset_value, stored) == read(records._read_offset_value, stored)
        found = read(records.OffsetKeyReader().read, stored)
        assert isinstance(found, OffsetKey) or found is ErrorCode.CORRUPT_MESSAGE


def read(reader, stored):
    try:
        return reader(stored)
    except KafkaError as error:
        return error.code
