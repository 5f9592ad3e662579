"""Coordinators are made when a topic or a client asks for them: once, and never too late."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.coordinator.on_demand import CoordinatorsOnDemand
from ottla.env.executor import ManualExecutor
from ottla.ids import TopicPartition
from ottla.pending import outcome_of


class Made:
    """Coordinators that keep what they were told."""

    def __init__(self, told):
        self.told = told
        self.groups, self.transactions = object(), object()

    def start(self):
        self.told.append("start")

    def stop(self):
        self.told.append("stop")

    def apply(self, image, delta):
        self.told.append(("apply", delta))

    def hosted(self, where):
        self.told.append(("hosted", where))


class Node:
    """A node whose image has some topics."""

    def __init__(self, *topics):
        self.topics = dict.fromkeys(topics, "there")
        self.told = []
        self.executor = ManualExecutor()
        self.coordinators = CoordinatorsOnDemand(
            SimpleNamespace(topic=self.topics.get),
            self.executor,
            load=self.import_all,
            make=self.make,
        )
        self.is_broken = False

    def import_all(self):
        self.told.append("load")
        if self.is_broken:
            raise MemoryError

    async def load(self):
        """Let the other thread import, and the loop hear of it."""
        await asyncio.sleep(0)
        self.executor.run_all()
        for _ in range(5):
            await asyncio.sleep(0)

    def make(self):
        self.told.append("make")
        return Made(self.told)

    def change(self, topic):
        delta = SimpleNamespace(partitions=[SimpleNamespace(topic=topic)])
        self.coordinators.apply(None, delta)
        return delta


def test_a_node_without_internal_topics_makes_none():
    node = Node("t")
    node.coordinators.start()
    node.change("t")
    node.coordinators.hosted(TopicPartition("t", 0))
    node.coordinators.stop()
    assert node.told == []


@pytest.mark.parametrize("topic", [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC])
def test_an_internal_topic_that_is_there_is_loaded_at_the_start(topic):
    node = Node(topic)
    node.coordinators.start()
    assert node.told == ["make", "start"]


@pytest.mark.parametrize("topic", [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_an_internal_topic_that_is_made_later_is_loaded_off_the_loop_and_then_followed(topic):
    node = Node()
    node.coordinators.start()
    node.change(topic)
    node.change(topic)  # The image has the changes already, and start loads what it says.
    await asyncio.sleep(0)
    assert node.told == []
    await node.load()
    assert node.told == ["load", "make", "start"]
    second = node.change("t")
    node.coordinators.hosted(TopicPartition("t", 0))
    assert node.told[3:] == [("apply", second), ("hosted", TopicPartition("t", 0))]


async def test_a_log_that_was_made_late_is_loaded():
    node = Node()
    node.coordinators.hosted(TopicPartition(GROUP_METADATA_TOPIC, 3))
    await node.load()
    assert node.told == ["load", "make", "start"]


async def test_a_load_that_fails_is_told_and_the_next_topic_or_client_tries_again(caplog):
    node = Node()
    node.is_broken = True
    node.change(GROUP_METADATA_TOPIC)
    await node.load()
    assert "the coordinators cannot be loaded: MemoryError()" in caplog.text
    node.is_broken = False
    node.change(TRANSACTION_STATE_TOPIC)
    await node.load()
    assert node.told == ["load", "load", "make", "start"]


async def test_a_node_that_stops_while_it_imports_makes_nothing():
    node = Node()
    node.change(GROUP_METADATA_TOPIC)
    node.coordinators.stop()
    await node.load()
    assert node.told == ["load"]


async def test_the_first_client_waits_while_another_thread_imports():
    node = Node()
    waiting = [node.coordinators.ready() for _ in range(2)]
    await asyncio.sleep(0)
    assert node.told == []
    node.executor.run_all()
    for pending in waiting:
        await outcome_of(pending)
    assert node.told.count("make") == node.told.count("start") == 1
    assert node.told[0] == "load"
    assert node.coordinators.ready().is_done
    assert node.coordinators.groups is node.coordinators.groups
    assert node.told.count("make") == 1


def test_what_is_made_after_the_stop_loads_nothing():
    node = Node()
    node.coordinators.stop()
    assert node.coordinators.transactions is not None
    assert node.told == ["make"]
    node.coordinators.stop()
    assert node.told == ["make", "stop"]
