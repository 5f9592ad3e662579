"""Records of transactional ids are the bytes that Apache Kafka 4.3.0 wrote; others are refused."""

import pytest

from ottla.coordinator.records import StoredRecord
from ottla.coordinator.transaction.records import (
    read_id,
    read_transaction,
    tombstone,
    transaction_record,
)
from ottla.coordinator.transaction.transaction import Transaction, TransactionState
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

KEY = b"\0\0\0\x08x-4761ef"
OFFSETS = "__consumer_offsets"
PARTITIONS = "02135f5f636f6e73756d65725f6f666673657473020000001b00"
S = TransactionState


def of(state, epoch, start_ms, last_update_ms, **fields):
    return Transaction(
        transactional_id="x-4761ef",
        producer_id=9,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        previous_producer_id=9,
        **fields,
    )


WRITTEN_BY_KAFKA = [
    (
        "0001000000000000000900000000ea600000000001a1fece4b89ffffffffffffffff0100080000000000000009",
        of(S.EMPTY, 0, -1, 0x1A1FECE4B89, partitions=frozenset()),
    ),
    (
        "0001000000000000000900000000ea600401000001a1fece533d000001a1fece51c40100080000000000000009",
        of(S.COMPLETE_COMMIT, 0, 0x1A1FECE51C4, 0x1A1FECE533D, partitions=frozenset()),
    ),
    (
        "0001000000000000000900010000ea6002" + PARTITIONS + "000001a1fece56ad000001a1fece56a6"
        "020008000000000000000902020002",
        of(
            S.PREPARE_COMMIT,
            1,
            0x1A1FECE56A6,
            0x1A1FECE56AD,
            partitions=frozenset([TopicPartition(OFFSETS, 27)]),
            client_version=2,
        ),
    ),
]


@pytest.mark.parametrize(("value", "transaction"), WRITTEN_BY_KAFKA)
def test_what_kafka_wrote_is_what_is_written_and_read(value, transaction):
    record = transaction_record(transaction)
    assert record.key == KEY
    assert record.value.hex() == value
    stored = StoredRecord(0, -1, KEY, bytes.fromhex(value))
    assert read_id(stored) == "x-4761ef"
    assert read_transaction("x-4761ef", stored) == transaction


def test_a_next_producer_id_survives():
    transaction = of(
        S.PREPARE_ABORT, 32767, 5, 6, partitions=frozenset(), client_version=2, next_producer_id=10
    )
    stored = StoredRecord(0, -1, *transaction_record(transaction))
    assert read_transaction("x-4761ef", stored) == transaction


def test_version_0_has_no_tags():
    value = bytes.fromhex("0000" + "0000000000000009" + "0003" + "00000bb8" + "01")
    value += bytes.fromhex("00000001" + "0001" + "74" + "00000002" + "00000000" + "00000005")
    value += bytes.fromhex("0000000000000007" + "0000000000000006")
    found = read_transaction("x", StoredRecord(0, -1, KEY, value))
    assert found.partitions == {TopicPartition("t", 0), TopicPartition("t", 5)}
    assert (found.state, found.producer_epoch, found.start_ms) == (S.ONGOING, 3, 6)


def test_a_tombstone_has_no_value():
    assert tombstone("x-4761ef") == (KEY, None)


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\2", b"\0\1", bytes.fromhex(WRITTEN_BY_KAFKA[0][0])[:-9]]
)
def test_nonsense_is_refused(value):
    with pytest.raises(KafkaError) as caught:
        read_transaction("x", StoredRecord(3, -1, KEY, value))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_id_that_grew_too_long_is_refused():
    with pytest.raises(KafkaError):
        tombstone("\ufffd" * 20_000)
