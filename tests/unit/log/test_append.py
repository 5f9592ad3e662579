import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log.append import AppendOrigin, analyse, needs_executor
from ottla.log.config import LogConfig
from ottla.records.batch import TimestampType, batch_crc, read_header, set_max_timestamp
from ottla.records.compression import Codec
from ottla.records.decode import decode_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000


def refusal(records, config=None, origin=AppendOrigin.CLIENT):
    with pytest.raises(KafkaError) as caught:
        analyse(records, config or LogConfig(), NOW, origin)
    return caught.value.code


def test_one_batch_of_a_client_passes(batch):
    analysis = analyse(batch(3), LogConfig(), NOW)
    assert [one.header.record_count for one in analysis.batches] == [3]


def test_bytes_that_cannot_be_patched_are_copied(batch):
    analysis = analyse(memoryview(bytes(batch())), LogConfig(), NOW)
    assert not analysis.records.readonly


def test_a_larger_batch_than_the_topic_takes(batch):
    config = LogConfig(max_message_bytes=100)
    assert refusal(batch(size=200), config) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrong_checksum(batch):
    records = batch()
    records[-1] ^= 1
    assert refusal(records) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(records, origin=AppendOrigin.COORDINATOR) is ErrorCode.CORRUPT_MESSAGE


def test_a_record_without_a_key_on_a_compacted_topic(batch):
    config = LogConfig(is_compacted=True)
    assert refusal(batch(key=None), config) is ErrorCode.INVALID_RECORD
    analyse(batch(), config, NOW)


@pytest.mark.parametrize(("ahead", "allowed"), [(HOUR, True), (HOUR + 1, False)])
def test_a_timestamp_in_the_future(batch, ahead, allowed):
    records = batch(timestamp=NOW + ahead)
    if allowed:
        analyse(records, LogConfig(), NOW)
    else:
        assert refusal(records) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(("behind", "allowed"), [(HOUR, True), (HOUR + 1, False)])
def test_a_timestamp_in_the_past(batch, behind, allowed):
    config = LogConfig(message_timestamp_before_max_ms=HOUR)
    records = batch(timestamp=NOW - behind)
    if allowed:
        analyse(records, config, NOW)
    else:
        assert refusal(records, config) is ErrorCode.INVALID_TIMESTAMP


def test_no_timestamp_is_not_the_past(batch):
    config = LogConfig(message_timestamp_before_max_ms=HOUR)
    analyse(batch(timestamp=-1), config, NOW)


def test_bounds_do_not_matter_when_the_leader_sets_the_time(batch):
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    analyse(batch(timestamp=NOW * 2), config, NOW)


def test_a_wrong_largest_timestamp_is_put_right(batch):
    records = batch(3)
    set_max_timestamp(records, TimestampType.CREATE_TIME, NOW + 77)
    analysis = analyse(records, LogConfig(), NOW)
    assert analysis.batches[0].header.max_timestamp == NOW + 2
    assert read_header(analysis.records).max_timestamp == NOW + 2
    analyse(analysis.records, LogConfig(), NOW)  # the checksum is right again


def test_a_producer_that_claims_the_brokers_time_is_overruled_or_refused(batch):
    records = memoryview(bytearray(batch()))
    set_max_timestamp(records, TimestampType.LOG_APPEND_TIME, NOW)
    _, _, ((_, header),), _ = analyse(records, LogConfig(), NOW)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.CREATE_TIME, NOW)
    assert batch_crc(records) == header.crc
    for max_timestamp, kind in (
        (-1, TimestampType.CREATE_TIME),
        (NOW, TimestampType.LOG_APPEND_TIME),
    ):
        set_max_timestamp(records, TimestampType.LOG_APPEND_TIME, max_timestamp)
        with pytest.raises(KafkaError) as caught:
            analyse(records, LogConfig(message_timestamp_type=kind), NOW)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_client_may_send_one_batch_a_coordinator_more(batch):
    records = memoryview(bytearray(bytes(batch()) + bytes(batch(2))))
    assert refusal(records) is ErrorCode.INVALID_RECORD
    analysis = analyse(records, LogConfig(), NOW, AppendOrigin.COORDINATOR)
    assert [one.header.record_count for one in analysis.batches] == [1, 2]


@pytest.mark.parametrize("cut", [1, 61, 10**6])
def test_own_batches_are_whole_or_refused(batch, cut):
    records = batch()
    records = records[: max(len(records) - cut, 0)]
    assert refusal(records, origin=AppendOrigin.COORDINATOR) is ErrorCode.CORRUPT_MESSAGE


def test_only_large_compressed_batches_leave_the_loop(batch):
    assert not needs_executor(batch(size=100_000), None)
    assert not needs_executor(batch(codec=1), None)
    records = batch(size=100_000)
    records[22] |= 1
    assert needs_executor(records, None)


def test_what_gets_another_codec_is_for_the_executor(batch):
    records = batch(size=20_000)
    assert needs_executor(records, Codec.LZ4)
    assert not needs_executor(records, Codec.NONE)
    records[22] |= Codec.GZIP
    assert needs_executor(records, Codec.NONE)
    assert not needs_executor(records, Codec.GZIP)


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_a_topics_own_codec(batch, source, target):
    records = batch(5, codec=source)
    before = bytes(records)
    analysis = analyse(records, LogConfig(compression=target), NOW)
    header = analysis.batches[0].header
    assert header.codec == target
    assert header.size_bytes == len(analysis.records)
    assert header.crc == batch_crc(analysis.records)
    assert (
        decode_batch(analysis.records, 1 << 20).records
        == decode_batch(memoryview(before), 1 << 20).records
    )
    assert (analysis.records.obj is records.obj) == (source == target)


def test_recompression_obeys_the_level(batch):
    sizes = []
    for level in (-100_000, 19):
        config = LogConfig(compression=Codec.ZSTD, compression_level=level)
        sizes.append(len(analyse(batch(500), config, NOW).records))
    assert sizes[1] < sizes[0] / 2


def test_a_batch_that_the_topics_codec_makes_too_large(batch):
    config = LogConfig(max_message_bytes=1000, compression=Codec.NONE)
    assert refusal(batch(1, size=5000, codec=Codec.GZIP), config) is ErrorCode.MESSAGE_TOO_LARGE
    analyse(batch(1, size=500, codec=Codec.GZIP), config, NOW)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_refused_batch_is_refused_in_any_codec(batch, codec):
    config = LogConfig(compression=Codec.LZ4, is_compacted=True)
    assert refusal(batch(key=None, codec=codec), config) is ErrorCode.INVALID_RECORD


def test_a_wrong_largest_timestamp_is_put_right_in_another_codec(batch):
    records = batch(3)
    set_max_timestamp(records, TimestampType.CREATE_TIME, NOW + 77)
    analysis = analyse(records, LogConfig(compression=Codec.SNAPPY), NOW)
    assert analysis.batches[0].header.max_timestamp == NOW + 2
    assert analysis.batches[0].header.crc == batch_crc(analysis.records)
