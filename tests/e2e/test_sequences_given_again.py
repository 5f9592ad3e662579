"""librdkafka gives the sequences of what it aborted unheard to its next transaction (ADR 51).

Apache Kafka 4.3 acknowledges the next transaction's batch as a repetition, and stores nothing, when
it has as many records; otherwise librdkafka ends with a fatal error.
"""

import time

import pytest

from ottla.testing import Broker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize(("aborted", "following"), [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_the_next_transaction_is_neither_lost_nor_the_end_of_its_producer(aborted, following):
    from confluent_kafka import KafkaException

    with Broker() as broker:
        producer = producer_of(broker)
        commit(producer, ["first"])
        producer.begin_transaction()
        with broker.faults.drop("Produce", after=True, times=1) as lost:
            for number in range(aborted):
                producer.produce("t", f"aborted {number}")
            deadline = time.monotonic() + 20
            while not lost.struck:
                assert time.monotonic() < deadline
                producer.poll(0.01)
        abort(producer)
        values = [f"following {number}" for number in range(following)]
        with pytest.raises(KafkaException) as refused:
            commit(producer, values)
        error = refused.value.args[0]
        assert (error.name(), error.fatal()) == ("UNKNOWN_PRODUCER_ID", False)
        assert error.txn_requires_abort()
        abort(producer)
        commit(producer, values)
        assert committed(broker) == ["first", *values]


def producer_of(broker):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "x",
            "log_level": 0,
            "linger.ms": 20,
            # What came to nothing waits behind an abort, which throws it away.
            "retry.backoff.ms": 1_000,
            "retry.backoff.max.ms": 1_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
    )
    producer.init_transactions(20)
    return producer


def commit(producer, values):
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value)
    producer.commit_transaction(20)


def abort(producer):
    """Abort; again, if the batches came back to the queue too late to be thrown away."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + 20
    while True:
        try:
            producer.abort_transaction(0.5)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def committed(broker):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found, deadline = [], time.monotonic() + 20
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().name() == "_PARTITION_EOF"
            consumer.close()
            return found
        found.append(message.value().decode())
