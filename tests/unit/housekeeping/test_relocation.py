"""Replicas move between log directories while they serve, and a crash leaves one of the two."""

import asyncio
import errno

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import CHANGES, DiskCall, DiskKilled, FaultyDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.copies import LogCopies
from ottla.log.directories.copying import SourceUnreadable
from ottla.log.directories.manager import LogManager
from ottla.log.files.checkpoints import read_offset_checkpoint
from ottla.log.segment.full_files import FULL_SEGMENTS_OPEN_MAX
from ottla.log.segment.time_index import TimeIndex

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@pytest.fixture
def two(make_node):
    """Partition 0 lies in /a, partition 1 in /b."""

    def make(**config):
        return make_node(log_dirs=("/a", "/b"), **config)

    return make


def fill(node, words, count=20, index=0):
    for number in range(count):
        node.append((index, words.batch(b"%d" % number * 50)))
    node.executor.run_all()


async def finish(node, condition):
    for _ in range(2000):
        await asyncio.sleep(0)
        if condition():
            return
        node.executor.run_all()
    pytest.fail("it never ends")


def place(node, where=T0):
    return node.replica_manager.get(where).log.directory


async def asked(node, where, log_dir):
    """Ask for a move; return what is answered, as soon as that is known."""
    answer = node.housekeeper.relocation.move(where, log_dir)
    for _ in range(100):
        for _ in range(5):
            await asyncio.sleep(0)
        if answer.is_done:
            return answer.value
        node.executor.run_next()
    pytest.fail("nobody answers")


async def moved(node, where, log_dir):
    assert await asked(node, where, log_dir) is ErrorCode.NONE
    await finish(node, lambda: place(node, where) == f"{log_dir}/{where}")


async def test_a_partition_moves_with_all_it_has(two, words):
    node = two(segment_bytes=700)
    resent = words.batch(b"idempotent", producer_id=7, producer_epoch=0, base_sequence=0)
    node.append((0, resent))
    fill(node, words)
    node.replica_manager.get(T0).delete_records(3)
    before = node.read(0)
    end = node.partition().log.log_end_offset
    region = node.fetch((0, 3), max_wait_ms=0)[0].region
    await moved(node, T0, "/b")
    assert node.partition().log_start_offset == 3
    assert node.fetch((0, 3), max_wait_ms=0)[0].region.read() == region.read()
    assert node.read(0) == before
    answer = node.append((0, resent))
    assert words.result_of(answer)[0].base_offset == 0, "the resend is known"
    fill(node, words, 3)
    assert node.partition().log.log_end_offset == end + 3
    node.partition().log.check()
    assert not [name for name in node.disk.list_directory("/a") if name == "t-0"]
    node.log_manager.remove_deleted()
    assert not [name for name in node.disk.list_directory("/a") if "t-0" in name]
    await moved(node, T0, "/a")
    assert node.partition().high_watermark == end + 3


async def test_it_moves_under_load_and_nobody_who_waits_is_forgotten(two, words):
    node = two(segment_bytes=5000)
    fill(node, words)
    assert await asked(node, T0, "/b") is ErrorCode.NONE
    answers = []
    for _ in range(200):
        answers += [node.append((0, words.batch())) for _ in range(2)]
        await asyncio.sleep(0)
        node.executor.run_next()
        if place(node) == "/b/t-0":
            break
    assert place(node) == "/b/t-0"
    node.executor.run_all()
    for answer in answers:
        assert words.codes(answer) == [ErrorCode.NONE]
    assert node.partition().high_watermark == 20 + len(answers)


@pytest.mark.parametrize(
    ("where", "log_dir", "code"),
    [
        (T0, "/nope", ErrorCode.LOG_DIR_NOT_FOUND),
        (T0, "b", ErrorCode.LOG_DIR_NOT_FOUND),
        (T0, "/b/", ErrorCode.LOG_DIR_NOT_FOUND),
        (TopicPartition("missing", 0), "/b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T0, "/a", ErrorCode.NONE),
    ],
)
async def test_refusals_are_kafkas(two, where, log_dir, code):
    node = two()
    assert await asked(node, where, log_dir) is code
    assert node.log_manager.copying == {}


async def test_what_is_offline_does_not_move(two):
    node = two()
    node.log_manager.fail_directory("/b", OSError(5, "Input/output error"))
    assert await asked(node, T0, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert await asked(node, T1, "/a") is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_move_is_ended_by_asking_for_where_it_is(two, words):
    node = two()
    fill(node, words)
    relocation = node.housekeeper.relocation
    await asked(node, T0, "/b")
    assert [copy.log.topic_partition for copy in relocation.copies_in("/b")] == [T0]
    await asked(node, T0, "/a")
    assert relocation.copies_in("/b") == []
    await finish(node, lambda: not relocation._moves)
    node.log_manager.remove_deleted()
    assert place(node) == "/a/t-0"
    assert not [name for name in node.disk.list_directory("/b") if "t-0" in name]
    await moved(node, T0, "/b")


async def test_a_move_that_is_ended_leaves_few_files_of_its_log_open(two, words):
    node = two(segment_bytes=150)
    fill(node, words)
    log = node.partition().log
    for segment in log.segments[:-1]:
        segment.let_go_of_file()
    move = node.housekeeper.relocation
    await asked(node, T0, "/b")
    while copies := move.copies_in("/b"):
        if copies[0].end_offset >= log.segments[-2].base_offset:
            break
        await turns()
        node.executor.run_next()
    await asked(node, T0, "/a")
    await finish(node, lambda: not move._moves)
    assert place(node) == "/a/t-0"
    still = sum(segment.is_file_open for segment in log.segments[:-1])
    assert 0 < still <= FULL_SEGMENTS_OPEN_MAX


async def test_a_topic_deleted_on_the_way_leaves_nothing(two, words):
    node = two()
    fill(node, words)
    await asked(node, T0, "/b")
    node.change(node.led(0)._replace(new=None))
    await finish(node, lambda: not node.housekeeper.relocation._moves)
    node.log_manager.remove_deleted()
    for log_dir in ("/a", "/b"):
        assert not [name for name in node.disk.list_directory(log_dir) if "t-0" in name]


async def test_a_topic_made_anew_moves_while_the_copy_of_the_former_one_ends(two, words, caplog):
    """The copy of a deleted topic went on, and the new one's move was taken for it: none was."""
    node = two()
    for _ in range(4):
        node.append((0, words.batch(b"x" * 100_000)))
    node.executor.run_all()
    assert await asked(node, T0, "/b") is ErrorCode.NONE
    made = node.led(0)
    node.change(made._replace(new=None))
    node.change(made._replace(topic_id=TopicId(b"another-topic-id")))
    fill(node, words, 1)
    before = node.read(0)
    assert await asked(node, T0, "/b") is ErrorCode.NONE
    await finish(node, lambda: not node.housekeeper.relocation._moves)
    assert place(node) == "/b/t-0"
    assert node.read(0) == before
    assert not caplog.records
    assert node.log_manager.copying == {}


@pytest.mark.parametrize("number", [5, 28])
@pytest.mark.parametrize("call", sorted(CHANGES - {DiskCall.LOCK}, key=lambda call: call.value))
async def test_a_refused_call_loses_nothing(two, words, call, number):
    for nth in range(1, 40):
        node = two(segment_bytes=700)
        fill(node, words)
        before = everything(node.partition().log)
        made = node.disk.counts[call]
        node.disk.fail(call, nth=nth, errno=number)
        relocation = node.housekeeper.relocation
        answer = relocation.move(T0, "/b")
        await finish(node, lambda: answer.is_done and not relocation._moves)  # noqa: B023 - it is done by then
        struck = node.disk.counts[call] - made >= nth
        node.disk.heal()
        node.log_manager._release()  # as the end of the process does
        for disk in (node.disk._inner.crash(SeededRng(nth)), node.disk._inner):
            manager = restart(disk)
            log = manager.get(T0)
            assert log is not None, (call, nth, manager.offline)
            assert everything(log) == before, (call, nth)
            manager.stop()
        if not struck:
            return


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", [DiskCall.OPEN, DiskCall.SYNC_DIRECTORY, DiskCall.LOOK])
async def test_a_move_in_a_shortage_leaves_the_partition_in_service(two, words, call, number):
    if call is DiskCall.SYNC_DIRECTORY and number == errno.ENOMEM:
        pytest.skip("a sync that fails is no shortage")
    for nth in range(1, 60):
        node = two(segment_bytes=700)
        fill(node, words)
        made = node.disk.counts[call]
        node.disk.fail(call, nth=nth, errno=number, lasting=True)
        relocation = node.housekeeper.relocation
        answer = relocation.move(T0, "/b")
        await finish(node, lambda: answer.is_done and not relocation._moves)  # noqa: B023 - it is done by then
        struck = node.disk.counts[call] - made >= nth
        node.disk.heal()
        node.measure_space()
        node.executor.run_all()
        answer = node.append((0, words.batch(b"after")))
        node.executor.run_all()
        assert words.codes(answer) == [ErrorCode.NONE], nth
        assert all(one.is_online for one in node.log_manager.directories.values()), nth
        before = everything(node.partition().log)
        node.log_manager._release()
        manager = restart(node.disk._inner.crash(SeededRng(nth)))
        assert everything(manager.get(T0)) == before, nth
        manager.stop()
        if not struck:
            return
    pytest.fail("it takes more calls")


async def test_deleted_records_stay_deleted_through_a_move_and_a_power_cut(two, words):
    node = two()
    fill(node, words)
    node.partition().delete_records(15)
    await moved(node, T0, "/b")
    for seed in range(5):
        manager = restart(node.disk._inner.crash(SeededRng(seed)))
        assert manager.get(T0).log_start_offset == 15
        manager.stop()


async def test_a_move_that_was_ended_forgets_nothing_of_the_one_that_follows_it(two, words):
    """Its job came late, and the checkpoint beside the new log knew nothing of it any more."""
    node = two()
    fill(node, words)
    node.partition().delete_records(15)
    relocation = node.housekeeper.relocation
    asked_for = [relocation.move(T0, "/b")]
    await turns()
    jobs = node.executor._jobs
    late = jobs.popleft()
    asked_for += [relocation.move(T0, "/a"), relocation.move(T0, "/b")]
    for _ in range(50):
        await turns()
        if node.partition().is_held:
            break
        node.executor.run_next()
    jobs.appendleft(late)
    await finish(node, lambda: all(one.is_done for one in asked_for) and not relocation._moves)
    assert [one.value for one in asked_for] == [ErrorCode.NONE] * 3
    assert place(node) == "/b/t-0"
    manager = restart(node.disk._inner.crash(SeededRng(1)))
    assert manager.get(T0).log_start_offset == 15
    manager.stop()


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_appended_after_a_move_is_there_after_a_power_cut(two, words):
    node = two()
    fill(node, words)
    await moved(node, T0, "/b")
    fill(node, words, 5)
    node.log_manager.remove_deleted()
    node.disk.sync_directory("/a")
    for seed in range(20):
        manager = restart(node.disk._inner.crash(SeededRng(seed)))
        assert manager.get(T0).log_end_offset == 25
        manager.stop()


async def test_a_moved_log_has_its_recovery_point_and_nothing_of_a_former_one(two, words):
    """Without it a start would scan it all, and take the gaps of a compaction for corruption."""
    node = two()
    fill(node, words)
    manager = node.log_manager
    for name in ("recovery-point", "log-start", "replication"):
        path = f"/b/{name}-offset-checkpoint"
        manager.checkpoints.job({path: {T0: 1000, T1: 0}}).run()
    await moved(node, T0, "/b")
    for seed in range(5):
        disk = node.disk._inner.crash(SeededRng(seed))
        points = read_offset_checkpoint(disk, "/b/recovery-point-offset-checkpoint")
        assert points == {T0: 20, T1: 0}
        for name in ("log-start", "replication"):
            assert T0 not in (read_offset_checkpoint(disk, f"/b/{name}-offset-checkpoint") or {})
        manager = restart(disk)
        assert manager.offline == {}
        assert (manager.get(T0).log_start_offset, manager.get(T0).log_end_offset) == (0, 20)
        manager.stop()


async def test_a_replaced_directory_stays_while_the_disk_of_its_copy_is_away(two, words):
    node = two()
    fill(node, words)
    await moved(node, T0, "/b")
    node.log_manager._release()
    node.disk.list_directory = offline_below("/b", node.disk.list_directory)
    manager = restart(node.disk)
    manager.remove_deleted()
    assert [name for name in manager.disk.list_directory("/a") if name.startswith("t-0")]
    manager.stop()


def offline_below(path, list_directory):
    def refuse(asked):
        if asked.startswith(path):
            raise OSError(5, "Input/output error", asked)
        return list_directory(asked)

    return refuse


@pytest.mark.slow
async def test_a_power_cut_at_any_call_leaves_one_of_the_two(two, words):
    nth = 0
    while True:
        nth += 1
        node = two(segment_bytes=700)
        fill(node, words)
        before = everything(node.partition().log)
        relocation = node.housekeeper.relocation
        node.disk.kill_at(nth)
        relocation_ended = False
        try:
            answer = relocation.move(T0, "/b")
            for _ in range(300):
                await asyncio.sleep(0)
                node.executor.run_all()
                if answer.is_done and not relocation._moves:
                    relocation_ended = True
                    break
        except DiskKilled:
            pass
        for seed in range(3):
            manager = restart(node.disk._inner.crash(SeededRng(nth * 3 + seed)))
            assert manager.offline == {}, nth
            log = manager.get(T0)
            assert log is not None, nth
            assert everything(log) == before, nth
            manager.remove_deleted()
            names = [*manager.disk.list_directory("/a"), *manager.disk.list_directory("/b")]
            assert [name for name in names if "t-0" in name] == ["t-0"], nth
            manager.stop()
        if relocation_ended and not node.disk.killed:
            break
    assert nth > 20


def restart(disk):
    manager = LogManager(
        disk=FaultyDisk(disk),
        clock=ManualClock(),
        rng=SeededRng(2),
        log_dirs=["/a", "/b"],
        cluster_id="cluster",
        node_id=1,
        config_for=lambda topic: LogConfig(segment_bytes=700),
    )
    manager.start()
    return manager


def everything(log):
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(
            offset, max_bytes=1 << 20, upper_offset=log.log_end_offset, min_one_message=True
        )
        piece = found.region.read()
        data += piece
        offset = log.log_end_offset if not piece else _next(piece)
    return data


def _next(piece):
    from ottla.records.decode import decode_batches

    return list(decode_batches(piece, 1 << 26))[-1].header.next_offset


async def test_a_time_index_whose_entries_the_disk_refused_is_not_copied(two, words, monkeypatch):
    """The copy's was trusted though it ended too early: a look-up by time began too late."""
    node = two(index_interval_bytes=100)
    fill(node, words, 12)  # All of one timestamp.
    write = TimeIndex.write

    def refuse(index, *, sync=False):
        if index.path.startswith("/a"):
            raise OSError(errno.ENOSPC, "full")
        write(index, sync=sync)

    monkeypatch.setattr(TimeIndex, "write", refuse)
    await moved(node, T0, "/b")
    segment = node.partition().log.segments.active
    assert segment.first_batch_reaching(1_700_000_000_000, 0).base_offset == 0
    node.partition().log.check(are_indexes_sure=False)


@pytest.mark.parametrize("is_swapping", [False, True])
def test_an_index_is_not_copied_by_a_name_that_is_another_segments(two, words, is_swapping):
    """Amid a swap it is that of the segment before it was compacted."""
    node = two(segment_bytes=500, index_interval_bytes=100)
    fill(node, words)
    log = node.partition().log
    assert log.segment_count > 1
    copies = LogCopies(node.log_manager, node.clock)
    job = copies.begin_job(log, "/b" if log.log_dir == "/a" else "/a")
    job.run()
    copy = copies.begun(job)
    log.is_swapping = is_swapping
    copy.next_step().run()
    log.is_swapping = False
    names = node.disk.list_directory(copy.directory)
    assert any(name.endswith("index") for name in names) is not is_swapping


def refuse_to_open(node, monkeypatch, directory):
    opened = node.disk.open

    def refuse(path, *, create=False):
        if path.startswith(directory):
            raise OSError(errno.EIO, "Input/output error", path)
        return opened(path, create=create)

    monkeypatch.setattr(node.disk, "open", refuse)


async def test_a_source_that_cannot_be_opened_leaves_the_target_in_service(two, words, monkeypatch):
    """Who saved replicas from a failing disk lost the good one, too, with all that lies there."""
    node = two(segment_bytes=700)
    fill(node, words)
    for segment in node.partition().log.segments[:-1]:
        segment.let_go_of_file()
    refuse_to_open(node, monkeypatch, "/a/t-0/")
    assert await asked(node, T0, "/b") is ErrorCode.NONE
    await finish(node, lambda: not node.housekeeper.relocation._moves)
    assert node.log_manager.directories["/b"].is_online
    assert place(node) == "/a/t-0"


def test_a_source_that_cannot_be_opened_at_the_end_is_told_from_the_target(two, words, monkeypatch):
    node = two(segment_bytes=700)
    fill(node, words)
    copies = LogCopies(node.log_manager, node.clock)
    job = copies.begin_job(node.partition().log, "/b")
    job.run()
    copy = copies.begun(job)
    for segment in node.partition().log.segments[:-1]:
        segment.let_go_of_file()
    refuse_to_open(node, monkeypatch, "/a/t-0/")
    with pytest.raises(SourceUnreadable):
        copy.complete()
