"""Every disk call of a node's life refused once: nothing acknowledged is lost, nothing invented.

One life goes through all write paths of a log directory: start, create, append, roll, indexes,
snapshots, epochs, flush, checkpoint, DeleteRecords, retention, delete, clean stop, and the start
after it. One call of it, the n-th of its kind, is refused with "no space" or an I/O error.
"""

import errno
from contextlib import suppress
from functools import partial

import pytest

from ottla.env.clock import ManualClock
from ottla.env.executor import ManualExecutor
from ottla.env.faulty_disk import CHANGES, DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.log.directories.space import SpaceLimits
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from tests.retention import retained_from
from tests.syncs import told_each

pytestmark = pytest.mark.slow

TOPIC_ID = TopicId(b"0123456789abcdef")
NOW = 1_700_000_000_000
TPS = [TopicPartition("t", number) for number in range(3)]
KEPT, SHORTENED, DELETED = TPS
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_bytes=1500)
MIB = 1 << 20


class Life:
    """A node's, as a producer and an operator see it."""

    def __init__(self, disk, make_batch):
        self.disk = disk
        self.make_batch = make_batch
        self.clock = ManualClock()
        self.sent = {where: [] for where in TPS}
        """(offset, timestamp) of every record that was taken."""
        self.acknowledged = dict.fromkeys(TPS, 0)
        self.starts = dict.fromkeys(TPS, 0)
        """Log start offsets that were acknowledged."""
        self.is_deleted = False
        self.codes = set()
        self.step = 0

    def manager(self):
        return LogManager(
            disk=self.disk,
            clock=self.clock,
            rng=SeededRng(7),
            log_dirs=["/d/logs"],
            cluster_id="c",
            node_id=1,
            config_for=lambda topic: CONFIG,
            space=SpaceLimits(reserve_bytes=MIB),
        )

    def live(self):
        self.node = self.manager()
        self.node.start()
        for round_number in range(4):
            for where in TPS:
                if where == DELETED and round_number > 1:
                    continue
                with self.refusals():
                    self.node.create(where, TOPIC_ID)
                for _ in range(6):
                    self.append(where, epoch=round_number // 2)
                self.flush(where)
            self.flush_together(epoch=round_number // 2)
            self.checkpoint()
            self.delete_records(SHORTENED)
            self.retain(KEPT)
            self.measure()
            if round_number == 1:
                self.delete()
        self.node.remove_deleted()
        taken = len(self.sent[KEPT])
        for _ in range(2):  # the one call may be refused just now
            self.append(KEPT, epoch=1)
            self.measure()
        self.is_back = len(self.sent[KEPT]) > taken
        self.node.stop()

    def refusals(self):
        return _Refusals(self.codes)

    def append(self, where, epoch):
        self.step += 1
        log = self.node.get(where)
        if log is None:
            return
        with self.refusals():
            timestamp = NOW + self.step
            found = log.append(
                self.make_batch(2, timestamp=timestamp, producer_id=5 + where.partition,
                                producer_epoch=0, base_sequence=len(self.sent[where])),
                leader_epoch=epoch,
            )  # fmt: skip
            self.sent[where] += [(found.base_offset + n, timestamp + n) for n in range(2)]

    def flush(self, where):
        log = self.node.get(where)
        if log is not None:
            with self.refusals():
                log.flush()
                self.acknowledged[where] = log.flushed_offset

    def flush_together(self, epoch):
        """As a request over many partitions does it."""
        executor = ManualExecutor()
        executor.hold_syncs()
        for where in TPS:
            self.append(where, epoch)
            log = self.node.get(where)
            with self.refusals():
                job = None if log is None else log.begin_flush()
            if job is not None:
                job.submit(executor, told_each(partial(self.end_flush, where, log)))
        executor.release_syncs()
        executor.run_all()

    def end_flush(self, where, log, job, error):
        log.finish_flush(job, error)
        if error is None:
            self.acknowledged[where] = log.flushed_offset

    def checkpoint(self):
        job = self.node.checkpoint_job()
        job.run()
        self.node.checkpointed(job)
        return not job.failures

    def delete_records(self, where):
        log = self.node.get(where)
        if log is None or not log.is_in_service:
            return
        offset = log.flushed_offset - 3
        raise_start_offset(log, offset)
        if self.checkpoint():
            self.starts[where] = max(log.log_start_offset, self.starts[where])
            self.drop(log)

    def retain(self, where):
        log = self.node.get(where)
        if log is None:
            return
        with self.refusals():
            raise_start_offset(log, retained_from(log, log.flushed_offset, NOW))
            if self.checkpoint():
                self.starts[where] = log.log_start_offset
                self.drop(log)

    def drop(self, log):
        with self.refusals():
            paths = drop_segments_below(log, self.disk, self.starts[log.topic_partition], 100)
            try:
                self.disk.sync_directory(log.directory)
                for path in paths:
                    self.disk.remove(path)
            except OSError as error:
                log.report(error)

    def delete(self):
        try:
            self.is_deleted = True if self.node.get(DELETED) is not None else None
            self.node.delete(DELETED)
        except KafkaError as error:
            self.codes.add(error.code)
            self.is_deleted = None  # who knows

    def measure(self):
        self.node.space_measured(self.node.measure_space())

    def check(self):
        for log in self.node.logs.values():
            if log.is_in_service:
                log.check()


class _Refusals(suppress):
    """Notes the code of a refused request."""

    def __init__(self, codes):
        super().__init__(KafkaError)
        self.codes = codes

    def __exit__(self, kind, error, traceback):
        if isinstance(error, KafkaError):
            self.codes.add(error.code)
        return super().__exit__(kind, error, traceback)


def judge(life, disk, read_all, context, *, is_whole):
    """Start on ``disk`` and compare. ``is_whole``: all that was taken has to be there."""
    again = Life(disk, life.make_batch)
    manager = again.manager()
    manager.start()
    assert manager.offline == {}, context
    for where in (KEPT, SHORTENED):
        log = manager.get(where)
        if log is None:
            assert not life.acknowledged[where], context
            continue
        log.check()
        found = [(offset, timestamp) for offset, _, timestamp in read_all(log)]
        start = log.log_start_offset
        assert start >= life.starts[where], (context, "deleted records are back")
        assert found == [record for record in life.sent[where] if start <= record[0]][: len(found)]
        assert log.log_end_offset >= life.acknowledged[where], context
        if is_whole:
            assert log.log_end_offset == len(life.sent[where]), context
        sequence = log.log_end_offset
        log.append(
            life.make_batch(1, producer_id=5 + where.partition, producer_epoch=0,
                            base_sequence=sequence),
            leader_epoch=9,
        )  # fmt: skip
    if life.is_deleted:
        assert manager.get(DELETED) is None, context
    manager.stop()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", sorted(CHANGES - {DiskCall.LOCK}, key=lambda call: call.value))
def test_one_refused_call_costs_nothing_acknowledged(batch, read_all, call, number):
    nth = 0
    while True:
        nth += 1
        context = (call.value, errno.errorcode[number], nth)
        inner = MemoryDisk(durability=True)
        inner.make_directory("/d")
        inner.sync_directory("/")
        disk = FaultyDisk(inner)
        disk.fail(call, nth=nth, errno=number)
        life = Life(disk, batch)
        try:
            life.live()
        except OttlaError:
            assert life.step == 0, (context, "only a start may fail as a whole")
        assert life.codes <= {ErrorCode.KAFKA_STORAGE_ERROR}, context
        if disk.counts[call] < nth:
            break
        is_sync = call in {DiskCall.SYNC, DiskCall.SYNC_VOLUME, DiskCall.SYNC_DIRECTORY}
        is_space = number == errno.ENOSPC and not is_sync
        if is_space and life.step:
            assert life.is_back, (context, "a full disk passes")
        judge(life, inner.crash(SeededRng(nth)), read_all, context, is_whole=False)
        judge(life, inner, read_all, context, is_whole=is_space and life.step > 0)
    assert nth > 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", list(DiskCall))
def test_a_disk_that_is_broken_from_some_call_on_costs_nothing_acknowledged(
    batch, read_all, call, number
):
    for nth in range(1, 120, 7):
        inner = MemoryDisk(durability=True)
        inner.make_directory("/d")
        inner.sync_directory("/")
        disk = FaultyDisk(inner)
        disk.fail(call, nth=nth, errno=number, lasting=True)
        life = Life(disk, batch)
        with suppress(OttlaError):
            life.live()
        context = (call.value, errno.errorcode[number], nth)
        judge(life, inner.crash(SeededRng(nth)), read_all, context, is_whole=False)


def test_the_life_is_one_in_which_everything_happens(batch, read_all):
    inner = MemoryDisk(durability=True)
    inner.make_directory("/d")
    disk = FaultyDisk(inner)
    life = Life(disk, batch)
    life.live()
    assert life.codes == set()
    assert life.is_deleted
    assert life.starts[KEPT] > 0
    assert life.starts[SHORTENED] > 0
    assert all(disk.counts[call] > 1 for call in CHANGES - {DiskCall.LOCK, DiskCall.TRUNCATE})
    judge(life, inner, read_all, (), is_whole=True)
