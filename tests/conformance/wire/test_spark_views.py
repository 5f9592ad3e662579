"""Tasks that read one after the other share what they know of the cluster, and are not misled.

On Ottla and (``--target kafka``) Apache Kafka. Without Spark.
"""

import uuid

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.range_fetcher import VIEW_SECONDS_MAX
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.ids import TopicId
from ottla.spark.loss import TopicRecreated
from ottla.spark.offsets import OffsetRange
from ottla.spark.reading.read import fetch_ranges
from tests.conformance.wire.test_topics_made_anew import delete
from tools.wire_client import batch

PARTITIONS = 3


@pytest.fixture
def fill(wire, topic_name):
    """Create the topic with two records in each partition; return its id."""

    def run(value):
        topic_id = wire.create_topic(topic_name, PARTITIONS)
        for partition in range(PARTITIONS):
            produced = wire.produce(topic_name, batch([value] * 2), partition=partition)
            assert produced["error_code"] == 0
        return TopicId(uuid.UUID(str(topic_id)).bytes)

    return run


@pytest.fixture
def client(target, monkeypatch):
    """A client that counts its look-ups."""
    settings = ClientSettings(parse_bootstrap(target.bootstrap), retry_timeout_ms=20_000)
    with BlockingClient(settings) as client:
        client.look_ups = 0
        look_up = client.look_up

        def counted(topics, **more):
            client.look_ups += 1
            return look_up(topics, **more)

        monkeypatch.setattr(client, "look_up", counted)
        yield client


@pytest.fixture
def read(client, topic_name):
    def values(partition, topic_id, **more):
        wanted = OffsetRange(topic_name, partition, 0, 2, topic_id)
        rows = fetch_ranges(client, [wanted], columns=("value",), **more)
        return [value for each in rows for value in each.column("value").to_pylist()]

    return values


def test_the_tasks_of_a_topic_look_it_up_once(client, fill, read):
    topic_id = fill(b"v")
    for partition in range(PARTITIONS):
        assert read(partition, topic_id) == [b"v", b"v"]
    assert client.look_ups == 1
    client._viewed_at -= VIEW_SECONDS_MAX + 1
    assert read(0, topic_id) == [b"v", b"v"]
    assert client.look_ups == 2


def test_a_topic_made_anew_behind_the_view_is_noticed(wire, client, fill, read, topic_name):
    old = fill(b"old")
    assert read(0, old) == [b"old", b"old"]
    delete(wire, topic_name)
    new = fill(b"new")
    with pytest.raises(TopicRecreated):
        read(1, old)
    assert read(1, old, fail_on_data_loss=False) == []
    assert read(1, new) == [b"new", b"new"]
    assert read(2, new) == [b"new", b"new"]


def test_without_the_topics_id_each_task_looks(client, fill, read):
    fill(b"v")
    for _ in range(2):
        assert read(0, TopicId(bytes(16))) == [b"v", b"v"]
    assert client.look_ups == 2
