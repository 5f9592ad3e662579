"""Old records go: by the clients' DeleteRecords, by retention, and they stay gone."""

import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def make_topic(bootstrap, name, **config):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    return admin


def produce(bootstrap, name, count, *, size=10):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000})
    for number in range(count):
        producer.produce(name, b"%d".ljust(size) % number, partition=0)
    assert producer.flush(30) == 0


def offsets(bootstrap, name):
    """What a consumer that starts at the earliest offset reads, up to the end."""
    from kafka import KafkaConsumer, TopicPartition

    where = TopicPartition(name, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        start, end = (
            consumer.beginning_offsets([where])[where],
            consumer.end_offsets([where])[where],
        )
        found = []
        while start < end and (not found or found[-1] < end - 1):
            for records in consumer.poll(5000).values():
                found += [record.offset for record in records]
    finally:
        consumer.close()
    return start, found


def test_delete_records_of_librdkafka_and_kafka_python(target, topic_name):
    from confluent_kafka import KafkaException, TopicPartition
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as PythonTopicPartition

    admin = make_topic(target.bootstrap, topic_name)
    produce(target.bootstrap, topic_name, 100)

    def delete(offset):
        wanted = TopicPartition(topic_name, 0, offset)
        (future,) = admin.delete_records([wanted]).values()
        return future.result(30).low_watermark

    assert delete(30) == 30
    assert offsets(target.bootstrap, topic_name) == (30, list(range(30, 100)))
    with pytest.raises(KafkaException) as caught:
        delete(101)
    assert caught.value.args[0].name() == "OFFSET_OUT_OF_RANGE"
    python = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    try:
        python.delete_records({PythonTopicPartition(topic_name, 0): 60})
    finally:
        python.close()
    assert offsets(target.bootstrap, topic_name) == (60, list(range(60, 100)))
    assert delete(-1) == 100
    assert offsets(target.bootstrap, topic_name) == (100, [])


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(60)
def test_delete_records_of_kafkas_own_tool(target, kafka_tool, topic_name, tmp_path):
    make_topic(target.bootstrap, topic_name)
    produce(target.bootstrap, topic_name, 10)
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        f'{{"partitions": [{{"topic": "{topic_name}", "partition": 0, "offset": 4}}]}}'
    )
    told = kafka_tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        *("--bootstrap-server", target.bootstrap, "--offset-json-file", wanted),
    )
    assert f"partition: {topic_name}-0\tlow_watermark: 4" in told
    assert offsets(target.bootstrap, topic_name) == (4, list(range(4, 10)))


@pytest.mark.parametrize("stop", ["stop", "kill9"])
def test_deleted_records_stay_deleted_through_a_restart(ottla_server_factory, topic_name, stop):
    from confluent_kafka import TopicPartition

    peer = ottla_server_factory()
    admin = make_topic(peer.bootstrap, topic_name)
    produce(peer.bootstrap, topic_name, 20)
    (future,) = admin.delete_records([TopicPartition(topic_name, 0, 7)]).values()
    assert future.result(30).low_watermark == 7
    getattr(peer, stop)()
    peer.start()
    assert offsets(peer.bootstrap, topic_name) == (7, list(range(7, 20)))


def test_retention_by_size_frees_the_disk(ottla_server_factory, topic_name):
    peer = ottla_server_factory(
        {"log.retention.check.interval.ms": 100, "log.segment.delete.delay.ms": 200}
    )
    limit = 2 << 20
    make_topic(
        peer.bootstrap,
        topic_name,
        **{"segment.bytes": str(1 << 20), "retention.bytes": str(limit)},
    )
    produce(peer.bootstrap, topic_name, 8000, size=1000)

    def logs():
        directory = next(Path(peer.data).rglob(f"{topic_name}-0"))
        return [path for path in directory.iterdir() if ".log" in path.name]

    deadline = time.monotonic() + 20
    while sum(path.stat().st_size for path in logs()) > limit + (1 << 20):
        assert time.monotonic() < deadline, logs()
        time.sleep(0.05)
    start, found = offsets(peer.bootstrap, topic_name)
    assert start > 3000
    assert found == list(range(start, 8000))
