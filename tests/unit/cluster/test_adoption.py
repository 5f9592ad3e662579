"""Directories that the metadata does not know: no data is locked in, no deleted data comes back."""

import asyncio
import errno
from contextlib import nullcontext

import pytest

from ottla.cluster.adoption import adopt
from ottla.cluster.producer_ids import ProducerIds
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, TopicId, TopicPartition
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.making import Wanted
from ottla.metadata.store import Put
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    encode_name,
    encode_partition,
    encode_topic,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.cluster.directories import NODE, open_logs, write_logs

ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)


@pytest.fixture
def disk():
    return MemoryDisk()


@pytest.fixture
def written(disk):
    """Leave partition directories, one record in each, as another broker would have."""

    def written(*partitions, topic_id=ID, epoch=0):
        write_logs(disk, partitions, topic_id, epoch=epoch)

    return written


@pytest.fixture
def bring_together(disk, following):
    """Open the directories and adopt; returns the log manager."""

    async def bring_together():
        manager = open_logs(disk)
        store, keys, topics = following.store, following.keys, dict(following.image.topics)
        revision = await adopt(store, keys, topics, manager, node_id=NODE, rng=SeededRng(2))
        await following.follower.reached(revision)
        return manager

    return bring_together


@pytest.fixture
def deleted_and_made_anew(following):
    """Let the store know of a topic ``t`` of one partition, and that another ``t`` was deleted."""

    async def deleted_and_made_anew():
        keys = following.keys
        state = PartitionState((NODE,), (NODE,), NODE, LeaderEpoch(0), 0)
        revision = await following.store.commit(
            [],
            [
                Put(keys.deleted_topic(ID), encode_name("t")),
                Put(keys.partition(OTHER_ID, 0), encode_partition(state)),
                Put(keys.topic_id(OTHER_ID), encode_name("t")),
                Put(keys.topic("t"), encode_topic(TopicValue(OTHER_ID, 1))),
            ],
        )
        await following.follower.reached(revision)

    return deleted_and_made_anew


async def test_a_new_producer_is_not_taken_for_one_of_an_adopted_log(
    disk, bring_together, following
):
    manager = open_logs(disk)
    log = manager.create(TopicPartition("t", 0), ID)
    producer = {"producer_id": 4711, "producer_epoch": 0, "base_sequence": 0}
    log.append(memoryview(build_batch([Record(value=b"old")], **producer)), leader_epoch=0)
    manager.stop()
    for expected in (4712, 4712):  # The second start adopts nothing.
        (await bring_together()).stop()
        ids = ProducerIds(following.store, following.keys.producer_id_block)
        given = asyncio.get_running_loop().create_future()
        ids.next().on_done(lambda pending, given=given: given.set_result(pending.value))
        assert await given >= expected


async def test_no_producer_gets_an_id_that_is_known_though_the_metadata_is_older(
    disk, bring_together, following
):
    """Its first batch would be acknowledged as one that is there, and not be stored."""
    keys = following.keys
    manager = open_logs(disk)
    log = manager.create(TopicPartition("t", 0), ID)
    for producer_id in (7, 1 << 62):  # The other one is made up by a client.
        producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        log.append(memoryview(build_batch([Record(value=b"old")], **producer)), leader_epoch=0)
    manager.stop()
    state = PartitionState((NODE,), (NODE,), NODE, LeaderEpoch(0), 0)
    revision = await following.store.commit(
        [],
        [
            Put(keys.partition(ID, 0), encode_partition(state)),
            Put(keys.topic("t"), encode_topic(TopicValue(ID, 1))),
        ],
    )
    await following.follower.reached(revision)
    (await bring_together()).stop()
    given = asyncio.get_running_loop().create_future()
    ids = ProducerIds(following.store, keys.producer_id_block)
    ids.next().on_done(lambda pending: given.set_result(pending.value))
    assert 8 <= await given < 1 << 40


async def test_a_copied_directory_is_served_under_its_own_topic_id(
    written, bring_together, following
):
    written(("t", 0), ("t", 1), ("u", 0))
    manager = await bring_together()
    assert set(following.image.topics) == {"t", "u"}
    topic = following.image.topic("t")
    assert topic.topic_id == ID
    assert [(state.leader, state.isr) for state in topic.partitions] == [(NODE, (NODE,))] * 2
    log = manager.create(TopicPartition("t", 0), topic.topic_id)
    found = log.read(0, max_bytes=1000, upper_offset=1, min_one_message=True)
    assert b"kept" in found.region.read()


async def test_a_second_start_changes_nothing(written, bring_together, following):
    written(("t", 0))
    (await bring_together()).stop()
    before = following.image.revision
    await bring_together()
    assert following.image.revision == before


async def test_the_leader_epoch_does_not_go_back(written, bring_together, following):
    written(("t", 0), epoch=7)
    await bring_together()
    assert following.image.topic("t").partitions[0].leader_epoch >= 7


async def test_partitions_missing_in_between_are_made_empty(written, bring_together, following):
    written(("t", 2))
    await bring_together()
    topic = following.image.topic("t")
    assert [state.leader for state in topic.partitions] == [NODE] * 3


async def test_partitions_that_older_metadata_lack_are_served_again(
    written, bring_together, following
):
    written(("t", 0))
    (await bring_together()).stop()
    written(("t", 1), ("t", 3))
    manager = await bring_together()
    topic = following.image.topic("t")
    assert [state.leader for state in topic.partitions] == [NODE] * 4
    assert topic.topic_id == ID
    assert manager.logs[TopicPartition("t", 3)].log_end_offset == 1


async def test_a_directory_without_topic_id_gets_one(written, bring_together, following, disk):
    written(("t", 0))
    disk.remove("/data/t-0/partition.metadata")
    await bring_together()
    assert following.image.topic("t").topic_id[6] >> 4 == 4, "a UUID of version 4"


async def test_an_interrupted_deletion_is_finished(written, bring_together, following):
    """The topic is gone from the store, its mark, its partitions and its directories are not."""
    written(("t", 0), ("t", 1))
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    partitions = [Put(following.keys.partition(ID, index), b"{}") for index in range(101)]
    for begin in (0, 100):
        await following.store.commit([], partitions[begin : begin + 100])
    manager = await bring_together()
    assert not (await following.store.scan(following.keys.topic_partitions(ID)))[0]
    assert "t" not in following.image.topics
    assert not manager.logs
    assert len(manager.deleted) == 2
    assert await following.store.get(mark) is None


async def test_deletions_that_were_cut_short_are_finished_with_one_sync(
    written, bring_together, following, disk, monkeypatch
):
    written(*(("t", number) for number in range(20)))
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    sync, synced = disk.sync_directory, []

    def counted(path):
        synced.append(path)
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", counted)
    manager = await bring_together()
    assert len(manager.deleted) == 20
    assert len(synced) < 10


async def test_a_deleted_topic_does_not_come_back_from_an_unreadable_directory(
    written, bring_together, following, disk
):
    written(("t", 0))
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    log_file = disk.open("/data/t-0/00000000000000000000.log")
    kept = log_file.read_at(0, log_file.size())
    log_file.truncate(0)  # Shorter than its recovery point: corruption with a name.
    manager = await bring_together()
    assert manager.offline
    assert await following.store.get(mark) is not None
    manager.stop()
    log_file.write_at(0, kept)
    manager = await bring_together()
    assert "t" not in following.image.topics
    assert not manager.logs
    assert await following.store.get(mark) is None


async def test_a_deletion_does_not_touch_the_topic_that_came_after(
    written, bring_together, following, deleted_and_made_anew
):
    written(("t", 0), topic_id=OTHER_ID)
    await deleted_and_made_anew()
    manager = await bring_together()
    assert following.image.topic("t").topic_id == OTHER_ID
    assert TopicPartition("t", 0) in manager.logs


async def test_an_empty_directory_without_an_id_is_no_reason_for_more_partitions(
    written, bring_together, following, disk
):
    written(("t", 0))
    (await bring_together()).stop()
    disk.make_directory("/data/t-3")
    for _ in range(2):
        manager = await bring_together()
        assert len(following.image.topic("t").partitions) == 1
        assert TopicPartition("t", 3) in manager.logs
        manager.stop()


async def test_what_a_creation_left_goes_though_a_smaller_topic_of_that_name_came_after(
    written, bring_together, following, disk, deleted_and_made_anew
):
    # World s1128a.1392: it stayed then, and once that topic was deleted, too, it made a new one.
    written(("t", 0), topic_id=OTHER_ID)
    disk.make_directory("/data/t-3")
    await deleted_and_made_anew()
    manager = await bring_together()
    assert list(manager.logs) == [TopicPartition("t", 0)]
    assert not disk.exists("/data/t-3")
    assert await following.store.get(following.keys.deleted_topic(ID)) is None


@pytest.mark.parametrize("was_deleted", [True, False])
async def test_a_deleted_topics_directory_makes_way_once_it_can_be_opened_in_a_later_process_too(
    written, bring_together, following, monkeypatch, was_deleted
):
    """Simulated world simA.7: deleted and made anew while its disk was full, then a restart."""
    written(("t", 0))
    marks = [Put(following.keys.deleted_topic(ID), encode_name("t"))] if was_deleted else []
    await following.store.commit(
        [], [*marks, Put(following.keys.deleted_topic(OTHER_ID), encode_name("u"))]
    )

    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("ottla.log.directories.opening.open_log", refuse)
        manager = await bring_together()
    where, new_id = TopicPartition("t", 0), TopicId(b"n" * 16)
    assert where in manager.offline

    def make():
        job = manager.maker.making_job([Wanted(where, new_id, False)])
        job.run()
        return manager.maker.made(job)[where]

    assert make().code is ErrorCode.INCONSISTENT_TOPIC_ID
    again = make()
    if was_deleted:
        assert (again.topic_id, again.log_end_offset) == (new_id, 0)
    else:
        assert isinstance(again, KafkaError), "whose it is nobody knows: it stays as it is"


async def test_a_directory_of_an_older_topic_of_the_name_is_reported_and_left(
    written, bring_together, following, disk, caplog
):
    written(("t", 0))
    revision = await following.store.commit(
        [], [Put(following.keys.topic("t"), encode_topic(TopicValue(OTHER_ID, 1)))]
    )
    await following.follower.reached(revision)
    manager = await bring_together()
    assert "the directory /data/t-0 is of another topic" in caplog.text
    assert following.image.topic("t").topic_id == OTHER_ID
    assert "t-0" in disk.list_directory("/data")
    with pytest.raises(KafkaError) as caught:
        manager.create(TopicPartition("t", 0), OTHER_ID)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


async def test_kafkas_directories_beside_its_topics_are_no_topics(
    written, bring_together, following
):
    written(("__cluster_metadata", 0))
    await bring_together()
    assert not following.image.topics


@pytest.fixture
def two_directories(disk, following):
    """Leave ``t-0`` in both directories: an old topic's in /a, which was offline, a new one's."""

    def start(disk=disk):
        return open_logs(disk, log_dirs=("/a", "/b"))

    manager = start()
    for topic_id, count in ((ID, 3), (OTHER_ID, 5)):
        log = manager.create(TopicPartition("t", 0), topic_id)
        for _ in range(count):
            log.append(memoryview(bytearray(build_batch([Record(value=b"v")]))), leader_epoch=0)
        log.flush()
        if topic_id == ID:
            assert log.directory == "/a/t-0"
            manager.checkpoint_job().run()
            manager.fail_directory("/a", OSError(5, "Input/output error"))
            with pytest.raises(KafkaError):
                manager.delete(TopicPartition("t", 0))
    assert log.directory == "/b/t-0"
    manager.checkpoint_job().run()
    manager._release()
    return start


async def adopted(manager, following):
    store, keys, topics = following.store, following.keys, dict(following.image.topics)
    revision = await adopt(store, keys, topics, manager, node_id=NODE, rng=SeededRng(2))
    await following.follower.reached(revision)
    return manager.get(TopicPartition("t", 0))


async def live_topic(following, topic_id):
    keys = following.keys
    revision = await following.store.commit(
        [], [Put(keys.topic("t"), encode_topic(TopicValue(topic_id, 1)))]
    )
    await following.follower.reached(revision)


async def test_a_topic_made_anew_while_a_disk_was_away_is_served_when_it_is_back(
    two_directories, following, disk
):
    """Both directories were set apart: acknowledged records could not be read any more."""
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    await live_topic(following, OTHER_ID)
    manager = two_directories()
    assert TopicPartition("t", 0) in manager.offline
    found = await adopted(manager, following)
    assert (found.topic_id, found.log_end_offset) == (OTHER_ID, 5)
    assert found.directory == "/b/t-0"
    assert manager.offline == {}
    assert await following.store.get(mark) is None
    manager.remove_deleted()
    assert not [name for name in disk.list_directory("/a") if name.startswith("t-0")]
    manager.stop()
    manager = two_directories()
    assert manager.get(TopicPartition("t", 0)).log_end_offset == 5


@pytest.mark.parametrize(
    ("call", "code"), [(DiskCall.OPEN, errno.ENFILE), (DiskCall.READ, errno.EIO)]
)
async def test_of_two_directories_that_cannot_be_told_apart_now_none_is_served(
    two_directories, following, disk, call, code
):
    """The dead one was opened when there were descriptors again, and a third directory made."""
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    await live_topic(following, OTHER_ID)
    faulty = FaultyDisk(disk)
    manager = two_directories(faulty)
    faulty.fail(call, errno=code, lasting=True)
    is_passing = call is DiskCall.OPEN
    with pytest.raises(LogDirectoryUnusable) if is_passing else nullcontext():
        await adopted(manager, following)
    assert manager.offline.reopening(TopicPartition("t", 0)) is None
    assert await following.store.get(mark) is not None
    manager._release()
    manager = two_directories()
    found = await adopted(manager, following)
    assert (found.topic_id, found.log_end_offset) == (OTHER_ID, 5)


async def test_two_directories_of_which_none_is_known_to_be_deleted_stay_for_a_person(
    two_directories, following, disk
):
    await live_topic(following, OTHER_ID)
    manager = two_directories()
    assert await adopted(manager, following) is None
    assert TopicPartition("t", 0) in manager.offline
    assert disk.exists("/a/t-0")
    assert disk.exists("/b/t-0")


async def test_two_directories_of_deleted_topics_both_go(two_directories, following, disk):
    for topic_id in (ID, OTHER_ID):
        mark = following.keys.deleted_topic(topic_id)
        await following.store.commit([], [Put(mark, encode_name("t"))])
    manager = two_directories()
    assert await adopted(manager, following) is None
    assert manager.offline == {}
    assert not disk.exists("/a/t-0")
    assert not disk.exists("/b/t-0")
    assert "t" not in following.image.topics


async def test_leftovers_of_creating_a_deleted_topic_make_no_topic(
    written, bring_together, following, disk
):
    """Its directory had no topic id yet: a start took it for a topic from elsewhere."""
    manager = open_logs(disk)
    manager.create(TopicPartition("t", 0), ID)
    manager.stop()
    disk.remove("/data/t-0/partition.metadata")
    mark = following.keys.deleted_topic(ID)
    await following.store.commit([], [Put(mark, encode_name("t"))])
    manager = await bring_together()
    assert "t" not in following.image.topics
    assert not manager.logs
    assert await following.store.get(mark) is None


async def test_a_directory_that_was_never_finished_makes_way_for_the_one_that_was(
    two_directories, following, disk
):
    await live_topic(following, OTHER_ID)
    disk.remove("/a/t-0/partition.metadata")
    disk.open("/a/t-0/00000000000000000000.log").truncate(0)
    manager = two_directories()
    found = await adopted(manager, following)
    assert (found.topic_id, found.log_end_offset) == (OTHER_ID, 5)
    assert not disk.exists("/a/t-0")
