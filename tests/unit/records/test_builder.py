import pytest

from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.decode import decode_batch
from ottla.records.record import Record

RECORDS = [
    Record(7, 100, key=b"k", value=b"v", headers=(("h", b"1"), ("h", None), ("", b""))),
    Record(9, 90, key=None, value=None),
    Record(20, 130, key=b"", value=b""),
]


def test_offsets_are_counted_or_kept():
    header, records = decode_batch(memoryview(build_batch(RECORDS, base_offset=50)), 0)
    assert [r.offset for r in records] == [50, 51, 52]
    assert (header.base_offset, header.last_offset, header.record_count) == (50, 52, 3)
    header, records = decode_batch(memoryview(build_batch(RECORDS, base_offset=None)), 0)
    assert records == RECORDS
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 20, 3)


def test_times_and_every_header_field():
    header = b.read_header(
        build_batch(
            RECORDS,
            producer_id=1 << 40,
            producer_epoch=3,
            base_sequence=12,
            leader_epoch=4,
            transactional=True,
        )
    )
    assert (header.base_timestamp, header.max_timestamp) == (100, 130)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 3, 12)
    assert header.partition_leader_epoch == 4
    assert header.is_transactional
    assert not header.is_control


def test_a_plain_batch_byte_for_byte():
    data = build_batch([Record(timestamp=1, key=b"k", value=b"v")])
    assert data[61:] == bytes.fromhex("10 00 00 00 02 6b 02 76 00".replace(" ", ""))
    assert data[:17].hex() == "0000000000000000" + "0000003a" + "ffffffff" + "02"
    assert data[21:61].hex() == (
        "0000" + "00000000" + 2 * "0000000000000001" + "ffff" * 4 + "ffff" + "ffffffff" + "00000001"
    )
    assert b.batch_crc(memoryview(data)) == b.read_header(data).crc


def test_no_records_make_no_batch():
    with pytest.raises(AssertionError):
        build_batch([])
