"""What ``compression.type`` makes of produced batches. Asked of Apache Kafka 4.3.0, too."""

import gzip

import cramjam
import lz4.frame
import pytest

from tools.wire_client import batch, batches, record

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"value %d " % index * 20 for index in range(10)]
PAYLOAD = b"".join(record(index, value, b"key") for index, value in enumerate(VALUES))


def compressed(codec):
    if codec == "gzip":
        return gzip.compress(PAYLOAD)
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(PAYLOAD))
    if codec == "lz4":
        return lz4.frame.compress(PAYLOAD, block_linked=False, store_size=False)
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(PAYLOAD))
    return PAYLOAD


def produced(codec, **fields):
    return batch(VALUES, payload=compressed(codec), attributes=CODECS[codec], **fields)


def stored(wire, name):
    answer = wire.fetch(name, 0, partition=0)
    return batches(answer["records"])


@pytest.mark.parametrize("wanted", [*CODECS, "producer"])
def test_batches_are_stored_in_the_topics_codec(wire, topic_name, wanted):
    wire.create_topic(topic_name, 1, **{"compression.type": wanted})
    for ordinal, codec in enumerate(CODECS):
        got = wire.produce(topic_name, produced(codec))
        assert (got["error_code"], got["base_offset"]) == (0, ordinal * len(VALUES))
    found = stored(wire, topic_name)
    codecs = [each["attributes"] for each in found]
    expected = list(CODECS.values()) if wanted == "producer" else [CODECS[wanted]] * len(CODECS)
    assert codecs == expected
    for ordinal, each in enumerate(found):
        assert (each["base_offset"], each["last_offset_delta"]) == (ordinal * 10, 9)
        assert (each["count"], each["base_timestamp"]) == (10, 1_700_000_000_000)
        assert (each["producer_id"], each["base_sequence"]) == (-1, -1)


def test_sequences_outlive_the_codec(wire, topic_name):
    wire.create_topic(topic_name, 1, **{"compression.type": "lz4"})
    fields = {"producer_id": 4321, "producer_epoch": 0, "base_sequence": 0}
    first = wire.produce(topic_name, produced("gzip", **fields))
    again = wire.produce(topic_name, produced("gzip", **fields))
    assert (first["error_code"], again["error_code"]) == (0, 0)
    assert first["base_offset"] == again["base_offset"] == 0
    (only,) = stored(wire, topic_name)
    kept = (only["producer_id"], only["producer_epoch"], only["base_sequence"], only["attributes"])
    assert kept == (4321, 0, 0, 3)


def test_what_the_broker_makes_too_large_is_refused(wire, topic_name):
    configs = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    wire.create_topic(topic_name, 1, **configs)
    got = wire.produce(topic_name, produced("gzip"))
    assert (got["error_code"], got["base_offset"]) == (10, -1)
    assert wire.produce(topic_name, batch([b"small"]))["error_code"] == 0


def test_log_append_time_in_another_codec(wire, topic_name):
    configs = {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    wire.create_topic(topic_name, 1, **configs)
    got = wire.produce(topic_name, produced("uncompressed"))
    assert got["error_code"] == 0
    (only,) = stored(wire, topic_name)
    assert only["attributes"] == 4 | 8
    assert only["max_timestamp"] > 1_700_000_000_000


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_levels_are_obeyed(wire, topic_name, codec):
    sizes = []
    low, high = {"gzip": ("1", "9"), "lz4": ("9", "17"), "zstd": ("-1000", "19")}[codec]
    for level in (low, high):
        name = f"{topic_name}{level}"
        configs = {"compression.type": codec, f"compression.{codec}.level": level}
        wire.create_topic(name, 1, **configs)
        values = [
            b"%d of a kind %d" % (index * 7919 % 1000, index * 31 % 77) for index in range(2000)
        ]
        assert wire.produce(name, batch(values))["error_code"] == 0
        (only,) = stored(wire, name)
        sizes.append(only["length"])
    assert sizes[1] < sizes[0], sizes
