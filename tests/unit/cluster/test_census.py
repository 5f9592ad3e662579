"""Counts that follow the image, compared with a walk over it."""

import random
from collections import Counter

import pytest

from ottla.cluster.census import TopicCensus
from ottla.cluster.controller import Controller, Hosted
from ottla.cluster.topics import NewPartitions, NewTopic, Placement, collision_key
from ottla.config.topic import topic_config
from ottla.env.rng import SeededRng
from ottla.errors import KafkaError
from ottla.pending import Pending

NAMES = ["a.b", "a_b", "a.b_c", "plain", "a.c", "x_y_z", "x.y.z", "_", "."]


def twins(image, name):
    if "." not in name and "_" not in name:
        return set()
    return {other for other in image.topics if collision_key(other) == collision_key(name)}


@pytest.fixture
def controller(following):
    return Controller(
        store=following.store,
        keys=following.keys,
        follower=following.follower,
        rng=SeededRng(1),
        placement=lambda: Placement(
            live_nodes=[1, 2, 3], default_partition_count=1, default_replication_factor=1
        ),
        check_config=lambda given: topic_config(given, None),
        partitions_max=1000,
        may_delete=True,
        hosted=Hosted(1, lambda topic: resolved(), lambda topic: False),
    )


def resolved():
    pending = Pending()
    pending.resolve(None)
    return pending


async def wait(pending):
    import asyncio

    future = asyncio.get_running_loop().create_future()
    pending.on_done(lambda done: future.set_result(done.value))
    return await future


@pytest.mark.parametrize("seed", range(5))
async def test_it_counts_what_a_walk_finds(following, controller, seed):
    census = TopicCensus(following.image)
    following.follower.add_listener(census.apply)
    rng = random.Random(seed)
    for _ in range(150):
        name = rng.choice(NAMES)
        match rng.randrange(4):
            case 0 | 1:
                await wait(controller.create_topics([NewTopic(name, rng.randrange(1, 5), 1)]))
            case 2:
                more = NewPartitions(name, rng.randrange(2, 9))
                await wait(controller.create_partitions([more]))
            case _:
                await wait(controller.delete_topics([(name, None)]))
        image = following.image
        for counted in (census, TopicCensus(image)):
            assert counted.partition_count == sum(
                len(topic.partitions) for topic in image.topics.values()
            )
            assert +counted.leads == Counter(
                state.replicas[0] for topic in image.topics.values() for state in topic.partitions
            )
            for asked in NAMES:
                twin = counted.twin(asked)
                assert (twin in twins(image, asked)) if twin else not twins(image, asked)


async def test_creating_a_topic_does_not_look_at_the_others(following, controller, monkeypatch):
    """1,000 topics took 100 times as long as 100 when each looked at all before it."""
    for number in range(20):
        await wait(controller.create_topics([NewTopic(f"before.{number}", 3, 1)]))

    class Untouchable(dict):
        def _refuse(self, *_):
            raise AssertionError("somebody walks over all topics")

        __iter__ = items = values = keys = _refuse

    topics = Untouchable(following.image._topics)
    monkeypatch.setattr(following.image, "_topics", topics)
    monkeypatch.setattr(following.image, "topics", topics)
    (made,) = await wait(controller.create_topics([NewTopic("one.more", 3, 1)]))
    assert not isinstance(made, KafkaError)
    (twin,) = await wait(controller.create_topics([NewTopic("one_more", 3, 1)]))
    assert "collides with existing topic: one.more" in str(twin)


async def test_a_small_topic_is_one_commit(following, controller):
    before = following.image.revision
    await wait(controller.create_topics([NewTopic("t", 90, 1)]))
    assert following.image.revision == before + 1
    await wait(controller.create_partitions([NewPartitions("t", 180)]))
    assert following.image.revision == before + 2
    await wait(controller.create_topics([NewTopic("large", 250, 1)]))
    assert following.image.revision == before + 5
    assert len(following.image.topics["large"].partitions) == 250
