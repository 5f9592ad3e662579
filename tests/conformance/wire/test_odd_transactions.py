"""Transactional requests that no usual client sends.

Asked of Apache Kafka 4.3.0, too (``--target kafka``).
"""

import uuid

import pytest

from tests.conformance.wire.transactional_client import Client

PARTITIONS = 40
"""So many markers take a moment."""


@pytest.fixture
def client(wire):
    made = Client(wire)
    assert made.init() == 0
    return made


@pytest.fixture
def topic(wire):
    name = f"odd-transactions-{uuid.uuid4().hex[:8]}"
    wire.create_topic(name, 1)
    return name


def test_no_client_adds_internal_topics_to_a_transaction(client, topic):
    # Told as to one who may not, though nobody is asked for permissions.
    assert client.add((topic, 0), ("__transaction_state", 0), ("nope", 0)) == {
        (topic, 0): 55,
        ("__transaction_state", 0): 29,
        ("nope", 0): 3,
    }


def test_a_transaction_begins_with_no_partition_at_all(client):
    assert client.add() == {}
    assert client.describe() == ("Ongoing", 0, set())
    assert client.end(version=4) == 0


def test_a_batch_without_a_sequence_is_refused_for_that(client, topic):
    assert client.produce(topic, -1) == 87


def test_an_id_without_a_transaction_is_older_than_any_duration(client, wire):
    """It has no start, which Kafka takes for one long ago."""
    asked = {"state_filters": [], "producer_id_filters": [client.producer_id]}
    answer = wire.call("list_transactions", 1, **asked | {"duration_filter": 100_000})
    assert [one["transaction_state"] for one in answer["transaction_states"]] == ["Empty"]


def test_who_aborts_the_next_transaction_while_one_still_ends_is_not_fenced(wire):
    """It has the epoch that the end told it, before the markers are written."""
    topic = f"odd-transactions-{uuid.uuid4().hex[:8]}"
    wire.create_topic(topic, PARTITIONS)
    for _ in range(5):
        client = Client(wire)
        assert client.init() == 0
        assert set(client.add(*((topic, index) for index in range(PARTITIONS))).values()) == {0}
        who = {"transactional_id": client.name, "producer_id": client.producer_id}
        for epoch, committed in ((0, True), (1, False)):
            asked = who | {"producer_epoch": client.epoch + epoch, "committed": committed}
            wire.send_frame(wire.encode("end_txn", 5, **asked))
        ended, aborted = (wire.decode("end_txn", 5, wire.receive_frame()) for _ in range(2))
        assert ended["error_code"] == 0
        assert aborted["error_code"] in (0, 51)
        client.epoch += 1 + (aborted["error_code"] == 0)
        assert client.end(commit=False) == (0, 1)
