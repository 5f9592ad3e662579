"""A follower's log has the bytes of the leader's, however they came and whatever its segments."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.replicated import append_replicated, check_replicated
from ottla.records.batch import patch_offsets, read_header
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)


def open_partition(segment_bytes, disk=None, *, is_compacted=False):
    if disk is None:
        disk = MemoryDisk(durability=True)
        disk.make_directory("/t-0")
    config = LogConfig(
        segment_bytes=segment_bytes, index_interval_bytes=100, is_compacted=is_compacted
    )
    opening = {"recovery_point": 0, "log_start_offset": 0, "is_clean": False}
    return open_log(disk, ManualClock(NOW), "/t-0", TP, config, **opening)


def batches_of(seed, count, *, gaps):
    """Return batches as a leader's log has them: offsets rise, perhaps with gaps, and epochs."""
    chance = random.Random(seed)
    made, offset, epoch = [], chance.choice([0, 17]), 0
    for _ in range(count):
        epoch += chance.random() < 0.2
        records = [
            Record(timestamp=NOW + index, key=b"k", value=b"v" * chance.choice([0, 10, 300]))
            for index in range(chance.randrange(1, 4))
        ]
        built = bytearray(build_batch(records))
        patch_offsets(memoryview(built), offset, epoch)
        made.append(bytes(built))
        offset += len(records)
        if gaps and chance.random() < 0.3:
            offset += chance.choice([1, 5, 2**31 + 3])
    return made


def stored(log):
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


@given(
    seed=st.integers(0, 2**16),
    count=st.integers(1, 30),
    segment_bytes=st.integers(150, 3_000),
    gaps=st.booleans(),
    data=st.data(),
)
def test_a_follower_has_the_leaders_bytes(seed, count, segment_bytes, gaps, data):
    batches = batches_of(seed, count, gaps=gaps)
    log = open_partition(segment_bytes, is_compacted=data.draw(st.booleans()))
    begin = 0
    while begin < count:
        end = data.draw(st.integers(begin + 1, count))
        piece = b"".join(batches[begin:end])
        last = read_header(batches[end - 1])
        append_replicated(log, check_replicated(memoryview(piece)))
        assert log.log_end_offset == last.last_offset + 1
        log.check()
        begin = end
    assert stored(log) == b"".join(batches)
    headers = [read_header(one) for one in batches]
    epochs = {}
    for header in headers:
        epochs.setdefault(header.partition_leader_epoch, header.base_offset)
    assert [(one.epoch, one.start_offset) for one in log.leader_epochs.entries] == [*epochs.items()]
    for segment in log.segments:
        held = [one.size_bytes for one in headers if one.base_offset >= segment.base_offset]
        assert segment.size_bytes <= max([segment_bytes, *held[:1]])
    # A start after a kill finds the same, in whatever topic, whatever offsets are missing.
    again = open_partition(segment_bytes, log._disk, is_compacted=data.draw(st.booleans()))
    again.check()
    assert stored(again) == b"".join(batches)
    assert again.log_end_offset == log.log_end_offset
    assert again.leader_epochs.entries == log.leader_epochs.entries


@given(seed=st.integers(0, 2**16), count=st.integers(2, 20))
def test_nothing_of_a_piece_is_written_when_one_batch_does_not_go_on(seed, count):
    batches = batches_of(seed, count, gaps=False)
    log = open_partition(400)
    piece = b"".join([*batches, batches[0]])
    with pytest.raises(KafkaError) as refused:
        append_replicated(log, check_replicated(memoryview(piece)))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0
    assert stored(log) == b""
