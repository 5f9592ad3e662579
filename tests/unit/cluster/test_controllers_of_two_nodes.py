"""Two nodes of which each is asked to change topics, and one hears late of what the other did."""

import asyncio

import pytest

from ottla.cluster.controller import Controller, Hosted
from ottla.cluster.topics import NewPartitions, NewTopic, Placement
from ottla.config.files import broker_config
from ottla.config.topic import topic_config
from ottla.env.clock import ManualClock
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, LeaderEpoch, NodeId
from ottla.metadata.image import ImageFollower
from ottla.metadata.store import Put
from ottla.metadata.values import PartitionState, encode_partition
from ottla.pending import Pending, outcome_of


def resolved(_):
    pending = Pending()
    pending.resolve(None)
    return pending


async def done(pending):
    """The outcomes, an error as its code."""
    return [one.code if isinstance(one, KafkaError) else one for one in await outcome_of(pending)]


def controller_of(following, follower, node):
    return Controller(
        store=following.store,
        keys=following.keys,
        follower=follower,
        rng=SeededRng(node),
        placement=lambda: Placement([NodeId(1)], 3, 1),
        check_config=lambda given: topic_config(given, broker_config({})),
        partitions_max=100,
        may_delete=True,
        hosted=Hosted(NodeId(node), resolved, lambda topic: False),
    )


@pytest.fixture
def controller(following):
    return controller_of(following, following.follower, 1)


class Late(ImageFollower):
    """Hears of nothing until it asks for what is new."""

    def __init__(self, *args):
        super().__init__(*args)
        self.hears, self._held = False, []
        self._apply_now, self.mirror._apply = self.mirror._apply, self._hold

    def _hold(self, change_set):
        if self.hears:
            self._apply_now(change_set)
        else:
            self._held.append(change_set)

    async def catch_up(self):
        self.hears = True
        while self._held:
            self._apply_now(self._held.pop(0))
        await super().catch_up()


@pytest.fixture
async def late(following):
    late = Late(following.store, following.keys, ManualClock())
    await late.start()
    yield late
    await late.close()


@pytest.fixture
def behind(following, late):
    """The controller of the node that hears late."""
    return controller_of(following, late, 2)


async def test_a_topic_that_another_node_has_just_made_can_be_changed(controller, behind):
    await done(controller.create_topics([NewTopic("t", 1)]))
    assert await done(behind.create_partitions([NewPartitions("t", 2)])) == [None]


async def test_a_topic_that_another_node_has_just_made_can_be_deleted(controller, behind):
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    (gone,) = await done(behind.delete_topics([("t", NULL_TOPIC_ID)]))
    assert gone == ("t", made.topic_id)


async def test_who_may_delete_is_asked_about_the_topic_that_is_found(controller, behind):
    """It was not there when the request came in, so nobody could ask then."""
    await done(controller.create_topics([NewTopic("t", 1)]))
    asked = [("t", NULL_TOPIC_ID)]
    (refused,) = await done(behind.delete_topics(asked, may_delete=lambda name: name != "t"))
    assert refused is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (gone,) = await done(behind.delete_topics(asked, may_delete=lambda name: name == "t"))
    assert gone[0] == "t"


async def test_a_topic_that_another_node_has_just_deleted_can_be_made_anew(
    controller, behind, late
):
    late.hears = True
    (first,) = await done(controller.create_topics([NewTopic("t", 1)]))
    late.hears = False
    await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
    (made,) = await done(behind.create_topics([NewTopic("t", 1)]))
    assert made.topic_id != first.topic_id


async def test_partitions_that_another_node_adds_meanwhile_are_no_error(
    controller, behind, following, late
):
    """The client was told that somebody else had changed the topic: Kafka has both wait."""
    await done(controller.create_topics([NewTopic("t", 1)]))
    late.hears, counted = True, []

    async def rival(_):
        assert await done(controller.create_partitions([NewPartitions("t", 3)])) == [None]

    following.store.before = rival
    asked = behind.create_partitions([NewPartitions("t", 4)], take=counted.append)
    assert await done(asked) == [None]
    assert len(late.image.topic("t").partitions) == 4
    assert counted == [3], "counted once, as it was asked for"


async def test_a_topic_that_two_nodes_delete_at_once_leaves_no_mark(
    controller, behind, following, late
):
    (made,) = await done(controller.create_topics([NewTopic("t", 1)]))
    key = following.keys.partition(made.topic_id, 0)
    nodes = NodeId(1), NodeId(2)
    both = PartitionState(nodes, nodes, NodeId(1), LeaderEpoch(0), 1)
    await following.store.commit([], [Put(key, encode_partition(both))])
    late.hears = True
    await late.catch_up()

    async def rival(_):
        (gone,) = await done(controller.delete_topics([("t", NULL_TOPIC_ID)]))
        assert gone == ("t", made.topic_id)
        await late.catch_up()

    following.store.before = rival
    (gone,) = await done(behind.delete_topics([("t", NULL_TOPIC_ID)]))
    assert gone is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(20):
        await asyncio.sleep(0)
    mark = await following.store.get(following.keys.deleted_topic(made.topic_id))
    assert mark is None, "both nodes are done with it"
