"""The project's own client, both forms, against a running ``ottla serve``."""

import pytest

from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.asyncio.producer import Producer
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.reading import read_records
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.records.batch_walk import next_offset


def settings(server):
    return ClientSettings(bootstrap=parse_bootstrap(server.bootstrap), retry_timeout_ms=20_000)


async def fill(server, topic, count):
    async with Cluster(settings(server)) as cluster:
        await Admin(cluster).create_topic(topic, partition_count=2)
        async with Producer(cluster) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=number % 2)


def read_all(client, partitions):
    """Return the values of each partition, fetched bytes first, opened afterwards."""
    positions = client.earliest_offsets(partitions)
    ends = client.latest_offsets(partitions)
    values = {each: [] for each in partitions}
    while left := {each: at for each, at in positions.items() if at < ends[each]}:
        limits = FetchLimits(partition_max_bytes=2000)
        for each, fetched in client.fetch(left, limits).items():
            records = read_records(fetched.records, left[each])
            values[each] += [record.value for record in records]
            positions[each] = next_offset(fetched.records, left[each])
    return values


async def test_a_blocking_reader_gets_what_a_producer_sent(ottla_server):
    await fill(ottla_server, "blocking", 1000)
    with BlockingClient(settings(ottla_server)) as client:
        partitions = client.partitions("blocking")
        assert partitions == [TopicPartition("blocking", 0), TopicPartition("blocking", 1)]
        values = read_all(client, partitions)
    for each in partitions:
        assert values[each] == [b"%d" % number for number in range(each.partition, 1000, 2)]


async def test_both_forms_survive_a_restart_of_the_broker(ottla_server_factory):
    server = ottla_server_factory()
    await fill(server, "t", 10)
    here = TopicPartition("t", 0)
    with BlockingClient(settings(server)) as client:
        assert client.latest_offsets([here]) == {here: 5}
        async with Cluster(settings(server)) as cluster, Fetcher(cluster) as fetcher:
            await fetcher.assign({here: 0})
            records = fetcher.records()
            assert [(await anext(records))[1].offset for _ in range(5)] == [0, 1, 2, 3, 4]
            port = server.port
            server.kill9()
            server._asked_port = port
            server.start()
            assert client.latest_offsets([here]) == {here: 5}
            async with Producer(cluster) as producer:
                await producer.send("t", b"later", partition=0)
            assert (await anext(records))[1].value == b"later"


def test_an_unknown_topic_is_told_at_once(ottla_server):
    with (
        BlockingClient(settings(ottla_server)) as client,
        pytest.raises(KafkaError) as caught,
    ):
        client.partitions("no-such-topic")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
