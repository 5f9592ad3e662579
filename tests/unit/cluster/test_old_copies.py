"""An old copy of a log directory: what the metadata has no more, or elsewhere, is set aside."""

import errno
from contextlib import suppress

import pytest

from ottla.cluster.adoption import adopt
from ottla.cluster.old_copies import keep_the_newest
from ottla.cluster.unsettled import Unsettled, mark, read_unsettled
from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.directories.directory import DuplicatePartition, LogDirectoryUnusable
from ottla.log.directories.strays import let_go
from ottla.log.files.layout import parse_partition_directory
from ottla.log.upkeep.front import raise_start_offset
from ottla.metadata.store import Put
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    encode_deleted,
    encode_name,
    encode_partition,
    encode_topic,
)
from tests.unit.cluster.directories import NODE, open_logs, write_logs

ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)
TWO, THREE = NodeId(2), NodeId(3)
A, B, C = "/a", "/b", "/c"
T0 = TopicPartition("t", 0)


@pytest.fixture
def disk():
    return FaultyDisk(MemoryDisk(durability=True))


@pytest.fixture
def known(following):
    """Let the metadata have a topic ``t`` of partitions with these states."""

    async def known(*states, topic_id=ID, ops=()):
        keys = following.keys
        partitions = [
            Put(keys.partition(topic_id, index), encode_partition(state))
            for index, state in enumerate(states)
        ]
        topic = [
            Put(keys.topic("t"), encode_topic(TopicValue(topic_id, len(states)))),
            Put(keys.topic_id(topic_id), encode_name("t")),
        ]
        revision = await following.store.commit([], [*partitions, *topic, *ops])
        await following.follower.reached(revision)

    return known


@pytest.fixture
def start(following):
    """Start on a disk of which ``old`` log directories are old copies; returns the log manager."""

    async def start(disk, old=(A,), log_dirs=(A,)):
        manager = open_logs(disk, log_dirs=log_dirs)
        revision = await adopt(
            following.store,
            following.keys,
            dict(following.image.topics),
            manager,
            node_id=NODE,
            rng=SeededRng(2),
            is_alone=False,
            unsettled=await read_unsettled(following.store, following.keys),
            old_copies=old,
        )
        await following.follower.reached(revision)
        return manager

    return start


def replicas(*nodes, isr=None, left=()):
    isr = nodes if isr is None else isr
    leader = NodeId(isr[0] if isr else -1)
    return PartitionState(nodes, isr, leader, LeaderEpoch(0), 0, left=left)


def names(disk, log_dir=A):
    found = disk.list_directory(log_dir)
    return [name for name in found if parse_partition_directory(name)]


def strays(disk, log_dir=A):
    found = disk.list_directory(log_dir)
    return [name.partition(".")[0] for name in found if name.endswith("-stray")]


async def test_a_topic_that_is_no_more_is_not_taken_in(disk, start, following, caplog):
    write_logs(disk, [("gone", 0), ("gone", 1)], ID, log_dir=A)
    manager = await start(disk)
    assert following.image.topics == {}
    assert (manager.logs, names(disk), strays(disk)) == ({}, [], ["gone-0", "gone-1"])
    assert manager.directories[A].log_count == 0
    (warning,) = caplog.messages
    assert "2 partition directories" in warning
    assert warning.count("-stray") == 2
    manager.stop()
    manager = await start(disk, old=())
    assert (manager.logs, strays(disk)) == ({}, ["gone-0", "gone-1"])
    manager.stop()


async def test_a_directory_that_is_no_old_copy_is_taken_in_as_ever(disk, start, following):
    write_logs(disk, [("gone", 0)], ID, log_dir=A)
    write_logs(disk, [("new", 0)], OTHER_ID, log_dir=B)
    (await start(disk, log_dirs=(A, B))).stop()
    assert list(following.image.topics) == ["new"]


@pytest.mark.parametrize(
    ("topic_id", "state"),
    [
        (OTHER_ID, replicas(NODE, TWO)),
        (ID, replicas(TWO, THREE)),
        (None, replicas(NODE, TWO)),
        (None, replicas(NODE, TWO, isr=(TWO,))),
    ],
)
async def test_a_log_that_is_not_of_this_nodes_replica_makes_way(
    disk, start, known, topic_id, state
):
    await known(state)
    write_logs(disk, [T0], topic_id or ID, log_dir=A)
    if topic_id is None:
        disk.remove(f"{A}/t-0/partition.metadata")
    manager = await start(disk)
    assert (T0 in manager.logs, strays(disk)) == (False, ["t-0"])
    log = manager.create(T0, ID)
    assert (log.topic_id, log.log_end_offset) == (ID, 0)
    manager.stop()


@pytest.mark.parametrize(
    ("topic_id", "state"),
    [
        (ID, replicas(NODE, TWO)),
        (ID, replicas(TWO, left=(NODE,))),
        (ID, replicas()),
        (None, replicas(NODE)),
        (None, replicas(NODE, TWO, isr=(NODE,))),
    ],
)
async def test_what_may_be_needed_stays(disk, start, known, topic_id, state):
    await known(state)
    write_logs(disk, [T0], topic_id or ID, log_dir=A)
    if topic_id is None:
        disk.remove(f"{A}/t-0/partition.metadata")
    manager = await start(disk)
    assert (manager.logs[T0].log_end_offset, strays(disk)) == (1, [])
    manager.stop()


async def test_a_partition_that_its_topic_has_not_is_not_added(disk, start, known, following):
    await known(replicas(NODE, TWO))
    write_logs(disk, [("t", 0), ("t", 1)], ID, log_dir=A)
    manager = await start(disk)
    assert len(following.image.topic("t").partitions) == 1
    assert (list(manager.logs), strays(disk)) == ([T0], ["t-1"])
    manager.stop()


async def test_what_a_mark_calls_deleted_is_deleted(disk, start, known, following):
    mark = Put(following.keys.deleted_topic(OTHER_ID), encode_deleted("t", [NODE]))
    await known(replicas(NODE, TWO), ops=[mark])
    write_logs(disk, [T0], OTHER_ID, log_dir=A)
    manager = await start(disk)
    assert (manager.logs, names(disk), strays(disk)) == ({}, [], [])
    assert await following.store.get(mark.key) is None
    manager.stop()


async def test_what_is_no_topic_is_let_alone(disk, start):
    write_logs(disk, [("__cluster_metadata", 0)], ID, log_dir=A)
    (await start(disk)).stop()
    assert names(disk) == ["__cluster_metadata-0"]


async def test_metadata_that_is_not_settled_is_not_newer_than_a_copy(disk, start, following):
    await following.store.commit([], [mark(following.keys, Unsettled.METADATA)])
    write_logs(disk, [T0], ID, log_dir=A)
    (await start(disk)).stop()
    assert (list(following.image.topics), strays(disk)) == (["t"], [])


@pytest.mark.parametrize("newest", [A, B])
async def test_while_the_metadata_is_not_settled_the_newest_of_several_stays(
    disk, start, known, following, newest
):
    """A partition had been moved to the other directory, and a copy from before came back."""
    await known(replicas(NODE, TWO), ops=[mark(following.keys, Unsettled.METADATA)])
    older = A if newest == B else B
    write_logs(disk, [T0], ID, log_dir=older)
    write_logs(disk, [T0], ID, log_dir=newest)
    write_logs(disk, [T0], ID, log_dir=newest)
    manager = await start(disk, old=(), log_dirs=(A, B))
    assert manager.logs[T0].directory == f"{newest}/t-0"
    assert (strays(disk, older), strays(disk, newest)) == (["t-0"], [])
    manager.stop()


@pytest.mark.parametrize("how", ["another topic", "spoilt"])
async def test_what_cannot_be_compared_stays_offline(disk, start, known, following, how):
    await known(replicas(NODE, TWO), ops=[mark(following.keys, Unsettled.METADATA)])
    write_logs(disk, [T0], ID, log_dir=A)
    write_logs(disk, [T0], OTHER_ID if how == "another topic" else ID, log_dir=B)
    if how == "spoilt":
        spoil(disk, B)
    manager = open_logs(disk, log_dirs=(A, B))
    keep_the_newest(manager)
    assert T0 in manager.offline
    assert (names(disk), names(disk, B)) == (["t-0"], ["t-0"])
    manager.stop()


# A log that cannot be opened.


def spoil(disk, log_dir=A):
    file = disk.open(f"{log_dir}/t-0/{0:020d}.log")
    file.truncate(10)
    file.sync()
    file.close()
    disk.remove(f"{log_dir}/.kafka_cleanshutdown")


@pytest.mark.parametrize(
    ("state", "makes_way"),
    [
        (replicas(NODE, TWO), True),
        (replicas(NODE, TWO, isr=(NODE,)), False),
        (replicas(NODE), False),
        (replicas(TWO), True),
    ],
)
async def test_one_that_cannot_be_opened_makes_way_if_others_have_it(
    disk, start, known, state, makes_way
):
    await known(state)
    write_logs(disk, [T0], ID, log_dir=A)
    spoil(disk)
    manager = await start(disk)
    assert (T0 in manager.offline, strays(disk)) == (not makes_way, ["t-0"] if makes_way else [])
    if makes_way:
        assert manager.create(T0, ID).log_end_offset == 0
    manager.stop()


@pytest.mark.parametrize("topic_id", [ID, OTHER_ID])
async def test_one_that_could_not_be_opened_for_want_of_space_stays_if_it_is_the_topics(
    disk, known, following, topic_id
):
    await known(replicas(NODE, TWO))
    write_logs(disk, [T0], topic_id, log_dir=A)
    manager = open_logs(disk, log_dirs=(A,))
    let_go(manager, T0, A)
    manager.offline.set_apart(T0, A, OSError(errno.ENOSPC, "full"))
    await settle(manager, following)
    stays = topic_id == ID
    assert (T0 in manager.offline, names(disk)) == (stays, ["t-0"] if stays else [])
    manager.stop()


# Several log directories hold it.


async def test_of_two_directories_the_one_that_is_no_old_copy_is_served(disk, start, known):
    await known(replicas(NODE, TWO, isr=(NODE,)))
    for log_dir, count in [(A, 2), (B, 1)]:
        for _ in range(count):
            write_logs(disk, [T0], ID, log_dir=log_dir)
    manager = await start(disk, log_dirs=(A, B))
    assert (manager.logs[T0].directory, strays(disk), strays(disk, B)) == (f"{B}/t-0", ["t-0"], [])
    assert T0 not in manager.offline
    manager.stop()
    manager = await start(disk, old=(), log_dirs=(A, B))
    assert manager.logs[T0].directory == f"{B}/t-0"
    manager.stop()


async def test_of_two_directories_of_a_topic_that_is_no_more_none_is_served(disk, start, following):
    for log_dir in (A, B):
        write_logs(disk, [T0], ID, log_dir=log_dir)
    manager = await start(disk, old=(A, B), log_dirs=(A, B))
    assert (manager.logs, dict(manager.offline), following.image.topics) == ({}, {}, {})
    assert (strays(disk), strays(disk, B)) == (["t-0"], ["t-0"])
    manager.stop()


@pytest.mark.parametrize("newest", [A, B])
@pytest.mark.parametrize("by", ["epoch", "end", "start"])
async def test_of_two_old_copies_the_newest_is_served(disk, start, known, newest, by):
    await known(replicas(NODE, TWO, isr=(NODE,)))
    older = A if newest == B else B
    write_logs(disk, [T0], ID, log_dir=older)
    write_logs(disk, [T0], ID, log_dir=newest, epoch=by == "epoch")
    if by != "start":
        write_logs(disk, [T0], ID, log_dir=older if by == "epoch" else newest)
    else:
        for log_dir in (A, B):
            write_logs(disk, [T0], ID, log_dir=log_dir)
        manager = open_logs(disk, log_dirs=(newest,))
        raise_start_offset(manager.logs[T0], 1)
        manager.stop()
    manager = await start(disk, old=(A, B), log_dirs=(A, B))
    assert manager.logs[T0].directory == f"{newest}/t-0"
    assert (strays(disk, older), strays(disk, newest)) == (["t-0"], [])
    assert [manager.directories[one].log_count for one in (newest, older)] == [1, 0]
    manager.stop()


async def test_of_two_old_copies_the_one_that_can_be_opened_is_served(disk, start, known):
    await known(replicas(NODE))
    for log_dir in (A, B):
        write_logs(disk, [T0], ID, log_dir=log_dir)
    spoil(disk, A)
    manager = await start(disk, old=(A, B), log_dirs=(A, B))
    assert (manager.logs[T0].directory, strays(disk)) == (f"{B}/t-0", ["t-0"])
    manager.stop()


@pytest.mark.parametrize("has_others", [False, True])
async def test_of_two_old_copies_none_can_be_opened(disk, start, known, has_others):
    await known(replicas(NODE, TWO, isr=(TWO if has_others else NODE,)))
    for log_dir in (A, B):
        write_logs(disk, [T0], ID, log_dir=log_dir)
        spoil(disk, log_dir)
    manager = await start(disk, old=(A, B), log_dirs=(A, B))
    left = [] if has_others else ["t-0"]
    assert (names(disk), names(disk, B), T0 in manager.offline) == (left, left, not has_others)
    manager.stop()


async def test_of_three_directories_two_are_no_old_copies(disk, start, known):
    await known(replicas(NODE, TWO))
    for log_dir in (A, B, C):
        write_logs(disk, [T0], ID, log_dir=log_dir)
    manager = await start(disk, log_dirs=(A, B, C))
    fault = manager.offline[T0]
    assert isinstance(fault, DuplicatePartition)
    assert (fault.log_dirs, strays(disk)) == ([B, C], ["t-0"])
    manager.stop()


# Disks that refuse.


@pytest.mark.parametrize("call", [DiskCall.RENAME, DiskCall.SYNC_DIRECTORY])
async def test_a_disk_that_refuses_is_offline_until_the_next_start_does_it(
    disk, start, known, following, call
):
    await known(replicas(NODE, TWO))
    write_logs(disk, [("gone", 0), ("gone", 1)], OTHER_ID, log_dir=A)
    for log_dir in (A, B):
        write_logs(disk, [T0], ID, log_dir=log_dir)
    manager = open_logs(disk, log_dirs=(A, B))
    disk.fail(call)
    await settle(manager, following)
    assert [one.path for one in manager.online()] == [B]
    assert list(manager.logs) == [T0]
    assert manager.logs[T0].directory == f"{B}/t-0"
    manager.stop()
    manager = await start(disk, log_dirs=(A, B))
    assert list(following.image.topics) == ["t"]
    assert manager.logs[T0].directory == f"{B}/t-0"
    assert (sorted(strays(disk)), names(disk)) == (["gone-0", "gone-1", "t-0"], [])
    manager.stop()


async def test_a_full_disk_gives_its_reserve_for_that(disk, start, following):
    write_logs(disk, [T0], ID, log_dir=A)
    manager = open_logs(disk, log_dirs=(A,))
    disk.open(f"{A}/.ottla-reserve", create=True).close()
    disk.fail(DiskCall.RENAME, errno=errno.ENOSPC)
    await settle(manager, following)
    assert (strays(disk), len(manager.online())) == (["t-0"], 1)
    manager.stop()


async def test_a_process_without_memory_does_not_start(disk, following):
    write_logs(disk, [T0], ID, log_dir=A)
    manager = open_logs(disk, log_dirs=(A,))
    disk.fail(DiskCall.RENAME, errno=errno.ENOMEM)
    with pytest.raises(LogDirectoryUnusable, match="cannot be opened now"):
        await settle(manager, following)
    manager.stop()


async def settle(manager, following):
    store, keys, topics = following.store, following.keys, dict(following.image.topics)
    return await adopt(
        store,
        keys,
        topics,
        manager,
        node_id=NODE,
        rng=SeededRng(2),
        is_alone=False,
        old_copies=(A,),
    )


async def test_a_start_that_is_cut_short_anywhere_is_done_again(disk, start, known, following):
    await known(replicas(NODE, TWO))
    write_logs(disk, [("gone", 0), ("gone", 1)], OTHER_ID, log_dir=A)
    for log_dir in (A, B):
        write_logs(disk, [T0], ID, log_dir=log_dir)
    for seed in range(60):
        again = FaultyDisk(disk.inner.crash(SeededRng(seed)))
        manager = open_logs(again, log_dirs=(A, B))
        again.kill_at(1 + seed % 6)
        with suppress(DiskKilled):
            await settle(manager, following)
        cut = FaultyDisk(again.inner.crash(SeededRng(seed)))
        manager = await start(cut, log_dirs=(A, B))
        assert list(following.image.topics) == ["t"]
        assert {one.directory for one in manager.logs.values()} == {f"{B}/t-0"}
        assert (sorted(strays(cut)), names(cut)) == (["gone-0", "gone-1", "t-0"], [])
        manager.stop()
