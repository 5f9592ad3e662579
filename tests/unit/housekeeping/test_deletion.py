"""DeleteRecords and retention over a replica manager: what is hidden, durable, gone, and when."""

import asyncio

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.files.checkpoints import read_offset_checkpoint
from ottla.log.upkeep.front import expired_to
from tests.loop_disk import LoopDisk, LoopDiskJobs

LOG_START = "/data/log-start-offset-checkpoint"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def small(make_node, words):
    """A node whose partition 0 has six segments of one record; what was begun is done."""

    def make(**config):
        node = make_node(**({"segment_bytes": 100} | config))
        for _ in range(6):
            node.append((0, words.batch()))
            node.executor.run_all()
        return node

    return make


async def finish(node, pending=None):
    """Let coroutines and the executor take turns until nothing moves."""
    for _ in range(50):
        await asyncio.sleep(0)
        node.executor.run_all()
    if pending is not None:
        assert pending.is_done
        return pending.value
    return None


async def delete(node, *wanted):
    outcomes = await finish(node, node.housekeeper.deletion.delete_records(list(wanted)))
    return [one.code if isinstance(one, KafkaError) else one for one in outcomes]


def logs(node):
    return [name for name in node.disk.list_directory("/data/t-0") if ".log" in name]


async def test_records_below_the_offset_are_gone_and_earliest_follows(small):
    node = small()
    assert await delete(node, (T0, 4)) == [4]
    assert node.partition().log_start_offset == 4
    assert node.fetch((0, 3), max_wait_ms=0)[0].code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert node.fetch((0, 4), max_wait_ms=0)[0].code is ErrorCode.NONE
    assert node.partition().log.segment_count == 2


async def test_answers_as_a_live_kafka_gives_them(small):
    node = small()
    out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
    assert await delete(node, (T0, 3)) == [3]
    assert await delete(node, (T0, 2)) == [3], "nothing comes back, and it is no error"
    assert await delete(node, (T0, 7)) == [out_of_range]
    assert await delete(node, (T0, -2)) == [out_of_range]
    assert await delete(node, (T0, -1)) == [6]
    assert await delete(node, (T0, -1), (T1, -1), (T1, 1)) == [6, 0, out_of_range]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await delete(node, (TopicPartition("t", 9), 0), (T1, 0)) == [unknown, 0]


@pytest.mark.parametrize(
    ("is_compacted", "is_deleted", "expected"),
    [
        (True, False, ErrorCode.POLICY_VIOLATION),
        (True, True, 0),
        (False, False, 0),
        (False, True, 0),
    ],
)
async def test_the_cleanup_policy_has_its_say(make_node, is_compacted, is_deleted, expected):
    node = make_node(is_compacted=is_compacted, is_deleted=is_deleted)
    assert await delete(node, (T0, 0)) == [expected]


async def test_what_is_not_committed_cannot_be_deleted(make_node, words):
    node = make_node()
    node.append((0, words.batch()))  # Its flush has not run.
    pending = node.housekeeper.deletion.delete_records([(T0, 1)])
    await asyncio.sleep(0)
    assert (await finish(node, pending))[0].code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_answer_means_that_it_survives_a_power_cut(small):
    node = small()
    assert await delete(node, (T0, 5)) == [5]
    survivor = node.disk._inner.crash(SeededRng(0))
    assert read_offset_checkpoint(survivor, LOG_START) == {T0: 5}


async def test_records_that_were_only_in_the_page_cache_are_flushed_before_they_go(
    make_node, words
):
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    node.append((0, words.batch()))
    assert node.partition().log.flushed_offset == 0
    assert await delete(node, (T0, -1)) == [1]
    assert node.partition().log.flushed_offset == 1
    assert read_offset_checkpoint(node.disk, LOG_START) == {T0: 1}


async def test_no_file_goes_before_the_checkpoint_is_durable(small):
    node = small()
    pending = node.housekeeper.deletion.delete_records([(T0, 4)])
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(logs(node)) == 6, "the checkpoint is still in the executor"
    assert not pending.is_done
    await finish(node, pending)
    assert len([name for name in logs(node) if name.endswith(".log")]) == 2


async def test_a_later_request_does_not_take_files_on_an_earlier_checkpoint(small):
    node = small()
    first = node.housekeeper.deletion.delete_records([(T0, 2)])
    for _ in range(5):
        await asyncio.sleep(0)
    second = node.housekeeper.deletion.delete_records([(T0, 5)])
    for _ in range(5):
        await asyncio.sleep(0)
    node.executor.run_next()  # The checkpoint of the first.
    for _ in range(5):
        await asyncio.sleep(0)
    assert read_offset_checkpoint(node.disk, LOG_START) == {T0: 2}
    assert len([name for name in logs(node) if name.endswith(".log")]) == 4
    assert await finish(node, first) == [5], "the low watermark as it is now"
    assert await finish(node, second) == [5]


async def test_a_checkpoint_that_cannot_be_written_is_answered_with_an_error(small):
    node = small()
    node.disk.fail(DiskCall.RENAME, errno=28, lasting=True)
    assert await delete(node, (T0, 4)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert len(logs(node)) == 6
    node.disk.heal()
    assert await delete(node, (T0, 4)) == [4]


async def test_a_directory_that_goes_offline_meanwhile_is_answered_with_an_error(small):
    node = small()
    saving = asyncio.ensure_future(node.housekeeper.deletion.checkpoint())
    await asyncio.sleep(0)
    pending = node.housekeeper.deletion.delete_records([(T0, 4)])
    await asyncio.sleep(0)
    node.disk.fail(DiskCall.SYNC)  # Of the checkpoint under way: the next one leaves it out.
    (outcome,) = await finish(node, pending)
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.partition().is_failed
    await asyncio.gather(saving, return_exceptions=True)


async def test_files_are_removed_after_their_delay(small):
    node = small(file_delete_delay_ms=5000)
    await delete(node, (T0, 4))
    assert len([name for name in logs(node) if name.endswith(".deleted")]) == 4
    node.clock.advance(4.9)
    await finish(node)
    assert len(logs(node)) == 6
    node.clock.advance(0.2)
    await finish(node)
    assert len(logs(node)) == 2


async def test_retention_takes_every_partition_in_its_turn(small, words):
    node = small(retention_bytes=150)
    for _ in range(4):
        node.append((1, words.batch()))
        node.executor.run_all()
    task = asyncio.ensure_future(node.housekeeper.deletion.delete_old_segments())
    await finish(node)
    await task
    size_bytes = len(words.batch())
    kept = -(-150 // size_bytes)
    assert node.partition(0).log_start_offset == 6 - kept
    assert node.partition(1).log_start_offset == 4 - kept
    assert node.partition(0).log.segment_count == kept
    assert read_offset_checkpoint(node.disk, LOG_START) == {T0: 6 - kept, T1: 4 - kept}


async def test_a_log_of_which_all_is_expired_is_synced_beside_the_loop(make_node, words):
    """Its roll was flushed by the loop, which waited for the disk as long as that took."""
    disk = LoopDisk(MemoryDisk(durability=True))
    node = make_node(disk=disk, executor=LoopDiskJobs(disk), retention_ms=10, flush_messages=1)
    node.append((0, words.batch(producer_id=7, producer_epoch=0, base_sequence=0)))
    node.executor.run_all()
    node.clock.advance(60)
    disk.by_loop.clear()
    sweep = asyncio.ensure_future(node.housekeeper.deletion.delete_old_segments())
    for _ in range(5):
        await asyncio.sleep(0)
    assert node.partition().log_start_offset == 0, "the snapshot of producers is not durable yet"
    await finish(node)
    assert sweep.done()
    assert node.partition().log_start_offset == 1
    assert node.partition().log.segment_count == 1
    syncs = {DiskCall.SYNC, DiskCall.SYNC_DIRECTORY}
    assert [path for call, path in disk.by_loop if call in syncs] == []


async def test_retention_looks_at_one_cold_segment_per_turn_and_once(make_node, words):
    """The loop stood while several segments of several logs were looked at, each of them twice."""
    disk = LoopDisk(MemoryDisk(durability=True))
    node = make_node(disk=disk, executor=LoopDiskJobs(disk), segment_bytes=150, flush_messages=1)
    node.log_manager.checkpoint_job().run()
    for index in (0, 1):
        for _ in range(12):
            node.append((index, words.batch()))
            node.executor.run_all()
    full = [segment for index in (0, 1) for segment in node.partition(index).log.segments[:-1]]
    assert len(full) >= 10
    for segment in full:
        segment.let_go()
        segment.latest = None
    node.clock.advance(60)
    for index in (0, 1):
        log = node.partition(index).log
        log.config = log.config._replace(retention_ms=10)
    disk.by_loop.clear()
    sweep = asyncio.ensure_future(node.housekeeper.deletion.delete_old_segments())
    most = 0
    while not sweep.done():
        before = len(disk.by_loop)
        await asyncio.sleep(0)
        now = disk.by_loop[before:]
        most = max(most, sum(call is not DiskCall.RENAME for call, _ in now))
        node.executor.run_all()
    assert 0 < most <= 32
    paths = [segment.path_of(".timeindex") for segment in full]
    opened = [path for call, path in disk.by_loop if call is DiskCall.OPEN and path in paths]
    assert sorted(opened) == sorted(paths), "once each"
    assert not any(segment.is_file_open for segment in full)
    assert all(node.partition(index).log.segment_count == 1 for index in (0, 1))


async def test_retention_takes_nothing_that_was_replaced_while_it_looked(make_node, words):
    node = make_node(segment_bytes=150, flush_messages=1)
    for _ in range(12):
        node.append((0, words.batch()))
        node.executor.run_all()
    log = node.partition().log
    log.config = log.config._replace(retention_ms=10)
    for segment in log.segments[:-1]:
        segment.latest = None
    node.clock.advance(60)
    looking = expired_to(log, 12, node.clock.wall_ms())
    next(looking)
    next(looking)
    log.segments.drop_oldest()
    assert list(looking) == []
    for change in (
        lambda: setattr(log, "is_swapping", True),
        lambda: setattr(log, "config", log.config._replace(retention_ms=10**12)),
        log.abandon,
    ):
        for segment in log.segments[:-1]:
            segment.latest = None
        looking = expired_to(log, 12, node.clock.wall_ms())
        next(looking)
        change()
        with pytest.raises(StopIteration) as end:
            next(looking)
        assert end.value.value == 0
        log.is_swapping = False


async def test_a_log_whose_roll_cannot_be_flushed_keeps_its_records(make_node, words, caplog):
    node = make_node(retention_ms=10)
    for index in (0, 1):
        node.append((index, words.batch()))
    node.executor.run_all()
    node.clock.advance(60)
    sweep = asyncio.ensure_future(node.housekeeper.deletion.delete_old_segments())
    for _ in range(5):
        await asyncio.sleep(0)
    node.log_manager.logs[T0].take_out(OSError(5, "Input/output error"))
    await finish(node)
    assert sweep.done()
    assert sweep.exception() is None
    assert (node.partition().log_start_offset, node.partition(1).log_start_offset) == (0, 1)
    assert "retention of t-0" in caplog.text


async def test_retention_with_nothing_to_do_touches_no_disk(small):
    node = small(retention_ms=-1)
    before = dict(node.disk.counts)
    await node.housekeeper.deletion.delete_old_segments()
    assert dict(node.disk.counts) == before


async def test_a_topic_deleted_meanwhile_is_left_alone(small, caplog):
    node = small()
    pending = node.housekeeper.deletion.delete_records([(T0, 4)])
    await asyncio.sleep(0)
    node.change(node.led(0)._replace(old=node.partition().state, new=None))
    assert await finish(node, pending) == [4]
    assert not caplog.records


async def test_a_stop_waits_for_what_is_under_way_and_leaves_removals_to_the_next_start(small):
    node = small()
    pending = node.housekeeper.deletion.delete_records([(T0, 4)])
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(node.housekeeper.settle())
    await asyncio.sleep(0)
    assert not stopping.done()
    await finish(node, pending)
    await stopping
    node.clock.advance(3600.0)
    assert node.executor.waiting == 0
