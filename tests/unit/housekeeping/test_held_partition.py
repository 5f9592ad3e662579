"""While a copy takes the place of its log, in an executor, the partition is held: others wait.

Nobody is refused, nothing is lost, and no call of the disk is the loop's.
"""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import AppendOrigin, analyse
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.metadata.image import MetadataDelta
from ottla.pending import Pending
from ottla.replication.fetch import Isolation
from ottla.replication.offset_lookup import find_by_time
from ottla.sliced import at_once
from tests.loop_disk import LoopDisk, LoopDiskJobs

T0 = TopicPartition("t", 0)
ANOTHER = TopicId(b"another-topic-id")


def changed(*changes):
    return MetadataDelta(revision=1, partitions=changes)


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def until(node, condition):
    for _ in range(500):
        await turns()
        if condition():
            return
        assert node.executor.run_next(), "it never comes"
    pytest.fail("it never comes")


@pytest.fixture
def held(make_node, words):
    """A partition with ten records, held: the next job moves it from /a to /b."""

    async def make(**config):
        node = make_node(log_dirs=("/a", "/b"), **config)
        for _ in range(10):
            node.append((0, words.batch()))
            node.executor.run_all()
        node.housekeeper.relocation.move(T0, "/b")
        await until(node, lambda: node.partition().is_held)
        return node

    return make


async def test_an_append_waits_for_the_end_of_a_move_and_is_acknowledged(held, words):
    node = await held()
    answers = [node.append((0, words.batch())), node.append((1, words.batch()), (0, words.batch()))]
    await turns()
    assert not any(answer.is_done for answer in answers)
    assert node.replica_manager.request_memory.used_bytes > 0
    await until(node, lambda: all(answer.is_done for answer in answers))
    assert [words.codes(answer) for answer in answers] == [
        [ErrorCode.NONE],
        [ErrorCode.NONE, ErrorCode.NONE],
    ]
    assert node.partition().log.directory == "/b/t-0"
    assert node.partition().high_watermark == 12
    assert node.replica_manager.request_memory.used_bytes == 0


async def test_what_coordinators_append_meanwhile_keeps_its_order(held, words):
    node = await held()
    appends = node.replica_manager.appends
    answers = []
    for _ in range(3):
        records = memoryview(bytearray(words.batch()))
        analysis = analyse(records, LogConfig(), 0, AppendOrigin.COORDINATOR)
        answers.append(appends.one(T0, analysis, acks=-1, timeout_ms=1000))
    await until(node, lambda: all(answer.is_done for answer in answers))
    assert [words.result_of(answer)[0].base_offset for answer in answers] == [10, 11, 12]


async def test_a_fetch_finds_nothing_for_the_moment_and_is_woken_at_the_end(held, words):
    node = await held()
    (found,) = node.fetch((0, 0), max_wait_ms=0)
    assert (found.code, found.region, found.high_watermark) == (ErrorCode.NONE, None, 10)
    waiting = node.fetch((0, 0), max_wait_ms=60_000)
    assert isinstance(waiting, Pending)
    assert not waiting.is_done
    await until(node, lambda: waiting.is_done)
    (found,) = words.result_of(waiting)
    assert found.region.read()
    assert node.partition().log.directory == "/b/t-0"


async def test_a_look_up_by_time_waits(held):
    node = await held()
    steps = find_by_time(node.partition(), 0, Isolation.READ_UNCOMMITTED, lambda batch: None)
    released = next(steps)
    assert not released.is_done
    await until(node, lambda: released.is_done)
    assert at_once(steps).offset == 0


async def test_records_deleted_meanwhile_stay_deleted(held):
    node = await held()
    deleted = node.housekeeper.deletion.delete_records([(T0, 7)])
    await turns()
    await until(node, lambda: deleted.is_done and not node.partition().is_held)
    assert deleted.value == [7]
    assert node.partition().log.directory == "/b/t-0"
    assert node.partition().log_start_offset == 7


async def test_records_deleted_while_the_target_is_offline_do_not_come_back_with_the_copy(held):
    """The checkpoint beside the copy could not be told of them, and yet it took its log's place."""
    node = await held()
    node.log_manager.fail_directory("/b", OSError(5, "Input/output error"))
    deleted = node.housekeeper.deletion.delete_records([(T0, 7)])
    await turns()
    node.executor._jobs.rotate(1)  # Whatever is to be written comes before the copy's names.
    await until(node, lambda: deleted.is_done)
    (outcome,) = deleted.value
    start = 0 if isinstance(outcome, KafkaError) else outcome
    await until(node, lambda: not node.partition().is_held)
    node.log_manager._release()
    manager = restart(node.disk._inner)
    assert manager.get(T0).log_start_offset >= start
    manager.stop()


async def test_a_partition_is_held_only_when_the_copy_knows_where_it_starts(make_node, words):
    """Its directory took the checkpoint, then records were deleted, before it was held."""
    node = make_node(log_dirs=("/a", "/b"))
    for _ in range(10):
        node.append((0, words.batch()))
        node.executor.run_all()
    node.housekeeper.relocation.move(T0, "/b")
    node.housekeeper.relocation._is_start_known = _never
    for _ in range(30):
        await turns()
        node.executor.run_next()
        node.clock.advance(0.1)
        assert not node.partition().is_held
    del node.housekeeper.relocation._is_start_known
    node.partition().delete_records(5)
    for _ in range(30):
        await turns()
        node.clock.advance(0.1)
        if node.partition().is_held:
            break
        node.executor.run_next()
    assert node.partition().is_held
    says = node.log_manager.checkpoints.says("/b/log-start-offset-checkpoint")
    assert says[T0] == 5


def _never(move):
    return False


def restart(disk):
    manager = LogManager(
        disk=FaultyDisk(disk),
        clock=ManualClock(),
        rng=SeededRng(2),
        log_dirs=["/a", "/b"],
        cluster_id="cluster",
        node_id=1,
        config_for=lambda topic: LogConfig(),
    )
    manager.start()
    return manager


async def test_a_topic_deleted_meanwhile_is_gone_from_both_directories(held):
    node = await held()
    made = node.led(0)
    node.replica_manager.apply(None, changed(made._replace(new=None)))
    node.replica_manager.apply(None, changed(made._replace(topic_id=ANOTHER)))
    done = node.replica_manager.hosting.done("t")
    await until(node, lambda: done.is_done)
    node.log_manager.remove_deleted()
    places = [log_dir for log_dir in ("/a", "/b") if node.disk.exists(f"{log_dir}/t-0")]
    assert len(places) == 1, "the new topic's"
    assert node.partition().log.log_end_offset == 0


async def test_settings_that_change_meanwhile_hold_for_the_copy(held):
    node = await held()
    node.settings = node.settings._replace(log=LogConfig(retention_ms=5))
    node.partition().configure(node.settings)
    await until(node, lambda: not node.partition().is_held)
    assert node.partition().log.config.retention_ms == 5


async def test_a_move_to_where_it_was_that_is_asked_for_meanwhile_goes_back(held):
    node = await held()
    back = node.housekeeper.relocation.move(T0, "/a")
    await until(node, lambda: back.is_done)
    assert back.value is ErrorCode.NONE
    await until(node, lambda: node.partition().log.directory == "/a/t-0")


async def test_a_stop_ends_the_move_that_waits_for_another(held):
    """It began behind the stop, which waited until all of the log was copied."""
    node = await held()
    relocation = node.housekeeper.relocation
    back = relocation.move(T0, "/a")
    await turns()
    stop = asyncio.ensure_future(relocation.settle())
    await until(node, stop.done)
    assert back.value is ErrorCode.REQUEST_TIMED_OUT
    assert node.partition().log.directory == "/b/t-0"
    assert relocation.move(T0, "/a").value is ErrorCode.REQUEST_TIMED_OUT
    assert not node.executor.run_next()


@pytest.mark.parametrize("log_dir", ["/a", "/b"])
async def test_a_directory_that_fails_meanwhile_takes_the_partition_with_it(held, words, log_dir):
    node = await held()
    answer = node.append((0, words.batch()))
    node.log_manager.fail_directory(log_dir, OSError(5, "Input/output error"))
    await until(node, lambda: answer.is_done)
    assert words.codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert node.partition().is_failed
    assert not node.partition().is_held


async def test_a_directory_that_fills_up_meanwhile_refuses_what_waits(held, words):
    node = await held()
    answer = node.append((0, words.batch()))
    node.log_manager.fill(node.log_manager.directories["/b"])
    await until(node, lambda: answer.is_done)
    assert words.codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not node.partition().is_failed


async def test_a_segment_that_is_being_swapped_keeps_the_partition_from_being_held(
    make_node, words
):
    node = make_node(log_dirs=("/a", "/b"))
    node.append((0, words.batch()))
    node.executor.run_all()
    log = node.partition().log
    log.is_swapping = True
    answer = node.housekeeper.relocation.move(T0, "/b")
    for _ in range(50):
        await turns()
        node.executor.run_all()
        node.clock.advance(0.1)
    assert answer.value is ErrorCode.NONE
    assert not node.partition().is_held
    log.is_swapping = False
    node.clock.advance(0.1)
    await until(node, lambda: node.partition().log.directory == "/b/t-0")


async def test_a_move_asks_nothing_of_the_disk_on_the_loop(make_node, words):
    disk = LoopDisk(MemoryDisk(durability=True))
    node = make_node(
        disk=disk, executor=LoopDiskJobs(disk), log_dirs=("/a", "/b"), segment_bytes=300
    )
    for _ in range(10):
        node.append((0, words.batch()))
        node.executor.run_all()
    node.log_manager.checkpoints.job({"/b/recovery-point-offset-checkpoint": {T0: 3}}).run()
    disk.by_loop.clear()
    answer = node.housekeeper.relocation.move(T0, "/b")
    await until(node, lambda: node.partition().log.directory == "/b/t-0")
    assert answer.value is ErrorCode.NONE
    assert disk.by_loop == []
