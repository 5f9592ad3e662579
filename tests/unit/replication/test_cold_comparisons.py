"""A follower that comes back is compared with batches that only the device has: off the loop."""

import pytest

from ottla.env.memory_disk import MemoryFile
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.pending import Pending
from ottla.replication.follower import Asked
from ottla.replication.follower_sessions import FollowerSessions, FollowerSpec
from ottla.replication.isr_changes import IsrChanges
from tests.unit.replication.conftest import TOPIC_ID
from tests.unit.replication.test_compacted_epochs import write

FOLLOWER = NodeId(2)


@pytest.fixture
def device(monkeypatch):
    """Files that are in memory once an executor has read them; what is read of others."""
    warm, early = set(), []
    read_at, read_into = MemoryFile.read_at, MemoryFile.read_into

    def watched(file, position, length):
        if file.path.endswith((".log", "index")) and file.path not in warm:
            early.append(file.path)
        return read_at(file, position, length)

    def ahead(file, position, buffer):
        warm.add(file.path)
        return read_into(file, position, buffer)

    def is_cached(file, position, length):
        return file.path in warm

    monkeypatch.setattr(MemoryFile, "read_at", watched)
    monkeypatch.setattr(MemoryFile, "read_into", ahead)
    monkeypatch.setattr(MemoryFile, "is_cached", is_cached)
    return early


@pytest.mark.parametrize("at_border", [True, False])
def test_the_loop_reads_no_log_that_only_the_device_has(make_node, words, device, at_border):
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
    device.clear()
    cold = []
    assert list(sessions.read(session, 10**6, cold)) == [None]
    assert not device
    assert partition.view.remote(FOLLOWER) is None, "it has not been compared"
    assert {one.log_path for one in cold} == set(paths[1:] if not at_border else paths)
    for one in cold:
        one.run()
    device.clear()
    (news,) = sessions.read(session, 10**6)
    assert news.found.region is not None
    assert not [path for path in device if path.endswith(".log")]
    assert partition.view.remote(FOLLOWER).end_offset == offset
