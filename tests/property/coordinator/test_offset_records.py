"""Committed offsets packed by hand and by the message tables: the same bytes, the same values."""

import hypothesis.strategies as st
from hypothesis import given

from ottla.coordinator.group.offsets import records, tables
from ottla.coordinator.group.offsets.committed import CommittedOffset, OffsetKey, Offsets
from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit, take, write
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
    fields = (value.offset, value.leader_epoch, value.metadata)
    times = (value.commit_timestamp_ms, value.expire_timestamp_ms)
    ((record_key, data),) = records.offset_records(
        key.group, key.topic, value.topic_id, [(key.partition, *fields)], *times
    )
    assert data == records._offset_value(*fields, *times, value.topic_id)
    table = tables.OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    assert record_key == b"\x00\x01" + table.encode(1)
    stored = StoredRecord(7, -1, record_key, data)
    assert records.OffsetKeyReader().read(stored) == key
    assert records.read_offset_value(stored) == records._read_offset_value(stored)


partitions = st.tuples(int32s, int64s, int32s, st.one_of(st.none(), texts))
topics = st.lists(
    st.builds(TopicCommit, texts, st.lists(partitions, min_size=1, max_size=4), topic_ids),
    min_size=1,
    max_size=3,
)


@given(
    texts, topics, st.integers(-1, 2**40), st.integers(0, 2**40), st.integers(-1, 1), int64s, int64s
)
def test_memory_holds_what_a_replay_would_put_there(
    group, topics, retention_ms, now_ms, producer_id, before, base_offset
):
    base_offset = abs(base_offset) // 2
    request = CommitRequest(group, "", None, -1, retention_ms, topics, tells_unknown_group=True)
    written = write(request, now_ms, metadata_length_max=50)
    taken, replayed = Offsets(), Offsets()
    for offsets in (taken, replayed):
        offsets.put(group, topics[0].topic, 0, CommittedOffset(before, 0, "", 0))
    take(taken, group, written, base_offset, producer_id)
    reader = records.OffsetKeyReader()
    for offset, (key, value) in enumerate(written.records, base_offset):
        stored = StoredRecord(offset, producer_id, key, value)
        replayed.put(*reader.read(stored), records.read_offset_value(stored), producer_id)
    assert taken._committed == replayed._committed
    assert taken._pending == replayed._pending
    taken.check()
    assert written.codes.count(ErrorCode.NONE) == len(written.records)
    assert len(written.codes) == sum(len(topic.partitions) for topic in topics)


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
