import asyncio

import pytest

from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.reading import read_records
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import patch_offsets
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record

HERE = TopicPartition("t", 0)


def store(broker, *batches, partition=0):
    for values in batches:
        base = broker.ends[partition]
        records = [Record(timestamp=1, value=value) for value in values]
        broker.logs[partition].append(build_batch(records, base_offset=base))
        broker.ends[partition] = base + len(values)


async def take(fetcher, count):
    taken = []
    async with asyncio.timeout(2):
        async for partition, record in fetcher.records():
            taken.append((partition.partition, record.offset, record.value))
            if len(taken) == count:
                return taken
    return taken


async def test_records_come_from_the_offset_on(broker, cluster):
    store(broker, [b"0", b"1", b"2"], [b"3"])
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 1})
        assert await take(fetcher, 3) == [(0, 1, b"1"), (0, 2, b"2"), (0, 3, b"3")]


async def test_two_partitions_of_a_broker_share_a_fetch(broker, cluster):
    store(broker, [b"a"])
    store(broker, [b"b"], partition=1)
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 0, TopicPartition("t", 1): 0})
        assert sorted(await take(fetcher, 2)) == [(0, 0, b"a"), (1, 0, b"b")]
    first = broker.calls(ApiKey.FETCH)[0]
    assert len(first.topics[0].partitions) == 2


async def test_a_partition_is_read_though_another_of_its_topic_is_offline(broker, cluster):
    store(broker, [b"0"])
    broker.leaderless.add(1)
    assert (await cluster.list_offsets({HERE: LATEST}))[HERE].offset == 1
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 0})
        assert await take(fetcher, 1) == [(0, 0, b"0")]


async def test_a_new_leader_is_looked_up_and_nothing_is_read_twice(broker, cluster):
    store(broker, [b"0"])
    broker.faults[ApiKey.FETCH] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 0})
        assert await take(fetcher, 1) == [(0, 0, b"0")]
        store(broker, [b"1"])
        assert await take(fetcher, 1) == [(0, 1, b"1")]
    assert len(broker.calls(ApiKey.METADATA)) == 3


async def test_an_offset_out_of_range_is_the_callers_to_decide(broker, cluster):
    broker.faults[ApiKey.FETCH] = [ErrorCode.OFFSET_OUT_OF_RANGE]
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 99})
        with pytest.raises(KafkaError, match="t-0 at offset 99"):
            await take(fetcher, 1)


async def test_a_lost_connection_is_reopened(broker, cluster):
    store(broker, [b"0"])
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 0})
        await take(fetcher, 1)
        broker.connections[-1].abort()
        store(broker, [b"1"])
        assert await take(fetcher, 1) == [(0, 1, b"1")]


async def test_a_reader_ahead_of_its_caller_pauses(broker, cluster):
    store(broker, *[[b"%d" % number] for number in range(100)])
    broker.fetched_one = broker.fetched

    def one_batch(asked):
        data = broker.fetched_one(asked)
        at = asked.fetch_offset
        data.records = b"".join(broker.logs[0][at : at + 1])
        return data

    broker.fetched = one_batch
    async with Fetcher(cluster) as fetcher:
        await fetcher.assign({HERE: 0})
        await asyncio.sleep(0.05)
        assert len(broker.calls(ApiKey.FETCH)) <= 4
        assert len(await take(fetcher, 100)) == 100


async def test_offsets_by_place(broker, cluster):
    store(broker, [b"0", b"1"])
    assert (await cluster.list_offsets({HERE: LATEST}))[HERE].offset == 2
    assert (await cluster.list_offsets({HERE: EARLIEST}))[HERE].offset == 0


async def test_a_leader_in_the_making_is_waited_for(broker, cluster):
    broker.faults[ApiKey.LIST_OFFSETS] = [ErrorCode.LEADER_NOT_AVAILABLE]
    broker.faults[ApiKey.METADATA] = [ErrorCode.LEADER_NOT_AVAILABLE]
    assert (await cluster.list_offsets({HERE: LATEST}))[HERE].offset == 0


async def test_an_unknown_topic_is_told_at_once(broker, cluster):
    broker.faults[ApiKey.METADATA] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await cluster.ensure(["t"])
    assert len(broker.calls(ApiKey.METADATA)) == 1


def batch(value, base, producer_id):
    return build_batch(
        [Record(timestamp=1, value=value)],
        base_offset=base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(kind, base, producer_id):
    marker = build_end_transaction_marker(
        EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1
    )
    patch_offsets(marker, base)
    return marker


def test_aborted_records_and_markers_are_left_out():
    log = memoryview(
        b"".join(
            (
                batch(b"lost", 0, 7),
                batch(b"kept", 1, 8),
                marker(ControlType.ABORT, 2, 7),
                batch(b"later", 3, 7),
                marker(ControlType.COMMIT, 4, 7),
            )
        )
    )
    committed = [each.value for each in read_records(log, 0, [(7, 0)])]
    assert committed == [b"kept", b"later"]
    everything = [each.value for each in read_records(log, 0)]
    assert everything == [b"lost", b"kept", b"later"]
    assert next_offset(log, 0) == 5
    assert next_offset(log[: len(log) - 1], 0) == 4
