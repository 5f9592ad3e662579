"""A node with both coordinators, a topic ``t`` of two partitions, and words for what clients do."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.coordinator.making import CoordinatorSettings, coordinators_of
from ottla.coordinator.shard import Context
from ottla.coordinator.transaction import machine
from ottla.coordinator.transaction.peers import Producer
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.errors import KafkaError
from ottla.handlers.apis.produce.transactional import TransactionalAppends
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.results import AppendResult
from ottla.metadata.image import PartitionChange, TopicImage
from ottla.pending import Pending
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.turns import Turns

path = Path(__file__).parents[1] / "conftest.py"
spec = importlib.util.spec_from_file_location("group_doubles", path)
groups = importlib.util.module_from_spec(spec)
spec.loader.exec_module(groups)

STATE = "__transaction_state"
STATE_ID = TopicId(b"transaction-stat")
SETTINGS = TransactionSettings(
    timeout_max_ms=900_000,
    expiration_ms=7 * 24 * 3600 * 1000,
    expiration_check_interval_ms=3600_000,
)


HERE = SimpleNamespace(leader=1)
"""The state of every partition: this node leads it."""


class NextIds:
    """Producer ids that are there at once, or (``waiting``) when the test gives them out."""

    def __init__(self):
        self.last = 100
        self.waiting = None

    def known(self, producer_id):
        self.last = max(self.last, producer_id)

    def next(self):
        pending = Pending()
        if self.waiting is not None:
            self.waiting.append(pending)
        else:
            self.last += 1
            pending.resolve(self.last)
        return pending


class TransactionNode(groups.GroupNode):
    """See the module."""

    def __init__(self, *, transactions=None, **config):
        self.transaction_settings = SETTINGS._replace(**(transactions or {}))
        self.ids = None
        self.producer_ids = NextIds()
        self.partitions_gone = set()
        super().__init__(started=False, **config)
        self.node.change(self.node.led(0), self.node.led(1))
        self.settle()

    def lead(self, *indexes, **given):
        super().lead(*indexes, **given)
        if STATE not in self.topics:
            states = (groups.state_of(),) * 2
            self.topics[STATE] = TopicImage(STATE, STATE_ID, states)
            changes = [
                PartitionChange(STATE, STATE_ID, index, None, state)
                for index, state in enumerate(states)
            ]
            self.node.change(*changes)

    def boot(self):
        self.both = coordinators_of(
            Context(
                self.node.replica_manager,
                self.executor,
                self.clock,
                turns=Turns(self.clock, call_soon=lambda turn: self.clock.call_later(0, turn)),
            ),
            SimpleNamespace(
                configured=lambda kind: (),
                topic=self.topics.get,
                partition=lambda where: None if where in self.partitions_gone else HERE,
                brokers=(1,),
            ),
            self.producer_ids,
            CoordinatorSettings(self.settings, 2, self.transaction_settings, 2),
            node_id=NodeId(1),
            open_peers=None,
        )
        self.coordinator, self.transactions = self.both.groups, self.both.transactions
        self.runtime = self.coordinator.runtime
        self.both.start()

    def restart(self):
        self.both.stop()
        self.boot()
        self.settle()

    def check(self):
        super().check()
        for shard in self.transactions.runtime.shards:
            shard.machine.check()

    # Clients.

    def init(self, name="x", producer_id=-1, epoch=-1, timeout_ms=60_000):
        event = machine.InitProducerId(name, timeout_ms, producer_id, epoch)
        return self.transactions.init_producer_id(event)

    def begun(self, name="x", **fields):
        """Return the producer that has the id from now on."""
        pending = self.init(name, **fields)
        self.settle()
        code, producer_id, epoch = pending.value
        assert code == 0
        return Producer(name, producer_id, epoch)

    def end(self, producer, *, commit=True, version=2):
        event = machine.EndTransaction(
            producer.producer_id, producer.producer_epoch, commit, version
        )
        return self.transactions.end(producer.transactional_id, event)

    def produce(self, producer, index=0, sequence=0, value=b"v", version=12, compressed=0):
        batch = build_batch(
            [Record(key=b"k", value=value, timestamp=self.clock.wall_ms())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
            codec=compressed,
        )
        appends = TransactionalAppends(self.node.replica_manager, self.transactions)
        return appends.append(
            producer.transactional_id,
            [(TopicPartition("t", index), memoryview(batch))],
            version=version,
            acks=-1,
            timeout_ms=30_000,
        )

    def produced(self, producer, index=0, **fields):
        """The code of a produce whose flush has ended."""
        found = self.produce(producer, index, **fields)
        self.settle()
        (outcome,) = found.value if isinstance(found, Pending) else found
        return 0 if isinstance(outcome, AppendResult) else int(outcome.code)

    def state(self, name="x"):
        try:
            return self.transactions.describe(name).state.value
        except KafkaError as error:
            return error.code.name

    def stable(self, index=0):
        """The last stable offset, and the log's end."""
        partition = self.node.partition(index)
        return partition.last_stable_offset, partition.log.log_end_offset


@pytest.fixture
def make_node():
    nodes = []

    def make(**config):
        node = TransactionNode(**config)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.check()


@pytest.fixture
def node(make_node):
    return make_node()
