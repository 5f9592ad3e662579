"""A directory that a refused call left behind is in nobody's way, and goes without a restart."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.ids import NodeId, TopicPartition
from ottla.log.files.layout import is_deleted_directory
from ottla.metadata.image import PartitionChange

LOG_DIRS = ("/a", "/b")


def holders(node, index):
    return [one for one in LOG_DIRS if f"t-{index}" in node.disk.list_directory(one)]


def gone(node, index):
    made = node.led(index)
    return PartitionChange(made.topic, made.topic_id, index, made.new, None)


def heal(node):
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()


REFUSALS = [
    (DiskCall.OPEN, errno.EMFILE),
    (DiskCall.SYNC_DIRECTORY, errno.EMFILE),
    (DiskCall.RENAME, errno.ENOMEM),
    (DiskCall.WRITE, errno.ENOMEM),
]


@pytest.mark.parametrize(("call", "code"), REFUSALS)
async def test_what_a_refused_making_left_is_no_second_directory_of_the_partition(
    make_node, words, call, code
):
    """The next start would set both apart: acknowledged records could not be read any more."""
    node = make_node(log_dirs=LOG_DIRS, partitions=0)
    node.disk.fail(call, errno=code, lasting=True)
    node.change(*(node.led(index) for index in range(4)))
    node.executor.run_all()
    refused = [node.partition(index) for index in range(4)]
    assert all(partition.is_failed for partition in refused)
    node.disk.heal()
    node.change(node.led(4))  # Now other directories have the fewest.
    node.executor.run_all()
    heal(node)
    answer = node.append(*((index, words.batch()) for index in range(4)))
    node.executor.run_all()
    assert set(words.codes(answer)) == {0}
    assert [len(holders(node, index)) for index in range(4)] == [1] * 4
    assert not any(partition.is_leader for partition in refused), "others took their places"
    assert not node.log_manager.may_have_left("t")


async def test_what_was_begun_on_a_disk_that_failed_is_not_begun_on_another(make_node, words):
    """The next start would find it in two directories and set both apart: nothing of it served."""
    node = make_node(log_dirs=LOG_DIRS, partitions=0)
    node.disk.fail(DiskCall.SYNC, errno=errno.EIO)
    node.change(node.led(0), node.led(1))
    node.executor.run_all()
    offline = [path for path, one in node.log_manager.directories.items() if not one.is_online]
    assert len(offline) == 1
    heal(node)
    for _ in range(2):
        node.change(node.led(0), node.led(1))
        node.executor.run_all()
    assert [len(holders(node, index)) for index in range(2)] == [1, 1]
    answer = node.append((0, words.batch()), (1, words.batch()))
    node.executor.run_all()
    assert sorted(words.codes(answer)) == [0, 56]


@pytest.mark.parametrize(("call", "code"), REFUSALS[1:])
async def test_what_a_refused_making_left_goes_with_its_topic(make_node, call, code):
    """Without a topic id, and without its topic, the next start made a topic of it."""
    node = make_node(log_dirs=LOG_DIRS, partitions=0)
    node.disk.fail(call, errno=code, lasting=True)
    node.change(node.led(0), node.led(1))
    node.executor.run_all()
    assert holders(node, 0)
    node.disk.heal()
    node.change(gone(node, 0), gone(node, 1))
    node.executor.run_all()
    assert [holders(node, index) for index in range(2)] == [[], []]
    assert not node.log_manager.may_have_left("t")


async def test_a_removal_without_a_descriptor_is_durable_all_the_same(make_node):
    """The log directories are open already: nothing is left between two names."""
    node = make_node(log_dirs=LOG_DIRS)
    for call in (DiskCall.OPEN, DiskCall.SYNC_DIRECTORY):
        node.disk.fail(call, errno=errno.EMFILE, lasting=True)
    node.change(gone(node, 0), gone(node, 1))
    node.executor.run_all()
    manager = node.log_manager
    assert not manager.may_have_left("t")
    manager.remove_deleted()
    left = [name for one in LOG_DIRS for name in node.disk.list_directory(one)]
    assert not [name for name in left if is_deleted_directory(name) or name.startswith("t-")]
    assert manager.deleted == []
    assert manager.get(TopicPartition("t", 0)) is None


async def test_a_replica_that_comes_back_is_not_made_beside_one_on_a_disk_that_failed(
    make_node, words
):
    """It had left while that disk was away: with the disk back two directories held it."""
    node = make_node(log_dirs=LOG_DIRS, partitions=2)
    node.append(*((index, words.batch()) for index in range(2)))
    node.executor.run_all()
    (holder,) = holders(node, 1)
    node.log_manager.fail_directory(holder, OSError(errno.EIO, "Input/output error"))
    here = node.partition(1).state
    elsewhere = here._replace(
        replicas=(NodeId(2),),
        leader=NodeId(2),
        leader_epoch=5,
        partition_epoch=5,
        left=(NodeId(1),),
    )
    back = elsewhere._replace(replicas=here.replicas, left=(), partition_epoch=6)

    def become(before, after):
        node.change(PartitionChange("t", node.led(1).topic_id, 1, before, after))

    become(here, elsewhere)
    become(elsewhere, back)
    node.executor.run_all()
    assert holders(node, 1) == [holder]
    assert node.partition(1).is_failed
    become(back, elsewhere)
    assert node.partition(1) is None
