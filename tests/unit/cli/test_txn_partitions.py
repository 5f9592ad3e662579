"""Which open transactions nobody will end."""

from ottla.cli.txn import by_age
from ottla.cli.txn_partitions import NOT_IN_IT, UNKNOWN, Found, without_end
from ottla.client.asyncio.partitions import ActiveProducer
from ottla.client.asyncio.transactions import TransactionDescription
from ottla.ids import TopicPartition

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def found(producer_id, partition=HERE):
    return Found(partition, ActiveProducer(producer_id, 0, 5, 1000, 0, 42))


def transaction(producer_id, *partitions):
    return TransactionDescription("id", 1, "Ongoing", 60_000, 1, producer_id, 0, list(partitions))


def test_a_transaction_that_its_coordinator_knows_is_not_hanging():
    assert without_end([found(1)], {1: transaction(1, HERE, THERE)}) == []


def test_a_transaction_that_no_coordinator_knows_hangs():
    assert without_end([found(1), found(2)], {2: transaction(2, HERE)}) == [(found(1), UNKNOWN)]


def test_a_partition_that_the_coordinator_has_forgotten_hangs():
    assert without_end([found(1)], {1: transaction(1, THERE)}) == [(found(1), NOT_IN_IT)]


def test_the_oldest_transaction_is_first_and_ended_ones_are_left_out():
    rows = [{"id": "b", "started_ms": 20}, {"id": "x"}, {"id": "a", "started_ms": 3}]
    rows.append({"id": "y", "started_ms": None})
    assert [row["id"] for row in by_age(rows)] == ["a", "b"]
