"""A start that is short of something heals by itself, or ends with its reason: nothing is lost."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.directories.directory import LogDirectoryUnusable

LOG_DIRS = ("/a", "/b")
SHORTAGES = [
    *((call, errno.EMFILE) for call in (DiskCall.OPEN, DiskCall.LOCK)),
    *((call, errno.ENOMEM) for call in (DiskCall.OPEN, DiskCall.LOOK, DiskCall.READ)),
    (DiskCall.WRITE, errno.ENOSPC),
]


def left_by_a_kill(make_node, words):
    """Return the disk of a node that was killed, with acknowledged records in four partitions."""
    node = make_node(log_dirs=LOG_DIRS, partitions=4, segment_bytes=300)
    for number in range(12):
        node.append((number % 4, words.batch(b"%d" % number * 50)))
    node.executor.run_all()
    contents = [node.read(index) for index in range(4)]
    job = node.log_manager.checkpoint_job()
    job.run()
    node.log_manager._release()
    return node.disk._inner, contents


@pytest.mark.slow
@pytest.mark.parametrize(("call", "number"), SHORTAGES)
@pytest.mark.parametrize("has_files", [True, False])
def test_a_start_in_a_shortage_heals_or_ends(make_node, words, call, number, has_files):
    healed, fixes = 0, set()
    for nth in range(1, 200):
        inner, contents = left_by_a_kill(make_node, words)
        if not has_files:  # The leader epochs and snapshots are made anew: that takes writes.
            for log_dir, index in (("/a", 0), ("/b", 1)):
                for name in inner.list_directory(f"{log_dir}/t-{index}"):
                    if not name.endswith((".log", "metadata")):
                        inner.remove(f"{log_dir}/t-{index}/{name}")
        disk = FaultyDisk(inner)
        disk.fail(call, nth=nth, errno=number, lasting=True)
        try:
            node = make_node(disk=disk, log_dirs=LOG_DIRS, partitions=4, segment_bytes=300)
        except LogDirectoryUnusable as error:
            fixes.add(error.fix)
            continue
        struck = disk.counts[call] >= nth
        healed += any(node.partition(index).is_failed for index in range(4))
        disk.heal()
        for _ in range(2):
            node.measure_space()
            node.executor.run_all()
        assert all(one.is_online for one in node.log_manager.directories.values()), nth
        assert node.log_manager.offline == {}, nth
        assert [node.read(index) for index in range(4)] == contents, nth
        answer = node.append(*((index, words.batch(b"after")) for index in range(4)))
        node.executor.run_all()
        assert words.codes(answer) == [ErrorCode.NONE] * 4, nth
        node.check()
        if not struck:
            break
    else:
        pytest.fail("a start takes more calls")
    assert all("start again" in fix for fix in fixes)
    assert healed or fixes or call is DiskCall.WRITE


async def test_a_new_partition_is_made_although_another_directory_is_lost_meanwhile(
    make_node, words
):
    """It could not be in the lost one: it has never been made."""
    node = make_node(log_dirs=LOG_DIRS, partitions=0)
    node.disk.fail(DiskCall.OPEN, errno=errno.EMFILE, lasting=True)
    node.change(node.led(0))
    assert node.partition(0).is_failed
    node.log_manager.fail_directory("/b", OSError(errno.EIO, "Input/output error"))
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()
    assert node.replica_manager.offline(TopicPartition("t", 0)) is None
    answer = node.append((0, words.batch()))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
