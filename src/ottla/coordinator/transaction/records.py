"""Writes and reads the records of ``__transaction_state``. Pure.

Writes what Kafka 4.3 writes; reads every version there ever was.
"""

from struct import Struct

from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.transaction import tables
from ottla.coordinator.transaction.transaction import (
    STATE_NUMBERS,
    STATES,
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.ids import TopicPartition

_INT16 = Struct(">h")
_VERSIONS = range(2)
_TEXT_BYTES_MAX = 32767


def transaction_record(transaction: Transaction) -> CoordinatorRecord:
    """Return the record of a transactional id. Raises KafkaError if its text is too long."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    value = tables.TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATE_NUMBERS[transaction.state],
        # As Kafka: an empty list where there were partitions, null where there were none yet.
        transaction_partitions=(
            None
            if transaction.state is TransactionState.EMPTY
            else [
                tables.PartitionsOfTopic(topic=topic, partition_ids=partitions)
                for topic, partitions in topics.items()
            ]
        ),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    version = tables.VALUE_VERSION
    key = transaction_key(transaction.transactional_id)
    return CoordinatorRecord(key, _INT16.pack(version) + value.encode(version))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the tombstone of an id."""
    return CoordinatorRecord(transaction_key(transactional_id), None)


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of an id. Raises KafkaError if it is too long to be stored."""
    if len(transactional_id.encode()) > _TEXT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a transactional id that is too long")
    key = tables.TransactionLogKey(transactional_id=transactional_id)
    return _INT16.pack(tables.TRANSACTION_KEY) + key.encode(0)


def is_transaction(stored: StoredRecord) -> bool:
    """Tell whether this version knows the type of the record."""
    return (
        len(stored.key) >= _INT16.size
        and _INT16.unpack_from(stored.key)[0] == tables.TRANSACTION_KEY
    )


def read_id(stored: StoredRecord) -> str:
    """Return the transactional id. Raises KafkaError (CORRUPT_MESSAGE)."""
    try:
        key, _ = tables.TransactionLogKey.decoder(0)(
            memoryview(stored.key), _INT16.size, len(stored.key)
        )
    except MalformedMessage as error:
        raise _senseless(stored, str(error)) from error
    return key.transactional_id


def read_transaction(transactional_id: str, stored: StoredRecord) -> Transaction:
    """Return the state of an id. Raises KafkaError (CORRUPT_MESSAGE)."""
    data = memoryview(stored.value or b"")
    version: int = _INT16.unpack_from(data)[0] if len(data) >= _INT16.size else -1
    if version not in _VERSIONS:
        raise _senseless(stored, f"a value of version {version}")
    try:
        value, _ = tables.TransactionLogValue.decoder(version)(data, _INT16.size, len(data))
    except MalformedMessage as error:
        raise _senseless(stored, str(error)) from error
    state = STATES.get(value.transaction_status)
    if state is None:
        raise _senseless(stored, f"a state of number {value.transaction_status}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(one.topic, index)
            for one in value.transaction_partitions or ()
            for index in one.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _senseless(stored: StoredRecord, why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"offset {stored.offset}: {why}")
