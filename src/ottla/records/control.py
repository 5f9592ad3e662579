"""Control batches: the markers by which a broker ends a transaction in a partition.

A marker is a batch of one record with the control and transactional bits, the producer's id and
epoch, and no sequence. Clients never see it as data. Source: KIP-98, "Control messages". Grammar:

    key    = version int16 (0), type int16 (0: abort, 1: commit)
    value  = version int16 (0), coordinator_epoch int32

A later version may append fields to both; what is known is read, the rest ignored.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import build_batch
from ottla.records.record import Record

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The marker's word. Other numbers belong to Kafka's metadata log, not to data partitions."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    control_type: ControlType
    coordinator_epoch: int


def build_end_transaction_marker(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """Return the marker's batch, with base offset 0 and no leader epoch yet."""
    key = _KEY.pack(_VERSION, marker.control_type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(timestamp=timestamp_ms, key=key, value=value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type_of(key: bytes | None) -> ControlType | None:
    """Return the type that a control record's key names, or None for a type that we do not know.

    Raises ``KafkaError`` CORRUPT_MESSAGE for a key too short to name any.
    """
    if key is None or len(key) < _KEY.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"control record with key {key!r}")
    number: int = _KEY.unpack_from(key)[1]
    return ControlType(number) if number in tuple(ControlType) else None


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker:
    """Read a marker back. Raises ``KafkaError`` CORRUPT_MESSAGE if it is not one."""
    control_type = control_type_of(record.key)
    if control_type is None or record.value is None or len(record.value) < _VALUE.size:
        why = f"not a transaction marker: key {record.key!r}, value {record.value!r}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
    coordinator_epoch: int = _VALUE.unpack_from(record.value)[1]
    return EndTransactionMarker(control_type, coordinator_epoch)
