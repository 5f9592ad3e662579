"""Configuration files and ``-D key=value``: what is read, ignored with a note, and refused."""

from pathlib import Path

import pytest

from ottla.config import InvalidConfig, broker, log
from ottla.config.docs import main, page
from ottla.config.files import (
    broker_config,
    read_definitions,
    read_properties,
    read_toml,
    sort_out,
)
from ottla.config.human import duration_text, parse_duration_ms, parse_size_bytes, size_text


def test_properties_are_read_as_java_reads_them():
    text = (
        "# a comment\n  ! another = one\n\nnum.partitions=3\n node.id : 7 \nbroker.rack   a b\\\n"
        "      c\nlog.dirs=/x\\=y\\u00e9\\t\nempty\nkey\\ with\\:both=1\r\nlast=no newline\\\\"
    )
    assert read_properties(text) == {
        "num.partitions": "3",
        "node.id": "7",
        "broker.rack": "a bc",
        "log.dirs": "/x=yé",
        "empty": "",
        "key with:both": "1",
        "last": "no newline\\",
    }


def test_a_broken_escape_is_named():
    with pytest.raises(InvalidConfig, match="four hexadecimal digits"):
        read_properties("a=\\u12x4")


def test_toml_tables_and_dotted_keys_are_the_same():
    text = (
        'num.partitions = 3\n[log]\ndirs = ["/x"]\nretention.ms = 5\n'
        "[auto]\ncreate.topics.enable = false\n"
    )
    config = broker_config(sort_out(read_toml(text)).texts)
    assert config[broker.NUM_PARTITIONS] == 3
    assert config[broker.LOG_DIRS] == ("/x",)
    assert config[log.LOG_RETENTION_MS] == 5
    assert config[broker.AUTO_CREATE_TOPICS_ENABLE] is False


def test_bad_toml_says_where():
    with pytest.raises(InvalidConfig, match="line 1"):
        read_toml("x = = 1")
    with pytest.raises(InvalidConfig, match="quotes"):
        read_toml("max.connections = 1\nmax.connections.per.ip = 2")


def test_a_typing_mistake_names_what_was_meant():
    with pytest.raises(InvalidConfig, match=r"did you mean log\.retention\.ms"):
        sort_out({"log.retenton.ms": "5"})


def test_a_file_for_kafka_is_understood():
    given = sort_out(
        {"process.roles": "broker,controller", "broker.id": "4", "num.io.threads": "8",
         "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT", "log.dir": "/y"}
    )  # fmt: skip
    assert given.texts == {
        "node.id": "4",
        "log.dirs": "/y",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }
    assert len(given.notes) == 2


@pytest.mark.parametrize(
    "key", ["ssl.engine.factory.class", "sasl.kerberos.service.name", "authorizer.properties"]
)
def test_security_asked_for_is_never_ignored(key):
    with pytest.raises(InvalidConfig, match="cannot be honoured"):
        sort_out({key: "x"})


def test_human_values_on_the_command_line_only():
    assert read_definitions(
        ["log.retention.ms=7d", "log.segment.bytes=1MiB", "broker.rack=7d"]
    ) == {
        "log.retention.ms": "604800000",
        "log.segment.bytes": "1048576",
        "broker.rack": "7d",
    }
    assert read_definitions(["log.retention.hours=7d"]) == {"log.retention.hours": "168"}
    for bad in (
        "log.retention.hours=90m",
        "log.retention.ms=7x",
        "log.segment.bytes=1ms",
        "nothing",
    ):
        with pytest.raises(InvalidConfig):
            read_definitions([bad])


def test_durations_and_sizes():
    assert parse_duration_ms("1h30m") == 5_400_000
    assert parse_duration_ms("1.5s") == 1500
    assert parse_size_bytes("64KiB") == 65536
    assert parse_size_bytes("10MB") == 10_000_000
    assert duration_text(5_400_000) == "1h30m"
    assert size_text(1 << 30) == "1 GiB"
    for bad in ("d", "1.2.3s", "5"):
        with pytest.raises(ValueError, match=r"is not|does not"):
            parse_duration_ms(bad)


def test_the_page_lists_every_public_option():
    text = page()
    assert "`ottla.max.partitions`" in text
    assert "`retention.ms` | `604800000` (7d)" in text
    assert "internal.segment.bytes" not in text


def test_the_reference_page_is_up_to_date():
    root = Path(__file__).parents[3]
    assert main(["--check", str(root / "docs" / "options.md")]) == 0
