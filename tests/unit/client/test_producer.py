import asyncio

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.client.asyncio.producer import Producer, ProducerSettings
from ottla.client.wire.partitioner import murmur2, partition_of_key
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import read_header
from ottla.records.compression import Codec
from ottla.records.decode import decode_batches


def written(broker, partition):
    return [
        record
        for batch in broker.logs[partition]
        for decoded in decode_batches(batch, 1 << 20)
        for record in decoded.records
    ]


async def test_records_arrive_in_order_with_their_offsets(broker, cluster):
    async with Producer(cluster) as producer:
        promises = [
            await producer.send("t", b"v%d" % n, partition=1, headers=[("h", None)])
            for n in range(50)
        ]
    assert [each.result().offset for each in promises] == list(range(50))
    records = written(broker, 1)
    assert [each.value for each in records] == [b"v%d" % n for n in range(50)]
    assert records[0].headers == (("h", None),)


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec(broker, cluster, codec):
    async with Producer(cluster, ProducerSettings(codec=codec)) as producer:
        await producer.send("t", b"x" * 1000, key=b"k", partition=0)
    assert read_header(broker.logs[0][0]).codec == codec
    assert written(broker, 0)[0].value == b"x" * 1000


async def test_sequences_count_on_from_batch_to_batch(broker, cluster):
    async with Producer(cluster, ProducerSettings(linger_ms=60_000)) as producer:
        for _ in range(3):
            await producer.send("t", b"1", partition=0)
            await producer.send("t", b"2", partition=0)
            await producer.flush()
    headers = [read_header(batch) for batch in broker.logs[0]]
    assert [each.base_sequence for each in headers] == [0, 2, 4]
    assert {each.producer_id for each in headers} == {101}


async def test_a_retry_sends_the_same_batch_again(broker, cluster):
    broker.faults[ApiKey.PRODUCE] = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    async with Producer(cluster) as producer:
        promise = await producer.send("t", b"v", partition=0)
    assert promise.result().offset == 0
    sent = [
        bytes(each.topic_data[0].partition_data[0].records) for each in broker.calls(ApiKey.PRODUCE)
    ]
    assert len(sent) == 3
    assert len(set(sent)) == 1


async def test_a_lost_connection_is_a_reason_to_retry(broker, cluster):
    async with Producer(cluster) as producer:
        await producer.send("t", b"v", partition=0)
        await producer.flush()
        broker.connections[-1].abort()
        promise = await producer.send("t", b"w", partition=0)
    assert promise.result().offset == 1


async def test_a_refused_batch_fails_and_sequences_begin_anew(broker, cluster):
    broker.faults[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
    async with Producer(cluster) as producer:
        refused = await producer.send("t", b"v", partition=0)
        await producer.flush()
        accepted = await producer.send("t", b"w", partition=0)
    with pytest.raises(KafkaError, match="t-0"):
        refused.result()
    assert accepted.result().offset == 0
    header = read_header(broker.logs[0][0])
    assert (header.producer_id, header.base_sequence) == (102, 0)


async def test_nothing_is_sent_behind_a_gap_when_that_is_asked_for(broker, cluster):
    broker.faults[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
    settings = ProducerSettings(batch_size_bytes=1, linger_ms=60_000, stops_at_failure=True)
    async with Producer(cluster, settings) as producer:
        promises = [await producer.send("t", b"%d" % n, partition=0) for n in range(3)]
        await producer.flush()
        assert {each.exception().code for each in promises} == {ErrorCode.MESSAGE_TOO_LARGE}
        with pytest.raises(KafkaError):
            await producer.send("t", b"later", partition=0)
        other = await producer.send("t", b"there", partition=1)
    assert other.result().offset == 0
    assert (written(broker, 0), len(broker.calls(ApiKey.PRODUCE))) == ([], 2)


async def test_a_duplicate_is_a_success(broker, cluster):
    broker.faults[ApiKey.PRODUCE] = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
    async with Producer(cluster) as producer:
        promise = await producer.send("t", b"v", partition=0)
    assert promise.result().offset == -1


async def test_no_acks_no_answer_no_identity(broker, cluster):
    async with Producer(cluster, ProducerSettings(acks=0)) as producer:
        promise = await producer.send("t", b"v", partition=0)
    assert promise.result().offset == -1
    for _ in range(10):  # turns of the loop until what was sent has arrived
        await asyncio.sleep(0)
    assert not broker.calls(ApiKey.INIT_PRODUCER_ID)
    assert read_header(broker.logs[0][0]).producer_id == -1


async def test_linger_gathers_what_comes_together(broker, cluster):
    async with Producer(cluster, ProducerSettings(linger_ms=60_000)) as producer:
        for _ in range(10):
            await producer.send("t", b"v", partition=0)
            await asyncio.sleep(0)
    assert len(broker.logs[0]) == 1


async def test_a_batch_leaves_when_its_linger_is_over(broker, cluster):
    async with Producer(cluster, ProducerSettings(linger_ms=1)) as producer:
        promise = await producer.send("t", b"v", partition=0)
        async with asyncio.timeout(10):
            assert (await promise).offset == 0


async def test_a_full_batch_does_not_linger(broker, cluster):
    settings = ProducerSettings(linger_ms=60_000, batch_size_bytes=200)
    async with Producer(cluster, settings) as producer:
        first = await producer.send("t", b"x" * 300, partition=0)
        async with asyncio.timeout(1):
            assert (await first).offset == 0


async def test_send_waits_while_the_buffer_is_full(broker, cluster):
    settings = ProducerSettings(linger_ms=0, buffer_bytes=100)
    async with Producer(cluster, settings) as producer:
        first = await producer.send("t", b"x" * 200, partition=0)
        await producer.send("t", b"y", partition=0)
        assert first.done()


async def test_no_identity_no_delivery(broker, cluster):
    broker.faults[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    async with Producer(cluster) as producer:
        promise = await producer.send("t", b"v", partition=0)
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        promise.result()


async def test_a_wrong_partition_is_refused_at_once(broker, cluster):
    async with Producer(cluster) as producer:
        with pytest.raises(KafkaError, match="2 partitions"):
            await producer.send("t", b"v", partition=2)


async def test_equal_keys_meet(broker, cluster):
    async with Producer(cluster) as producer:
        promises = [await producer.send("t", b"v", key=b"key") for _ in range(5)]
    expected = TopicPartition("t", partition_of_key(b"key", 2))
    assert {each.result().partition for each in promises} == {expected}


@pytest.mark.parametrize(
    "key", [b"", b"a", b"ab", b"abc", b"abcd", b"21", b"foobar", bytes(range(256))]
)
def test_the_partitioner_is_javas(key):
    assert murmur2(key) & 0x7FFFFFFF == kafka_python_murmur2(key) & 0x7FFFFFFF


async def test_records_without_promises_are_told_of_batch_by_batch(broker, cluster):
    told = []
    async with Producer(cluster, told=told.append) as producer:
        await producer.put("t", (7, b"k", b"a", (("h", None),)), 0)
        await producer.put_all(
            TopicPartition("t", 1), [(7, None, b"b", ()), (8, None, None, ())], 1
        )
        promise = await producer.send("t", b"c", partition=1)
    assert sorted(told) == [
        (TopicPartition("t", 0), 1, 0, None),
        (TopicPartition("t", 1), 3, 0, None),
    ]
    assert promise.result().offset == 2
    assert [(each.timestamp, each.value) for each in written(broker, 1)][:2] == [
        (7, b"b"),
        (8, None),
    ]
    assert written(broker, 0)[0].headers == (("h", None),)


async def test_more_at_once_than_a_batch_takes_is_split(broker, cluster):
    told = []
    settings = ProducerSettings(batch_size_bytes=1000, linger_ms=60_000)
    rows = [(1, None, b"%03d" % n * 50, ()) for n in range(20)]
    async with Producer(cluster, settings, told=told.append) as producer:
        await producer.put_all(TopicPartition("t", 0), rows, 20 * 150)
    assert [each.value for each in written(broker, 0)] == [row[2] for row in rows]
    assert max(map(len, broker.logs[0])) < 1100
    assert sum(each.record_count for each in told) == 20


async def test_records_without_promises_that_fail_are_told_of(broker, cluster):
    told = []
    broker.faults[ApiKey.PRODUCE] = [ErrorCode.INVALID_RECORD]
    async with Producer(cluster, told=told.append) as producer:
        await producer.put("t", (7, None, b"a", ()), 0)
    [(partition, count, offset, error)] = told
    assert (partition, count, offset) == (TopicPartition("t", 0), 1, -1)
    assert error.code is ErrorCode.INVALID_RECORD


async def test_a_partition_without_a_leader_holds_no_other_up(broker, cluster):
    broker.leaderless = {0}
    settings = ProducerSettings(linger_ms=60_000, delivery_timeout_ms=20_000)
    async with Producer(cluster, settings) as producer, asyncio.timeout(10):
        waits = await producer.send("t", b"v", partition=0)
        written_to = await producer.send("t", b"v", partition=1)
        flushing = asyncio.create_task(producer.flush())
        assert (await written_to).offset == 0
        assert not waits.done()
        broker.leaderless = set()
        assert (await waits).offset == 0
        await flushing
