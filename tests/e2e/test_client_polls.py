"""A consumer whose application stays away for longer than max.poll.interval.ms, as with Kafka's."""

import asyncio
import time

import pytest

import ottla
from ottla import TopicPartition

PATIENCE_SECONDS = 40
INTERVAL_MS = 1_000


@pytest.fixture
def client(target):
    with ottla.Client(target.bootstrap) as client:
        yield client


@pytest.fixture
def topic(client, topic_name):
    client.admin.create_topic(topic_name, partitions=2, timeout=PATIENCE_SECONDS)
    with client.producer() as producer:
        for number in range(20):
            producer.send(topic_name, str(number), partition=number % 2)
    return topic_name


@pytest.fixture(params=["consumer", "classic"])
def options(request, topic_name):
    return {
        "group": topic_name,
        "group_protocol": request.param,
        "auto_offset_reset": "earliest",
        "auto_commit": False,
        "max_poll_interval_ms": INTERVAL_MS,
    }


def wait_until_left(client, group):
    until = time.monotonic() + PATIENCE_SECONDS
    while client.admin.describe_group(group).members:
        assert time.monotonic() < until, "the consumer does not leave the group"
        time.sleep(0.05)


def test_who_stays_away_leaves_the_group_and_hears_of_it(client, topic, options):
    lost = []
    with client.consumer(**options) as consumer:
        consumer.subscribe(topic, on_lost=lost.extend, on_revoked=lambda _: pytest.fail("revoked"))
        first = next(consumer)
        consumer.commit()
        second = next(consumer)
        wait_until_left(client, topic)
        with pytest.raises(ottla.GroupMoved, match="within 1000 ms"):
            consumer.commit()
        assert not lost
        with pytest.raises(ottla.GroupMoved, match="max_poll_interval_ms"):
            next(consumer)
        assert lost == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        found = [next(consumer) for _ in range(19)]
    assert second in found
    assert first not in found


def test_a_transaction_does_not_commit_offsets_of_a_consumer_that_was_away(client, topic, options):
    with (
        client.consumer(topic, **options) as consumer,
        client.producer(transactional_id=topic) as producer,
    ):
        next(consumer)
        wait_until_left(client, topic)

        def copy():
            with producer.transaction() as transaction:
                producer.send(topic, "copied", partition=0)
                transaction.commit_offsets(consumer)

        with pytest.raises(ottla.GroupMoved):
            copy()
    assert client.admin.committed(topic) == {}


def test_others_go_on_with_the_partitions(client, topic, options):
    with client.consumer(topic, **options) as away, client.consumer(topic, **options) as other:
        next(away)
        found = set()
        until = time.monotonic() + PATIENCE_SECONDS
        while len(found) < 20:
            assert time.monotonic() < until, sorted(found)
            found.update(int(each.value) for each in other.poll(timeout=0.2))


def test_slow_work_on_each_record_is_not_being_away(client, topic, options):
    with client.consumer(topic, **options) as consumer:
        for _ in range(6):
            next(consumer)
            time.sleep(INTERVAL_MS / 1000 / 3)  # slow work
        consumer.commit()


async def test_who_stays_away_with_asyncio(target, client, topic, options):
    lost = []
    async with (
        ottla.AsyncClient(target.bootstrap) as other,
        other.consumer(**options) as consumer,
    ):
        await consumer.subscribe(topic, on_lost=lost.extend)
        await anext(consumer)
        await asyncio.to_thread(wait_until_left, client, topic)
        with pytest.raises(ottla.GroupMoved):
            await consumer.commit()
        with pytest.raises(ottla.GroupMoved):
            await consumer.poll(timeout=PATIENCE_SECONDS)
        assert len(lost) == 2
        found = [await anext(consumer) for _ in range(20)]
    assert sorted(int(each.value) for each in found) == list(range(20))
