import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import batch_crc, read_header
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.decode import decode_batch
from ottla.records.recode import compressed_batch, decompressed_batch
from ottla.records.record import Record

RECORDS = [
    Record(timestamp=1_700_000_000_000 + at, key=b"%d" % at, value=b"v" * 99, headers=(("h", b""),))
    for at in range(20)
]


def produced(codec):
    return memoryview(
        build_batch(
            RECORDS, codec=codec, producer_id=7, producer_epoch=3, base_sequence=40, leader_epoch=5
        )
    )


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_another_codec_changes_nothing_but_the_bytes(source, target):
    view = produced(source)
    before = decode_batch(view, 1 << 20)
    opened, header = decompressed_batch(view, read_header(view), 1 << 20)
    assert header.codec == Codec.NONE
    stored, header = compressed_batch(opened, header, target, None)
    assert header == read_header(stored)
    assert (header.codec, header.size_bytes) == (target, len(stored))
    assert header.crc == batch_crc(stored)
    after = decode_batch(stored, 1 << 20)
    assert after.records == before.records
    kept = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**kept) == before.header._replace(**kept)


def test_a_batch_that_stays_uncompressed_is_not_copied():
    view = produced(Codec.NONE)
    header = read_header(view)
    assert decompressed_batch(view, header, 1)[0] is view
    assert compressed_batch(view, header, Codec.NONE, None)[0] is view


def test_a_bomb_is_not_opened_past_the_bound():
    view = memoryview(build_batch([Record(value=bytes(1 << 20))], codec=Codec.GZIP))
    with pytest.raises(KafkaError) as caught:
        decompressed_batch(view, read_header(view), 1 << 16)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
