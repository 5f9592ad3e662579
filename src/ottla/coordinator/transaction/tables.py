"""Key and value of ``__transaction_state``, as Kafka 4.3 writes them. See docs/formats.

    key    = type int16 (0), then the table
    value  = version int16, then the table in that version; no value: the id is forgotten

Source: the message schemas in Kafka's transaction coordinator; records that a live Kafka wrote.
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string

TRANSACTION_KEY = 0
VALUE_VERSION = 1


class TransactionLogKey(Message, versions="0"):
    """A transactional id."""

    transactional_id: str = string()


class PartitionsOfTopic(Struct):
    """Partitions that a transaction writes to."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The state of a transactional id."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsOfTopic] | None = array(PartitionsOfTopic, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2)
