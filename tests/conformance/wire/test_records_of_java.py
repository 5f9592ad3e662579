"""Batches that Apache Kafka 4.3's Java producer made and its broker stored, one of each codec.

Got by ConsoleProducer (``--compression-codec``, headers and keys parsed, linger) and read back with
a Fetch: the bytes of the codecs' Java implementations, which no Python library produces.
"""

import pytest

from ottla.records import batch as b
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.decode import decode_batches
from ottla.records.validate import check_produced_batch

BATCHES = {
    Codec.NONE: (
        "00000000000000000000008c000000000215e0e626000000000002000001a1fdf23850000001a1fdf238"
        "7e000000000000000000000000000000000003660000000a6b65792d313a76616c7565206f6e65207661"
        "6c7565206f6e652076616c7565206f6e6504046831066f6e650468320016005c020a6b65792d32010034"
        "005c040128c3bc6d6cc3a475742076616c756520746872656500"
    ),
    Codec.GZIP: (
        "0000000000000000000000850000000002e81eb447000100000002000001a1fdf23f49000001a1fdf23f"
        "770000000000000001000000000000000000031f8b08000000000000ff4b636060e0ca4eadd435b42a4b"
        "cc294d55c8cf4b55c0c26261c9306403d119460c620c314c603d468c0c260c312c8c1a87f7e4e61c5e52"
        "5a02555f9251949aca000063754f3c5b000000"
    ),
    Codec.SNAPPY: (
        "00000000000000000000009300000000028a7da531000200000002000001a1fdf24cc8000001a1fdf24d"
        "4900000000000000020000000000000000000382534e415050590000000001000000010000004e5d5066"
        "0000000a6b65792d313a76616c7565206f6e65204a0a004004046831066f6e6504683200180080020205"
        "357832010036008202040128c3bc6d6cc3a475742076616c756520746872656500"
    ),
    Codec.LZ4: (
        "00000000000000000000008c0000000002daef9c37000300000002000001a1fdf25cac000001a1fdf25e"
        "3800000000000000030000000000000000000304224d186040824c000000ff06660000000a6b65792d31"
        "3a76616c7565206f6e65200a0000f10204046831066f6e650468320018009806023500f3033201003600"
        "9806040128c3bc6d6cc3a475743c006074687265650000000000"
    ),
    Codec.ZSTD: (
        "0000000000000000000000850000000002759fe669000400000002000001a1fdf26b71000001a1fdf26b"
        "a900000000000000040000000000000000000328b52ffd0058440200c403660000000a6b65792d313a76"
        "616c7565206f6e652004046831066f6e650468320016007002320100340070040128c3bc6d6cc3a47574"
        "7468726565000300bbcae5aa766d5298010000"
    ),
}


@pytest.mark.parametrize("codec", list(Codec))
def test_java_batches_are_valid_and_read(codec):
    data = bytes.fromhex(BATCHES[codec])
    header = check_produced_batch(memoryview(data), 1000).header
    assert header.codec == codec
    assert (header.producer_id, header.base_sequence, header.record_count) == (int(codec), 0, 3)
    ((_, records),) = decode_batches(data, 1000)
    assert [(r.offset, r.key, r.value, r.headers) for r in records] == [
        (0, b"key-1", b"value one value one value one", (("h1", b"one"), ("h2", b""))),
        (1, b"key-2", None, ()),
        (2, None, "ümläut value three".encode(), ()),
    ]
    assert max(r.timestamp for r in records) == header.max_timestamp


def test_the_same_records_make_the_same_bytes():
    data = bytes.fromhex(BATCHES[Codec.NONE])
    ((header, records),) = decode_batches(data, 0)
    ours = build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, leader_epoch=0)
    assert ours == data
    assert b.read_header(ours) == header
