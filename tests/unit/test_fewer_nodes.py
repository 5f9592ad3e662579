"""Nodes that a host had, and starts no more, get no replicas: nobody would ever serve these."""

import asyncio

import pytest

from ottla.broker import Broker
from ottla.cluster.topics import NewTopic
from ottla.config.files import broker_config
from ottla.env.clock import ManualClock
from ottla.environment import Environment
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import Put
from ottla.metadata.values import (
    KnownBrokerValue,
    PartitionState,
    TopicValue,
    encode_known_broker,
    encode_partition,
    encode_topic,
)
from ottla.node.identity import STORE_CLUSTER
from ottla.supervision.shared import Outside, open_data

KEYS = Keys(STORE_CLUSTER)
TOPIC = TopicId(b"t" * 16)


def config_of(directory):
    return broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})


async def ran(directory, *nodes, replicas=()):
    """Leave what a host with several nodes leaves behind; a partition on ``replicas``."""
    data = await open_data(config_of(directory), len(nodes), Outside.real())
    ops = [
        Put(KEYS.known_broker(node), encode_known_broker(KnownBrokerValue({}))) for node in nodes
    ]
    if replicas:
        state = PartitionState(replicas, replicas, replicas[0], LeaderEpoch(0), 0)
        ops.append(Put(KEYS.partition(TOPIC, 0), encode_partition(state)))
        ops.append(Put(KEYS.topic("t"), encode_topic(TopicValue(TOPIC, 1))))
    await data.store.commit([], ops)
    await data.store.close()


async def known_after(directory, count):
    """Return the nodes that are known when ``count`` of them are about to start."""
    data = await open_data(config_of(directory), count, Outside.real())
    follower = ImageFollower(data.store, KEYS, ManualClock())
    await follower.start()
    known = set(follower.image.known)
    await follower.close()
    await data.store.close()
    return known


async def alone(directory):
    broker = Broker(config_of(directory), environment=Environment.real(memory=False))
    await broker.start()
    return broker


async def outcome_of(pending):
    done = asyncio.get_running_loop().create_future()
    pending.on_done(done.set_result)
    (outcome,) = (await asyncio.wait_for(done, 20)).value
    return outcome


async def test_nodes_that_are_started_no_more_are_forgotten(tmp_path):
    """They got replicas when others were away, and the next start was refused for these."""
    await ran(tmp_path, 1, 2, 3, 4)
    assert await known_after(tmp_path, 4) == {1, 2, 3, 4}
    assert await known_after(tmp_path, 2) == {1, 2}


async def test_nobody_is_forgotten_by_a_start_that_is_refused(tmp_path):
    await ran(tmp_path, 1, 2, 3, 4, replicas=(NodeId(3),))
    with pytest.raises(LogDirectoryUnusable, match="node 3 has 1 partition"):
        await known_after(tmp_path, 2)
    assert await known_after(tmp_path, 4) == {1, 2, 3, 4}


async def test_a_node_that_is_alone_again_gives_nobody_else_a_replica(tmp_path):
    """It did, the topic had an ISR of itself alone, and its next start was refused."""
    await ran(tmp_path, 1, 2, 3, replicas=(NodeId(1),))
    broker = await alone(tmp_path)
    assert broker.node.data.follower.image.known == {1}
    outcome = await outcome_of(broker.node.work.controller.create_topics([NewTopic("u", 1, 3)]))
    assert outcome.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 1 broker(s)" in str(outcome)
    await broker.stop()
    broker = await alone(tmp_path)
    await broker.stop()


async def test_a_node_alone_forgets_others_whose_directories_were_removed(tmp_path):
    await ran(tmp_path, 1, 2, 3, replicas=(NodeId(1), NodeId(2)))
    (tmp_path / "nodes").rmdir()
    broker = await alone(tmp_path)
    assert broker.node.data.follower.image.known == {1, 2}, "that node 2 has a replica is not lost"
    await broker.stop()
