"""A node that stops gets no new partitions, as long as another one is there."""

import asyncio

import pytest

from ottla.broker import Broker
from ottla.cluster.topics import NewTopic
from ottla.config.files import broker_config
from ottla.env.memory_disk import MemoryDisk
from ottla.environment import Environment
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId
from ottla.metadata.store import Put
from ottla.metadata.values import (
    BrokerState,
    BrokerValue,
    KnownBrokerValue,
    encode_broker,
    encode_known_broker,
)

STOPPING = BrokerValue("h", 1, state=BrokerState.DRAINING)


@pytest.fixture
async def broker():
    """Node 1, which runs. Node 2 stops, and node 3 is down."""
    environment = Environment.real(memory=True)._replace(disk=MemoryDisk())
    config = broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"})
    broker = Broker(config, memory=True, environment=environment)
    await broker.start()
    data = broker.node.data
    known = encode_known_broker(KnownBrokerValue({}))
    revision = await data.store.commit(
        [],
        [
            Put(data.keys.live_broker(NodeId(2)), encode_broker(STOPPING)),
            *(Put(data.keys.known_broker(NodeId(node)), known) for node in (2, 3)),
        ],
    )
    await data.follower.reached(revision)
    yield broker
    await broker.stop()


async def created(broker, topic):
    done = asyncio.get_running_loop().create_future()
    broker.node.work.controller.create_topics([topic]).on_done(done.set_result)
    (outcome,) = (await asyncio.wait_for(done, 20)).value
    if isinstance(outcome, KafkaError):
        return outcome
    states = broker.node.data.follower.image.topics[topic.name].partitions
    return [(state.replicas, state.isr, state.leader) for state in states]


async def test_new_partitions_are_placed_on_nodes_that_do_not_stop(broker):
    """They were led by a node that hands over what it leads, and were offline when it was gone."""
    assert await created(broker, NewTopic("t", 4, 1)) == [((1,), (1,), 1)] * 4


async def test_a_node_that_stops_gets_what_no_other_can_take_and_is_not_in_sync(broker):
    assert await created(broker, NewTopic("t", 2, 3)) == [
        ((1, 2, 3), (1,), 1),
        ((1, 3, 2), (1,), 1),
    ]
    refused = await created(broker, NewTopic("u", 1, 4))
    assert "only 3 broker(s)" in str(refused)


async def test_a_node_that_stops_can_be_asked_for_beside_another_but_not_alone(broker):
    """In the words of Kafka, whose brokers in controlled shutdown count as those that are down."""
    beside = NewTopic("t", -1, -1, assignments=[(0, [2, 1])])
    assert await created(broker, beside) == [((2, 1), (1,), 1)]
    refused = await created(broker, NewTopic("u", -1, -1, assignments=[(0, [2])]))
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "fenced or in controlled shutdown" in str(refused)


async def test_the_last_nodes_take_new_partitions_though_they_stop(broker):
    data = broker.node.data
    key = data.keys.live_broker(NodeId(1))
    entry = await data.store.get(key)
    value = data.follower.image.brokers[NodeId(1)].registration
    stopping = encode_broker(value._replace(state=BrokerState.DRAINING))
    await data.follower.reached(await data.store.commit([], [Put(key, stopping, entry.session)]))
    found = await created(broker, NewTopic("t", 2, 2))
    assert [set(replicas) for replicas, _, _ in found] == [{1, 2}] * 2
