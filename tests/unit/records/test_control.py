import pytest

from ottla.errors import KafkaError
from ottla.records.batch import NO_SEQUENCE
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    control_type_of,
    parse_end_transaction_marker,
)
from ottla.records.decode import decode_batch
from ottla.records.record import Record


@pytest.mark.parametrize("control_type", list(ControlType))
def test_a_marker_there_and_back(control_type):
    marker = EndTransactionMarker(control_type, 17)
    data = build_end_transaction_marker(marker, producer_id=5, producer_epoch=2, timestamp_ms=99)
    header, (record,) = decode_batch(memoryview(data), 0)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert (header.base_sequence, header.max_timestamp) == (NO_SEQUENCE, 99)
    assert parse_end_transaction_marker(record) == marker


def test_the_bytes_of_kip_98():
    marker = EndTransactionMarker(ControlType.COMMIT, 3)
    data = build_end_transaction_marker(marker, producer_id=5, producer_epoch=2, timestamp_ms=99)
    _, (record,) = decode_batch(memoryview(data), 0)
    assert (record.key.hex(), record.value.hex()) == ("00000001", "000000000003")


def test_later_versions_may_add_fields_and_other_types_are_not_ours():
    later = Record(key=b"\0\1\0\0more", value=b"\0\1\0\0\0\7more")
    assert parse_end_transaction_marker(later) == EndTransactionMarker(ControlType.ABORT, 7)
    assert control_type_of(b"\0\0\0\2") is None
    for key, value in [(None, b"\0" * 6), (b"\0\0\0", b"\0" * 6), (b"\0\0\0\2", b"\0" * 6)]:
        with pytest.raises(KafkaError):
            parse_end_transaction_marker(Record(key=key, value=value))
    for value in (None, b"\0\0\0"):
        with pytest.raises(KafkaError):
            parse_end_transaction_marker(Record(key=b"\0\0\0\1", value=value))
