"""Configs altered while a node runs: in force at once, and after a restart."""

import asyncio

import pytest

from ottla.broker import Broker
from ottla.cluster.configs import Alteration, ConfigChange, Operation, ResourceType
from ottla.cluster.topics import NewTopic
from ottla.config.broker import MAX_CONNECTIONS
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_net import MemoryNet
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.environment import Environment
from ottla.ids import TopicPartition


@pytest.fixture
async def start(tmp_path):
    """Start a node over the test's one directory; the one before is stopped."""
    running = []

    async def stop():
        while running:
            await running.pop().stop()

    async def start():
        await stop()
        environment = Environment(
            disk=RealDisk(),
            net=MemoryNet(),
            clock=SystemClock(),
            rng=SeededRng(1),
            executor=ThreadExecutor(1, "disk"),
            store_executor=ThreadExecutor(1, "metadata"),
        )
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        broker = Broker(broker_config(given), environment=environment)
        running.append(broker)
        await broker.start()
        return broker

    yield start
    await stop()


async def done(pending):
    finished = asyncio.get_running_loop().create_future()
    pending.on_done(finished.set_result)
    async with asyncio.timeout(5):
        await finished
    return pending.value


async def alter(broker, kind, name, **texts):
    changes = [
        ConfigChange(key.replace("_", "."), Operation.SET, value) for key, value in texts.items()
    ]
    outcome = await done(broker.node.work.configs.alter([Alteration(kind, name, changes, False)]))
    assert outcome == [None]


def max_bytes(broker, topic):
    return broker.node.work.replica_manager.get(
        TopicPartition(topic, 0)
    ).log.config.max_message_bytes


async def test_altered_configs_hold_for_open_logs_and_after_a_restart(start):
    broker = await start()
    await done(broker.node.work.controller.create_topics([NewTopic("a"), NewTopic("b")]))
    await alter(broker, ResourceType.TOPIC, "a", max_message_bytes="500")
    await alter(broker, ResourceType.BROKER, "", message_max_bytes="700")
    assert (max_bytes(broker, "a"), max_bytes(broker, "b")) == (500, 700)
    await alter(broker, ResourceType.BROKER, "1", message_max_bytes="600")
    assert (max_bytes(broker, "a"), max_bytes(broker, "b")) == (500, 600)
    await done(broker.node.work.controller.create_topics([NewTopic("c")]))
    assert max_bytes(broker, "c") == 600
    broker = await start()
    assert [max_bytes(broker, topic) for topic in "abc"] == [500, 600, 600]


async def test_a_topic_at_odds_with_what_it_follows_does_not_stop_the_node(start):
    broker = await start()
    lag = [("min.compaction.lag.ms", "1000")]
    await done(broker.node.work.controller.create_topics([NewTopic("a", configs=lag)]))
    await alter(broker, ResourceType.BROKER, "", log_cleaner_max_compaction_lag_ms="5")
    await alter(broker, ResourceType.BROKER, "", message_max_bytes="700")
    assert max_bytes(broker, "a") == 700
    broker = await start()
    assert max_bytes(broker, "a") == 700


async def test_fewer_connections_hold_for_the_next_client(start):
    broker = await start()
    await alter(broker, ResourceType.BROKER, "1", max_connections="0")
    assert broker.configuration.in_force[MAX_CONNECTIONS] == 0
    host, port = broker.address
    ended = asyncio.get_running_loop().create_future()

    class Client(asyncio.Protocol):
        def connection_lost(self, error):
            ended.set_result(error)

    await broker._env.net.connect(Client, host=host, port=port)
    async with asyncio.timeout(5):
        await ended


async def test_a_shorter_delay_of_deletion_holds_at_once(start):
    broker = await start()
    await done(broker.node.work.controller.create_topics([NewTopic("a")]))
    await done(broker.node.work.controller.delete_topics([("a", None)]))
    assert broker.node.data.logs.deleted
    await alter(broker, ResourceType.BROKER, "1", log_segment_delete_delay_ms="1")
    async with asyncio.timeout(5):
        while broker.node.data.logs.deleted:  # noqa: ASYNC110 - a timer does it
            await asyncio.sleep(0.005)
