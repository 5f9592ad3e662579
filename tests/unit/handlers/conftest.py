"""Handlers over the replica manager of the replication tests."""

import importlib.util
from pathlib import Path
from types import GeneratorType, SimpleNamespace

import pytest

from ottla.coordinator.transaction.machine import Answer
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.fetch import Fetch
from ottla.handlers.apis.list_offsets import ListOffsets
from ottla.handlers.apis.offset_for_leader_epoch import OffsetForLeaderEpoch
from ottla.handlers.apis.produce.ordinary import Produce
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.handlers.fetch_session import FetchSessionCache
from ottla.ids import NodeId
from ottla.metadata.values import BrokerValue
from ottla.pending import Pending
from ottla.sliced import Slices
from ottla.turns import Turns

path = Path(__file__).parents[1] / "replication" / "conftest.py"
spec = importlib.util.spec_from_file_location("replication_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

make_node = doubles.make_node
words = doubles.words


class NoTransactions:
    """A coordinator that knows of no transactional id."""

    def verify(self, producer, partitions):
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def add_partitions(self, producer, partitions, *, client_version):
        pending = Pending()
        pending.resolve(Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return pending


class OneTopicImage:
    """As much of the metadata image as these handlers look at."""

    def __init__(self):
        self.names = {doubles.TOPIC_ID: "t"}
        self.brokers = {
            NodeId(number): SimpleNamespace(registration=BrokerValue(host, 9092))
            for number, host in ((1, "first"), (2, "second"))
        }

    def topic_by_id(self, topic_id):
        name = self.names.get(topic_id)
        return None if name is None else SimpleNamespace(name=name)


@pytest.fixture
def topic_id():
    return doubles.TOPIC_ID


@pytest.fixture
def serve(make_node):
    """``serve()``: a node and its handlers, each called as ``produce(request, version)``."""

    def start(*, response_bytes_max=50_000_000, wait_ms_max=60_000, slots=10, **config):
        node = make_node(**config)
        manager, image = node.replica_manager, OneTopicImage()
        advertised = Advertised(NodeId(1), {"": ("here", 9092)})
        handlers = {
            "produce": Produce(manager, image, advertised, NoTransactions),
            "fetch": Fetch(
                manager,
                image,
                advertised,
                FetchSessionCache(SeededRng(1), slots=slots, partitions_max=100),
                node.clock,
                response_bytes_max=response_bytes_max,
                wait_ms_max=wait_ms_max,
            ),
            "list_offsets": ListOffsets(manager),
            "offset_for_leader_epoch": OffsetForLeaderEpoch(manager),
        }
        slices = Slices(Turns(node.clock))
        client = Client("10.0.0.9", 5000, "10.0.0.1", 9092)

        def call(handler):
            def ask(request, version):
                found = handler.handle(request, Call(version, None, client))
                return slices.run(found, str) if isinstance(found, GeneratorType) else found

            return ask

        calls = {name: call(handler) for name, handler in handlers.items()}
        return SimpleNamespace(node=node, image=image, transactions=NoTransactions(), **calls)

    return start
