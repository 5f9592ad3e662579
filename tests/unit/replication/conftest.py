"""A replica manager on a disk in memory, with an executor and a clock that the test moves."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.env.executor import ManualExecutor
from ottla.env.faulty_disk import FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode
from ottla.housekeeping.flush_sweep import FlushSweep
from ottla.housekeeping.housekeeper import Housekeeper
from ottla.housekeeping.log_cleaner import CleanerSettings
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.metadata.image import MetadataDelta, PartitionChange
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation
from ottla.replication.partition import PartitionSettings
from ottla.replication.replica_manager import ReplicaManager

NODE = NodeId(1)
TOPIC_ID = TopicId(b"0123456789abcdef")
ASYNC_FLUSH = 2**63 - 1


class Node:
    """One node's partitions of the topic ``t``, and short words for what is done to them."""

    def __init__(
        self,
        *,
        flush_messages=1,
        min_insync_replicas=1,
        partitions=2,
        log_dirs=("/data",),
        flush_sweep_interval_ms=ASYNC_FLUSH,
        disk=None,
        executor=None,
        **config,
    ):
        self.clock = ManualClock()
        self.disk = disk or FaultyDisk(MemoryDisk(durability=True))
        self.executor = executor or ManualExecutor()
        self.settings = PartitionSettings(
            LogConfig(flush_messages=flush_messages, **config), min_insync_replicas
        )
        self.log_manager = LogManager(
            disk=self.disk,
            clock=self.clock,
            rng=SeededRng(1),
            log_dirs=log_dirs,
            cluster_id="cluster",
            node_id=NODE,
            config_for=lambda topic: self.settings.log,
        )
        self.log_manager.start()
        self.flush_sweep = FlushSweep(self.clock, flush_sweep_interval_ms)
        self.replica_manager = ReplicaManager(
            node_id=NODE,
            log_manager=self.log_manager,
            clock=self.clock,
            executor=self.executor,
            settings=lambda topic: self.settings,
            waiting_fetches_max=1000,
            watcher=self.flush_sweep,
        )
        self.housekeeper = Housekeeper(
            self.replica_manager,
            self.log_manager,
            self.flush_sweep,
            clock=self.clock,
            rng=SeededRng(0),
            executor=self.executor,
            cleaner_executor=self.executor,
            cleaner_settings=CleanerSettings,
        )
        self.partition_epoch = -1
        self.change(*(self.led(index) for index in range(partitions)))

    def led(self, index, *, leader=NODE, epoch=0, isr=(NODE,), old=None):
        self.partition_epoch += 1
        state = PartitionState(
            (NODE, NodeId(2)),
            tuple(map(NodeId, isr)),
            leader,
            LeaderEpoch(epoch),
            self.partition_epoch,
        )
        return PartitionChange("t", TOPIC_ID, index, old, state)

    def change(self, *changes):
        """Let the image say so, and see it done."""
        self.replica_manager.apply(None, MetadataDelta(revision=1, partitions=changes))
        topics = {change.topic for change in changes}
        waiting = [self.replica_manager.hosting.done(topic) for topic in topics]
        while not all(done.is_done for done in waiting):
            assert self.executor.run_next()

    def partition(self, index=0):
        return self.replica_manager.get(TopicPartition("t", index))

    def append(self, *batches, acks=-1, timeout_ms=30_000):
        appends = [
            (TopicPartition("t", index), memoryview(bytearray(batch))) for index, batch in batches
        ]
        return self.replica_manager.appends.many(appends, acks=acks, timeout_ms=timeout_ms)

    def fetch(self, *offsets, max_wait_ms=500, min_bytes=1, max_bytes=10**6, **fields):
        specs = [
            FetchSpec(TopicPartition("t", index), offset, fields.pop("partition_bytes", 10**6))
            for index, offset in offsets
        ]
        limits = FetchLimits(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=Isolation.READ_UNCOMMITTED,
        )
        return self.replica_manager.fetch(specs, limits)

    def measure_space(self):
        """Do what the broker does every second."""
        self.log_manager.space_measured(self.log_manager.measure_space())
        self.clock.advance(0)

    def read(self, index=0):
        """What a consumer sees of a partition, as one piece."""
        (fetched,) = self.fetch((index, 0), max_wait_ms=0)
        return b"" if fetched.region is None else fetched.region.read()

    def check(self):
        for partition in self.replica_manager.partitions:
            partition.check()


def batch(*values, codec=Codec.NONE, **fields):
    records = [Record(value=value, timestamp=1_700_000_000_000) for value in values or (b"v",)]
    return build_batch(records, codec=codec, **fields)


def large_batch(seed=0, **fields):
    """A compressed batch above the size that is opened in the executor."""
    return batch(SeededRng(seed).random_bytes(100_000), codec=Codec.GZIP, **fields)


def result_of(answer):
    """The value of a done Pending, or the answer itself."""
    if isinstance(answer, Pending):
        assert answer.is_done, "still waiting"
        assert answer.error is None
        return answer.value
    return answer


def codes(answer):
    return [getattr(outcome, "code", ErrorCode.NONE) for outcome in result_of(answer)]


@pytest.fixture
def make_node():
    nodes = []

    def make(**config):
        node = Node(**config)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.check()


@pytest.fixture
def node(make_node):
    return make_node()


@pytest.fixture
def words():
    """Short words of these tests, for modules that cannot import a conftest."""
    return SimpleNamespace(
        ASYNC_FLUSH=ASYNC_FLUSH,
        batch=batch,
        codes=codes,
        large_batch=large_batch,
        result_of=result_of,
    )
