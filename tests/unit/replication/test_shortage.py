"""A moment without file descriptors refuses what needs one, and leaves no trace."""

import asyncio
import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import ErrorCode
from ottla.log.health import LogState

REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


def let_go_of_files(node):
    """Make it as after a start: nobody has written yet."""
    for partition in node.replica_manager.partitions:
        partition.log.let_go()


def short(node, *calls):
    for call in calls:
        node.disk.fail(call, errno=errno.EMFILE, lasting=True)


def all_online(node):
    return all(directory.is_online for directory in node.log_manager.directories.values())


async def test_an_append_that_cannot_open_its_file_is_refused_and_the_next_one_is_not(node, words):
    node.append((0, words.batch()))
    node.executor.run_all()
    let_go_of_files(node)
    short(node, DiskCall.OPEN)
    for _ in range(2):
        assert words.codes(node.append((0, words.batch()), (1, words.batch()))) == [REFUSED] * 2
    node.disk.heal()
    answers = node.append((0, words.batch()), (1, words.batch()))
    node.executor.run_all()
    assert words.codes(answers) == [ErrorCode.NONE] * 2
    assert node.partition().log.log_end_offset == 2, "what was refused is not there"


@pytest.mark.parametrize(
    ("call", "number", "stays"),
    [(DiskCall.OPEN, errno.EMFILE, True), (DiskCall.READ, errno.EIO, False)],
)
async def test_the_first_append_after_a_start_that_cannot_read_is_refused(
    node, words, call, number, stays
):
    node.append((0, words.batch()))
    node.executor.run_all()
    let_go_of_files(node)
    node.partition().log.segments.active.first_timestamp = None
    node.disk.fail(call, errno=number, lasting=True)
    assert words.codes(node.append((0, words.batch()))) == [REFUSED]
    assert all_online(node) == stays
    node.disk.heal()
    answers = node.append((0, words.batch()))
    node.executor.run_all()
    assert words.codes(answers) == [ErrorCode.NONE if stays else REFUSED]


@pytest.mark.parametrize("call", [DiskCall.OPEN, DiskCall.SYNC_DIRECTORY])
async def test_a_flush_that_was_refused_is_done_when_the_shortage_is_over(make_node, words, call):
    node = make_node(file_delete_delay_ms=0)
    answer = node.append((0, words.batch()))
    short(node, call)  # The first flush saves the leader epoch: it opens, and syncs a directory.
    node.executor.run_all()
    assert node.partition().log.state is LogState.OPEN
    assert all_online(node)
    node.measure_space()
    node.executor.run_all()
    assert not answer.is_done, "there is still none"
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]


async def test_a_new_segment_whose_name_could_not_be_synced_is_flushed_when_the_shortage_is_over(
    make_node, words
):
    node = make_node(segment_bytes=100)
    node.append((0, words.batch(b"1" * 30)))
    node.executor.run_all()
    short(node, DiskCall.SYNC_DIRECTORY)
    answer = node.append((0, words.batch(b"2" * 30)))
    node.executor.run_all()
    assert not answer.is_done
    assert all_online(node)
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert node.partition().log.segment_count == 2


async def test_a_roll_that_was_refused_is_tried_by_the_next_append(make_node, words):
    node = make_node(segment_bytes=100)
    node.append((0, words.batch(b"1" * 30)))
    node.executor.run_all()
    short(node, DiskCall.OPEN)
    assert words.codes(node.append((0, words.batch(b"2" * 30)))) == [REFUSED]
    assert all_online(node)
    node.disk.heal()
    answer = node.append((0, words.batch(b"3" * 30)))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert node.partition().log.log_end_offset == 2


async def test_a_partition_that_could_not_be_made_is_made_when_the_shortage_is_over(node, words):
    short(node, DiskCall.OPEN)
    node.change(node.led(2))
    assert node.partition(2).is_failed
    assert all_online(node)
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()
    answer = node.append((2, words.batch()))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]


async def test_a_log_that_fails_is_named_once_with_why(node, words, caplog):
    node.append((0, words.batch()))
    node.disk.fail(DiskCall.SYNC, errno=errno.EIO, lasting=True)
    node.executor.run_all()
    assert node.partition().is_failed
    lines = [one.getMessage() for one in caplog.records if one.name == "ottla.log.health"]
    assert len(lines) == 1
    assert "t-0 is offline" in lines[0]
    assert "Input/output error" in lines[0]


@pytest.mark.parametrize("is_told", ["before", "after"])
async def test_a_disk_that_fills_amid_a_stop_begins_no_flush(make_node, words, is_told):
    """A world: the logs could not be closed, and the stop was none (s1129y.16)."""
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    node.append((0, words.batch()))
    (directory,) = node.log_manager.directories.values()
    if is_told == "before":
        node.replica_manager._directory_changed(directory)
        node.clock.advance(0)  # It waits for its turn.
    settling = asyncio.ensure_future(node.replica_manager.settle())
    while not settling.done():
        await asyncio.sleep(0)
        node.executor.run_all()
    if is_told == "after":
        node.replica_manager._directory_changed(directory)
        node.clock.advance(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not node.executor.waiting
    node.log_manager.stop()
