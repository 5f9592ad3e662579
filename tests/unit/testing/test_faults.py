"""Faults that strike real clients, lives of a broker, and time that jumps for them."""

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import ottla
from ottla.errors import OttlaError
from ottla.testing import Broker
from ottla.testing.faults import NoSuchFault, UnmatchedFault

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["thread", "process"])
def broker(request):
    with Broker(process=request.param == "process") as made:
        yield made


@pytest.fixture(autouse=True)
def no_fault_is_left(request):
    yield
    if "broker" in request.fixturenames:
        assert request.getfixturevalue("broker").faults.clear() == []


@pytest.fixture
def producer_of():
    """Make producers of confluent-kafka that say nothing."""

    def make(broker, **options):
        return Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "linger.ms": 0,
                "retry.backoff.ms": 5,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )

    return make


def consumer_of(broker, group, **options):
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **options,
        }
    )


def first_of(consumer):
    """Return the first record; librdkafka tells of errors that pass in the same way."""
    for _ in range(100):
        message = consumer.poll(30)
        if message is not None and message.error() is None:
            return message
    raise AssertionError("no record")


def delivered(producer, topic, value=b"v"):
    """Produce a record; return its delivery's error and offset."""
    found = []
    producer.produce(topic, value, on_delivery=lambda error, at: found.append((error, at.offset())))
    assert producer.flush(20) == 0
    [(error, offset)] = found
    return error, offset


def test_a_producer_gets_over_an_error_that_passes(broker, producer_of):
    topic = broker.create_topic()
    with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2) as fault:
        assert delivered(producer_of(broker), topic) == (None, 0)
        assert fault.struck == 2
    assert fault.struck == 2
    assert len(broker.records(topic)) == 1


def test_an_error_after_the_work_makes_a_duplicate_without_idempotence(broker, producer_of):
    for idempotent in (False, True):
        topic = broker.create_topic()
        producer = producer_of(broker, enable_idempotence=idempotent)
        fault = broker.faults.error("produce", 7, after=True, topic=topic)
        assert delivered(producer, topic)[0] is None
        assert (fault.struck, len(broker.records(topic))) == (1, 1 if idempotent else 2)


def test_an_error_that_does_not_pass_reaches_the_application(broker, producer_of):
    topic = broker.create_topic()
    with broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", partition=0):
        error, _ = delivered(producer_of(broker), topic)
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.records(topic) == []


@pytest.mark.parametrize("after", [False, True])
def test_a_dropped_connection(broker, producer_of, after):
    topic = broker.create_topic()
    producer = producer_of(broker, client_id="dropped", enable_idempotence=True)
    with broker.faults.drop("Produce", after=after, client_id="dropped") as fault:
        assert delivered(producer, topic) == (None, 0)
        assert fault.struck == 1
    assert len(broker.records(topic)) == 1


def test_a_delay_holds_an_answer(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "slow"})
    admin.list_topics(timeout=20)
    began = time.monotonic()
    with broker.faults.delay("Metadata", "300ms", client_id="slow", times=None) as fault:
        admin.list_topics(timeout=20)
    assert fault.struck >= 1
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("api", ["Produce", "Metadata", "InitProducerId"])
def test_a_throttled_client_is_told_to_wait_and_waits(broker, api):
    topic, told = broker.create_topic(), []
    config = {"bootstrap.servers": broker.bootstrap, "client.id": "throttled", "log_level": 0}
    producer = Producer({**config, "throttle_cb": told.append, "enable.idempotence": True})
    began = time.monotonic()
    with broker.faults.throttle(api, "300ms", client_id="throttled") as fault:
        assert delivered(producer, topic)[0] is None
        assert delivered(producer, topic)[0] is None
        assert fault.struck == 1
    if api == "Produce":  # librdkafka tells of that only.
        producer.poll(0)
        assert round(told[0].throttle_time, 3) == 0.3
        assert time.monotonic() - began >= 0.3
    assert len(broker.records(topic)) == 2


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_corrupt_batch_is_told_and_read_right_the_next_time(broker, size):
    topic = broker.create_topic()
    with ottla.Client(broker.bootstrap) as client, client.consumer() as consumer:
        consumer.assign({ottla.TopicPartition(topic, 0): "earliest"})
        with broker.faults.corrupt_batch(topic=topic) as fault:
            assert consumer.poll(timeout=1) == []
            assert fault.struck == 0  # Nothing was there to be damaged.
            broker.produce(topic, "x" * size)
            with pytest.raises(ottla.ClientError, match="CRC"):
                consumer.poll(timeout=60)
            assert fault.struck == 1
            assert [len(each.value) for each in consumer.poll(timeout=60)] == [size]
    assert [len(each.value) for each in broker.records(topic)] == [size]


def test_an_error_in_an_answer_that_only_tells(broker):
    topic = broker.create_topic(partitions=2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with broker.faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic=topic, times=None):
        told = admin.list_topics(topic, timeout=20)
    assert told.topics[topic].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(told.brokers) == 1


def test_a_consumer_gets_over_errors_of_its_group(broker, producer_of):
    topic = broker.create_topic()
    broker.produce(topic, "v")
    faults = [
        broker.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", group="getting-over"),
        broker.faults.error("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", group="getting-over"),
        broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0),
        broker.faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", group="getting-over"),
    ]
    consumer = consumer_of(broker, "getting-over", **{"enable.auto.commit": False})
    consumer.subscribe([topic])
    message = first_of(consumer)
    assert message.value() == b"v"
    consumer.commit(message, asynchronous=False)
    consumer.close()
    assert [fault.struck for fault in faults] == [1, 1, 1, 1]
    assert broker.lag("getting-over", topic) == 0


def test_a_fault_that_meets_nothing_is_told():
    with Broker() as broker:
        broker.faults.error("Fetch", "CORRUPT_MESSAGE", topic="no")
        with broker.faults.delay("Metadata", 0.001) as met:
            AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20)
        assert met.struck
        with pytest.warns(UnmatchedFault, match="error CORRUPT_MESSAGE to Fetch, topic no") as told:
            broker.stop()
        assert len(told) == 1


def test_a_fault_must_make_sense(broker):
    with pytest.raises(NoSuchFault, match="no API Produze; did you mean Produce"):
        broker.faults.drop("Produze")
    with pytest.raises(NoSuchFault, match="no error NOT_LEADER; did you mean NOT_LEADER_OR"):
        broker.faults.error("Produce", "NOT_LEADER")
    with pytest.raises(TypeError, match="a fault has no topics"):
        broker.faults.drop("Produce", topics="t")


def test_the_calls_of_the_broker_itself_are_not_struck(in_thread):
    broker = in_thread
    with broker.faults.drop(None, times=None) as fault:
        topic = broker.create_topic()
        broker.produce(topic, "x")
        assert len(broker.records(topic)) == 1
        assert fault.struck == 0
    broker.faults._planned.clear()


def test_a_full_disk_passes(in_thread, producer_of):
    topic = in_thread.create_topic()
    producer = producer_of(in_thread)
    assert delivered(producer, topic) == (None, 0)
    with in_thread.faults.disk_full() as fault:
        producer.produce(topic, b"v")
        until = time.monotonic() + 30
        while not fault.struck and time.monotonic() < until:
            assert producer.flush(0.02) == 1
        assert fault.struck
    assert producer.flush(30) == 0
    assert len(in_thread.records(topic)) == 2


def test_an_fsync_that_fails_takes_the_record_with_it(in_thread, producer_of):
    topic = in_thread.create_topic()
    producer = producer_of(in_thread, message_send_max_retries=0)
    assert delivered(producer, topic) == (None, 0)
    with in_thread.faults.fsync_error() as fault:
        error, _ = delivered(producer, topic)
        assert error is not None
        assert fault.struck == 1


@pytest.mark.parametrize("how", [{}, {"kill": True}, {"power_loss": True}])
def test_what_was_acknowledged_outlives_the_broker(in_thread, producer_of, how):
    topic = in_thread.create_topic(config={"retention.ms": "123456"})
    producer = producer_of(in_thread, enable_idempotence=True)
    address = in_thread.bootstrap
    for life in range(3):
        assert delivered(producer, topic, b"%d" % life) == (None, life)
        in_thread.restart(**how)
        assert in_thread.bootstrap == address
    assert [each.value for each in in_thread.records(topic)] == [b"0", b"1", b"2"]


def test_a_directory_outlives_a_kill(tmp_path, producer_of):
    for process in (False, True):
        with Broker(data=str(tmp_path / str(process)), process=process) as broker:
            broker.produce("kept", "x")
            broker.restart(kill=True)
            assert len(broker.records("kept")) == 1
            with pytest.raises((OttlaError, ValueError), match="only a disk in memory"):
                broker.restart(power_loss=True)
            assert len(broker.records("kept")) == 1


@pytest.mark.parametrize("process", [False, True])
def test_days_of_a_consumer_a_zombie_and_a_group_in_a_moment(process, producer_of):
    with Broker(process=process) as broker:
        see_days_pass(broker, producer_of)


def see_days_pass(broker, producer_of):
    topic = broker.create_topic()
    zombie = producer_of(broker, transactional_id="zombie", transaction_timeout_ms=60_000)
    zombie.init_transactions(20)
    zombie.begin_transaction()
    zombie.produce(topic, b"open")
    zombie.flush(20)
    assert broker.records(topic) == []
    broker.clock.advance("2m")
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(20)
    assert caught.value.args[0].code() in {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
    broker.produce(topic, "v")
    # Its heartbeats are rare, or one would find out between the jump and the commit.
    times = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 44_000}
    member = consumer_of(broker, "timed-out", **times)
    member.subscribe([topic])
    assert first_of(member).value() == b"v"
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    broker.clock.advance("46s")
    with pytest.raises(KafkaException) as caught:
        member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    member.close()
    assert broker.lag("timed-out", topic) == 0
    broker.clock.advance("8d")
    assert broker.records(topic) == []


def test_the_plugin_heals_what_a_test_leaves_and_warns(tmp_path):
    (tmp_path / "test_it.py").write_text(
        """
def test_one(ottla_broker):
    ottla_broker.faults.drop("Fetch", topic="nothing", times=None)

def test_two(ottla_broker):
    assert ottla_broker.faults.unmatched() == []
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "UnmatchedFault: nothing met drop of Fetch, topic nothing, times None" in done.stdout
    assert "2 passed, 1 warning" in done.stdout


def test_a_broker_that_is_killed_complains_of_nothing(caplog):
    """It said that its stop did not come to its end, as a kill has it."""
    with Broker() as broker:
        topic = broker.create_topic()
        broker.produce(topic, "x")
        broker.restart(kill=True)
        assert [each.value for each in broker.records(topic)] == [b"x"]
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []
