"""The producer's settings as a sink is given them."""

import pytest

from ottla.config.option import InvalidConfig
from ottla.records.compression import GZIP_LEVEL_DEFAULT, Codec
from ottla.spark.writing.write_settings import BATCH_BYTES, read_write_settings

SERVERS = {"bootstrap.servers": "b:1"}


def read(**settings):
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return read_write_settings(SERVERS | texts, "t")


def test_the_defaults_are_those_of_kafkas_producer():
    client, options = read()
    assert str(client.bootstrap[0]) == "b:1"
    assert options.topic == "t"
    assert options.codec is Codec.NONE
    assert options.batch_bytes == BATCH_BYTES
    assert options.sending.acks == -1
    assert options.sending.is_idempotent
    assert options.sending.delivery_timeout_ms == 120_000


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("none", Codec.NONE, None),
        ("gzip", Codec.GZIP, GZIP_LEVEL_DEFAULT),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, None),
        ("ZSTD", Codec.ZSTD, None),
    ],
)
def test_codecs_have_kafkas_levels_unless_told(name, codec, level):
    options = read(compression_type=name)[1]
    assert (options.codec, options.level) == (codec, level)


def test_the_level_is_the_one_of_the_codec():
    options = read(compression_type="zstd", compression_zstd_level="7", compression_gzip_level="2")
    assert options[1].level == 7


def test_what_a_tuned_connector_is_given_is_honoured():
    client, options = read(
        batch_size="524288",
        linger_ms="20",
        buffer_memory="67108864",
        acks="all",
        max_request_size="2000000",
        delivery_timeout_ms="30000",
        request_timeout_ms="7000",
    )
    assert options.batch_bytes == 524288
    assert options.sending.buffer_bytes == 67108864
    assert options.sending.request_bytes == options.record_bytes_max == 2_000_000
    assert options.sending.delivery_timeout_ms == 30_000
    assert client.request_timeout_ms == 7000


def test_a_batch_is_not_larger_than_a_request():
    assert read(batch_size="5000000")[1].batch_bytes == 1 << 20


@pytest.mark.parametrize(
    ("settings", "is_idempotent"),
    [
        ({"acks": "1"}, False),
        ({"max_in_flight_requests_per_connection": "6"}, False),
        ({"enable_idempotence": "false"}, False),
        ({"enable_idempotence": "true"}, True),
    ],
)
def test_idempotence_is_off_where_it_cannot_be(settings, is_idempotent):
    assert read(**settings)[1].sending.is_idempotent is is_idempotent


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": "2"},
        {"compression_type": "brotli"},
        {"batch_size": "many"},
        {"linger_ms": "soon"},
        {"enable_idempotence": "true", "acks": "1"},
        {"enable_idempotence": "true", "max_in_flight_requests_per_connection": "6"},
        {"retries": "0"},
        {"transactional_id": "x"},
        {"key_serializer": "x"},
        {"compression_gzip_level": "11"},
        {"no_such_setting": "1"},
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(settings):
    with pytest.raises(InvalidConfig) as raised:
        read(**settings)
    assert raised.value.key in {name.replace("_", ".") for name in settings}
