"""What was aborted stays so when a replica moves, whatever a disk refused before or meanwhile."""

import asyncio
import errno

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.aborted import aborted_below
from ottla.log.append import own
from ottla.log.directories.copying import CopyStep
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker

T0 = TopicPartition("t", 0)


@pytest.fixture
def node(make_node):
    return make_node(log_dirs=("/a", "/b"))


def abort(node, words, producer_id, count=1):
    for number in range(count):
        records = words.batch(
            b"never",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        )
        node.append((0, records))
        marker = build_end_transaction_marker(
            EndTransactionMarker(ControlType.ABORT, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=1_700_000_000_000,
        )
        node.replica_manager.appends.many([(T0, own(memoryview(marker)))], acks=-1, timeout_ms=1)
        node.executor.run_all()


async def move(node):
    """Let the move end, in whichever directory the partition is then."""
    relocation = node.housekeeper.relocation
    answer = relocation.move(T0, "/b")
    for _ in range(200):
        await asyncio.sleep(0)
        node.executor.run_all()
    assert answer.value is ErrorCode.NONE
    return node.partition().log.directory


def aborted(node):
    log = node.partition().log
    return [(one.producer_id, one.first_offset) for one in aborted_below(log, log.log_end_offset)()]


@pytest.fixture
def refuse_opening(node, monkeypatch):
    """Let no file of the aborts in one log directory be opened, as without descriptors."""

    def refuse(log_dir):
        for name in ("open", "open_read_only"):
            opened = getattr(node.disk, name)

            def open_or_refuse(path, *, opened=opened, **options):
                if path.startswith(log_dir) and path.endswith(".txnindex"):
                    raise OSError(errno.EMFILE, "Too many open files", path)
                return opened(path, **options)

            monkeypatch.setattr(node.disk, name, open_or_refuse)

    yield refuse
    monkeypatch.undo()


@pytest.mark.parametrize("is_full", [False, True])
async def test_an_abort_that_the_disk_refused_to_write_moves_with_its_log(
    node, words, refuse_opening, monkeypatch, is_full
):
    refuse_opening("/a")
    abort(node, words, 7, count=2)
    monkeypatch.undo()
    if is_full:
        node.append((0, words.batch()))
        node.partition().log.roll()
        node.executor.run_all()
    before = aborted(node)
    assert [producer_id for producer_id, _ in before] == [7, 7]
    assert await move(node) == "/b/t-0"
    assert aborted(node) == before


async def test_a_move_that_cannot_read_what_was_aborted_has_no_effect(
    node, words, refuse_opening, monkeypatch
):
    abort(node, words, 7, count=3)
    before = aborted(node)
    node.partition().log.segments.active.transaction_index.let_go()
    refuse_opening("/a")
    assert await move(node) == "/a/t-0"
    monkeypatch.undo()
    assert aborted(node) == before


async def copied_amid(node, words, monkeypatch, meanwhile):
    """Move; do ``meanwhile`` when a full segment's aborts are about to be read for the copy."""
    node.append((0, words.batch()))
    node.executor.run_all()
    node.partition().log.roll()
    node.partition().flush()
    node.executor.run_all()
    log = node.partition().log
    for segment in log.segments:
        segment.let_go_of_file()
    copy_aborts, began = CopyStep._copy_aborts, []

    def begin(step):
        if not began:
            began.append(step)
            meanwhile(log)
        copy_aborts(step)

    monkeypatch.setattr(CopyStep, "_copy_aborts", begin)
    place = await move(node)
    (step,) = began
    return place, step.segment, log


async def test_a_copy_opens_no_file_of_a_segment_that_goes_meanwhile(node, words, monkeypatch):
    """Nobody was left to close it: it stayed open, beside the log, until the process ended."""
    abort(node, words, 7)

    def replace(log):
        index = log.segments[0].transaction_index
        index.sync()
        log.segments.note_read(log.segments[0])
        node.disk.rename(index.path, index.path + ".swapped")
        node.disk.open(index.path, create=True)  # Another segment's has the name.
        log.segments.drop_oldest()

    _, segment, log = await copied_amid(node, words, monkeypatch, replace)
    assert segment.transaction_index._file is None
    assert segment not in log.segments._full_files._segments


async def test_a_segment_that_goes_while_its_aborts_are_copied_does_not_end_the_move(
    node, words, monkeypatch
):
    abort(node, words, 7)

    def drop(log):
        raise_start_offset(log, log.segments[1].base_offset)
        assert drop_segments_below(log, node.disk, log.log_start_offset, 1)

    place, _, _ = await copied_amid(node, words, monkeypatch, drop)
    assert place == "/b/t-0"
    assert node.partition().log_start_offset == node.partition().log.segments[0].base_offset
