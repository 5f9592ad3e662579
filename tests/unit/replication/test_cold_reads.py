"""Reads that would wait for the device: an executor goes ahead, the loop follows."""

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.env.memory_disk import MemoryFile
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.log.segment.cold_read import COLD_READ_BYTES_MAX
from ottla.pending import Pending
from ottla.replication.follower import Asked
from ottla.replication.follower_session import FollowerSpec
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.isr_changes import IsrChanges
from tests.unit.replication.conftest import TOPIC_ID
from tests.unit.replication.test_compacted_epochs import write

FOLLOWER = NodeId(2)
TAIL = 520
"""Batches after which the oldest are no longer remembered by position."""


@pytest.fixture
def device(monkeypatch):
    """A device that every file of the memory disk is on, in memory only once it was read there."""
    warm = set()
    read_at, read_into = MemoryFile.read_at, MemoryFile.read_into
    early = []

    def read_as_loop(file, position, length):
        if file.path.endswith((".log", "index")) and file.path not in warm:
            early.append(file.path)
        return read_at(file, position, length)

    def read_ahead(file, position, buffer):
        warm.add(file.path)
        return read_into(file, position, buffer)

    def evict():
        warm.clear()
        monkeypatch.setattr(MemoryFile, "is_cached", lambda file, *_: file.path in warm)
        monkeypatch.setattr(MemoryFile, "read_at", read_as_loop)
        monkeypatch.setattr(MemoryFile, "read_into", read_ahead)
        return early

    return evict


@pytest.fixture
def filled(make_node, words):
    """A node with more batches in partition 0 than its log's tail remembers."""
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    for number in range(TAIL):
        node.append((0, words.batch(b"%d" % number)))
    node.append((1, words.batch()))
    return node


def found(answer, words):
    return [(one.code, one.region and one.region.read()) for one in words.result_of(answer)]


def test_what_is_not_in_memory_is_read_by_an_executor_first(filled, words, device):
    expected = found(filled.fetch((0, 0), (1, 0)), words)
    early = device()
    answer = filled.fetch((0, 0), (1, 0))
    assert isinstance(answer, Pending)
    assert not answer.is_done
    assert early == []
    assert filled.executor.run_next()
    assert early == [], "the loop read what only the device had"
    assert found(answer, words) == expected
    assert not isinstance(filled.fetch((0, 0)), Pending), "now it is in memory"


def test_the_tail_of_a_log_is_never_asked_for(filled, words, device):
    device()
    for offset in (TAIL - 1, TAIL - 100):
        answer = filled.fetch((0, offset))
        assert not isinstance(answer, Pending)
        assert found(answer, words)[0][1]


def test_indexes_that_are_not_loaded_are_read_ahead_too(filled, words, device, monkeypatch):
    expected = found(filled.fetch((0, 0)), words)
    filled.partition().log.roll()
    filled.partition().log.let_go()
    early = device()
    answer = filled.fetch((0, 0))
    assert isinstance(answer, Pending)
    assert early == []
    monkeypatch.setattr(MemoryFile, "is_cached", lambda *_: True)
    filled.executor.run_next()
    assert found(answer, words) == expected


def test_a_waiting_fetch_goes_on_waiting_after_a_cold_read(filled, words, device):
    device()
    answer = filled.fetch((0, 0), min_bytes=10**6)
    filled.executor.run_next()
    assert not answer.is_done
    filled.clock.advance(1)
    assert answer.is_done


def test_a_client_that_wants_more_than_is_read_ahead_gets_less(make_node, words, device):
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    for _ in range(TAIL):
        node.append((0, words.batch(b"x" * 20_000)))
    device()
    answer = node.fetch((0, 0), max_bytes=10**8, partition_bytes=10**8)
    node.executor.run_next()
    ((_, data),) = found(answer, words)
    assert len(data) == COLD_READ_BYTES_MAX


def test_an_error_of_the_device_is_the_answer_of_that_partition_alone(filled, words, device):
    device()
    answer = filled.fetch((0, 0), (1, 0))
    filled.disk.fail(DiskCall.READ, lasting=True)
    filled.disk.fail(DiskCall.OPEN, lasting=True)
    filled.executor.run_next()
    codes = [one.code for one in words.result_of(answer)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_a_partition_that_goes_away_meanwhile_is_no_fault(filled, words, device):
    device()
    answer = filled.fetch((0, 0))
    filled.partition().log.abandon()
    filled.executor.run_next()
    assert found(answer, words)[0][0] == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("at_border", [True, False])
def test_a_follower_is_compared_with_what_an_executor_has_read(make_node, words, device, at_border):
    node = make_node(partitions=1, segment_bytes=4000, index_interval_bytes=500)
    written = [(at, 1 + at // 150, "v") for at in range(300)]
    write(node, words, written)
    partition = node.partition()
    segments = partition.log.segments
    for segment in segments[:-1]:
        segment.rest()
    node.change(node.led(0, epoch=3, isr=(1,), old=partition.state))
    changes = IsrChanges(node.clock, lambda *_: Pending(), lambda: 10_000)
    changes.watch(partition)
    sessions = FollowerSessions(node.clock, changes, lambda _: partition, lambda _: 5)
    session = sessions.begin(FOLLOWER, 7)
    paths = [segment.path for segment in segments[1:3]]
    offset = segments[2].base_offset + (0 if at_border else 5)
    epoch = partition.log.leader_epochs.epoch_for_offset(offset - 1)
    asked = Asked(0, NodeId(-1), LeaderEpoch(3), 7, offset, epoch)
    session.name(FollowerSpec(TopicPartition("t", 0), TOPIC_ID, asked, 1000))
    early = device()
    cold = []
    assert list(sessions.read(session, 10**6, cold)) == [None]
    assert early == []
    assert partition.view.remote(FOLLOWER) is None, "it has not been compared"
    assert {one.log_path for one in cold} == set(paths[1:] if not at_border else paths)
    for one in cold:
        one.run()
    early.clear()
    (news,) = sessions.read(session, 10**6)
    assert news.found.region is not None
    assert not [path for path in early if path.endswith(".log")]
    assert partition.view.remote(FOLLOWER).end_offset == offset
