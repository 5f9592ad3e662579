"""A connection that was open once shows that the address is right: losing it is worth a retry.

The first request after that is where a broker that restarts, or a proxy, is met most often.
"""

import asyncio

import pytest

from ottla.client.asyncio.cluster import Cluster
from ottla.client.blocking import cluster as blocking
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import Address, ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

HERE = Address("127.0.0.1", 9)
SETTINGS = ClientSettings(bootstrap=(HERE,), retry_backoff_ms=1, retry_backoff_max_ms=1)
LED = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
ANSWER = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host=HERE.host, port=HERE.port)],
    topics=[MetadataResponseTopic(name="t", partitions=[LED])],
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Cut:
    """Connections that open; the first so many requests lose them."""

    def __init__(self, cuts, *, opens=True):
        self.cuts = cuts
        self.opens = opens
        self.is_closed = False

    def __call__(self, address, settings, *, is_doubtful=False):
        if not self.opens:
            raise ConnectionFailed(*address, "connection refused", refused=True)
        return self

    def call(self, request, answer, *, highest=None):
        if self.cuts:
            self.cuts -= 1
            raise ConnectionFailed(*HERE, "connection reset")
        return ANSWER

    def close(self):
        pass


@pytest.fixture
def client(monkeypatch):
    def make(connections):
        monkeypatch.setattr(blocking, "BlockingConnection", connections)
        return BlockingClient(SETTINGS, Clock())

    return make


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_connection_lost_at_the_first_request_ends_no_read(client, cuts):
    assert client(Cut(cuts)).refresh(["t"]).topic("t").partitions.keys() == {0}


def test_a_connection_lost_at_the_first_request_ends_no_write(client):
    producer = BlockingProducer(client(Cut(1)), SETTINGS, clock=Clock())
    assert producer.topic("t").partitions.keys() == {0}


def test_an_address_at_which_nobody_listens_is_told_at_once(client):
    refused = client(Cut(0, opens=False))
    with pytest.raises(ConnectionFailed):
        refused.refresh(["t"])
    assert refused.clock.now == 0


def test_it_is_lost_for_good_when_the_time_is_up(client):
    lost = client(Cut(1 << 30))
    with pytest.raises(ConnectionFailed):
        lost.refresh(["t"])
    assert lost.clock.now == pytest.approx(SETTINGS.retry_timeout_ms / 1000, abs=0.1)


async def test_nor_does_it_end_what_the_asyncio_client_does(monkeypatch):
    async def opened(net, address, settings, *, is_doubtful):
        await asyncio.sleep(0)
        return connection

    class Connection(Cut):
        async def call(self, request, answer, *, highest=None):
            await asyncio.sleep(0)
            return super().call(request, answer, highest=highest)

    connection = Connection(1)
    monkeypatch.setattr("ottla.client.asyncio.cluster.Connection.open", opened)
    async with Cluster(SETTINGS, net=object()) as cluster:
        assert (await cluster.ensure(["t"])).topic("t").partitions.keys() == {0}


def test_no_retry_is_inside_of_a_retry(client):
    """A topic that is deleted while its leader moves took up to twice the time."""

    class Deleted(Cut):
        def call(self, request, answer, *, highest=None):
            if answer is not MetadataResponse:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            is_there = asking.clock.now < SETTINGS.retry_timeout_ms / 2000
            return ANSWER if is_there else MetadataResponse(brokers=ANSWER.brokers, topics=[])

    for ask in (
        lambda asking: asking.list_offsets({TopicPartition("t", 0): -1}),
        lambda asking: asking.epoch_ends({TopicPartition("t", 0): 1}),
        lambda asking: asking.fetch({TopicPartition("t", 0): 1}),
    ):
        asking = client(Deleted(0))
        with pytest.raises(KafkaError, match="no topic t"):
            ask(asking)
        assert asking.clock.now == pytest.approx(SETTINGS.retry_timeout_ms / 1000, abs=0.1)
