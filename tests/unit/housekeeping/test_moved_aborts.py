"""What was aborted stays so when a replica moves, whatever a disk refused before or meanwhile."""

import asyncio
import errno

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.aborted import aborted_below
from ottla.log.append import own
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
    assert relocation.move(T0, "/b") is ErrorCode.NONE
    for _ in range(200):
        await asyncio.sleep(0)
        node.executor.run_all()
    return node.partition().log.directory


def aborted(node):
    log = node.partition().log
    return [(one.producer_id, one.first_offset) for one in aborted_below(log, log.log_end_offset)]


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
