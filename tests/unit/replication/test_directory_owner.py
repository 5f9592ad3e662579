"""A directory has one owner: work under way meets a topic that is deleted, and one made anew.

Each kind of work is stopped after each of its steps, the topic is deleted and made anew under its
name, and the work goes on: a job runs after the rename. Then, at each disk call of each job, as if
the loop had come in between. No log directory goes offline for it, and nothing of the old topic's
is done to the new one.
"""

import asyncio
from functools import partial

import pytest

from ottla.env.executor import ManualExecutor
from ottla.env.faulty_disk import FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import PartitionChange
from ottla.metadata.values import PartitionState
from ottla.pending import outcome_of
from ottla.records.builder import build_batch
from ottla.records.record import Record

NEW_ID = TopicId(b"another topic's!")
T0 = TopicPartition("t", 0)
STEPS_MAX = 300
"""More than any work below takes."""


class MeddledDisk(FaultyDisk):
    """Does something else in the middle of a job, once: at the ``nth`` call of all jobs."""

    def __init__(self, inner):
        super().__init__(inner)
        self.meddle, self.nth, self.is_in_job = None, 0, False

    def within_job(self, work):
        def job():
            self.is_in_job = True
            try:
                return work()
            finally:
                self.is_in_job = False

        return job

    def enter(self, call, path):
        if self.is_in_job and self.meddle is not None:
            self.nth -= 1
            if self.nth < 0:
                self.is_in_job = False
                meddle, self.meddle = self.meddle, None
                meddle()
                self.is_in_job = True
        return super().enter(call, path)


class Jobs(ManualExecutor):
    """Lets the disk know what is done by a job."""

    def __init__(self, disk):
        super().__init__()
        self._disk = disk

    def submit(self, work, done, **options):
        super().submit(self._disk.within_job(work), done)


def state(epoch=0):
    return PartitionState((NodeId(1),), (NodeId(1),), NodeId(1), LeaderEpoch(epoch), epoch)


def delete(node):
    old = node.partition()
    if old is None:
        return
    node.change(PartitionChange("t", old.topic_id, 0, old.state, None))


def make_anew(node):
    node.change(PartitionChange("t", NEW_ID, 0, None, state()))


def content(node):
    """All files of the partition's directory."""
    inner, found = node.disk._inner, {}
    for name in inner.list_directory("/data/t-0"):
        file = inner.open_read_only(f"/data/t-0/{name}")
        found[name] = file.read_at(0, file.size())
        file.close()
    return found


def batch(number):
    key, value = b"k%d" % (number % 2), b"%d" % number * 30
    return build_batch([Record(key=key, value=value, timestamp=1_700_000_000_000)])


def fill(node, work):
    """Six segments of one record, or much to tell of a producer; all is flushed."""
    if work is snapshot:
        records = [Record(value=b"v", timestamp=1_700_000_000_000)] * 2000
        node.append((0, build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)))
        node.executor.run_all()
    elif work is not flush_of_a_new_epoch:
        for number in range(6):
            node.append((0, batch(number)))
            node.executor.run_all()


async def flush_of_a_new_epoch(node):
    node.append((0, batch(0)))


async def retention(node):
    await node.housekeeper.deletion.delete_old_segments()


async def deletion_of_records(node):
    node.housekeeper.deletion.delete_records([(T0, 4)])


async def snapshot(node):
    node.clock.advance(100)
    await node.housekeeper.snapshot_producers()


async def compaction(node):
    await node.housekeeper.cleaner.clean()
    node.clock.advance(10)
    await node.housekeeper.cleaner.clean()  # Removes the files that it has replaced.


async def move(node):
    code = await outcome_of(node.housekeeper.relocation.move(T0, "/other"))
    assert code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "deleted meanwhile"


WORKS = [flush_of_a_new_epoch, retention, deletion_of_records, snapshot, compaction, move]


@pytest.fixture
def node_for(make_node):
    """A node with what a kind of work needs: a topic with one partition in /data."""

    def make(work):
        disk = MeddledDisk(MemoryDisk(durability=True))
        node = make_node(
            disk=disk,
            executor=Jobs(disk),
            log_dirs=("/data", "/other"),
            partitions=0,
            segment_bytes=10**6 if work is snapshot else 120,
            is_compacted=work is compaction,
            is_deleted=work is not compaction,
            min_cleanable_dirty_ratio=0.01,
            retention_ms=-1,
            retention_bytes=100 if work is retention else -1,
            file_delete_delay_ms=1000,
        )
        node.change(PartitionChange("t", TopicId(b"the first of all"), 0, None, state()))
        fill(node, work)
        return node

    return make


async def step(node):
    """Let coroutines go as far as they can, then run one job. False: there was none."""
    for _ in range(5):
        await asyncio.sleep(0)
    return node.executor.run_next()


async def to_the_end(node, task):
    """Let everything end that was begun, the removal of files after their delay included."""
    for _ in range(STEPS_MAX):
        if not await step(node) and task.done():
            break
    node.clock.advance(10)
    for _ in range(STEPS_MAX):
        await step(node)
    assert task.done(), "it never ends"
    await task


def all_is_well(node):
    directories = node.log_manager.directories.values()
    return [directory.failure for directory in directories] == [None, None]


@pytest.mark.parametrize("work", WORKS)
async def test_a_job_that_runs_after_the_rename_leaves_the_new_topic_alone(node_for, work):
    steps = 0
    is_over = False
    while not is_over and steps < STEPS_MAX:
        node = node_for(work)
        task = asyncio.ensure_future(work(node))
        for _ in range(steps):
            is_over = not await step(node) and task.done()
        await asyncio.sleep(0)
        if node.partition().log.directory == "/data/t-0":
            delete(node)
            make_anew(node)
            before = content(node)
            await to_the_end(node, task)
            assert content(node) == before, f"after {steps} steps"
        else:
            await to_the_end(node, task)
        assert all_is_well(node), f"after {steps} steps"
        node.append((0, batch(0)))
        node.executor.run_all()
        assert node.partition().log.flushed_offset == node.partition().log.log_end_offset
        steps += 1
    assert 1 < steps < STEPS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
async def test_a_topic_deleted_in_the_middle_of_a_job_takes_no_disk_with_it(node_for, work):
    nth, is_reached = 0, True
    while is_reached and nth < STEPS_MAX:
        node = node_for(work)
        node.disk.meddle, node.disk.nth = partial(delete, node), nth
        await to_the_end(node, asyncio.ensure_future(work(node)))
        is_reached = node.disk.meddle is None
        assert all_is_well(node), f"deleted before call {nth}"
        nth += 1
    assert 3 < nth < STEPS_MAX


async def test_a_cleaner_that_is_called_while_it_cleans_does_not_clean_beside_itself(node_for):
    node = node_for(compaction)
    task = asyncio.ensure_future(compaction(node))
    for _ in range(STEPS_MAX):
        await step(node)
        waiting = node.executor.waiting
        await node.housekeeper.cleaner.clean()
        assert node.executor.waiting == waiting, "no job of a second one"
        if any(".cleaned" in name for name in node.disk.list_directory("/data/t-0")):
            break
    else:
        pytest.fail("nothing was cleaned")
    await to_the_end(node, task)


async def test_a_directory_that_somebody_else_removed_is_noticed(node_for):
    """Only our own hand is above suspicion."""
    node = node_for(retention)
    task = asyncio.ensure_future(retention(node))
    partition = node.partition()
    for _ in range(STEPS_MAX):
        for _ in range(5):
            await asyncio.sleep(0)
        if any(name.endswith(".deleted") for name in node.disk.list_directory("/data/t-0")):
            break  # Renamed, and not synced yet.
        node.executor.run_next()
    for name in node.disk.list_directory("/data/t-0"):
        node.disk.remove(f"/data/t-0/{name}")
    node.disk.remove_directory("/data/t-0")
    await to_the_end(node, task)
    assert not node.log_manager.directories["/data"].is_online
    assert partition.is_failed
