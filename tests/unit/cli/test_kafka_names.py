"""Options of Kafka's scripts: what they become here, and what is told to type instead."""

import shlex

import pytest

from ottla.cli.kafka_names import INSTEAD, RENAMED, REPLACED, VALUED
from ottla.cli.main import _parse


def understood(line):
    chosen = vars(_parse(shlex.split(line)))
    return {key: each for key, each in chosen.items() if key not in ("parser", "command")}


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [
        ("group reset g --to-earliest --execute", "group reset g --to earliest --yes"),
        ("group reset g --to-latest --all-topics", "group reset g --to latest"),
        ("group reset g --to-offset 7 --topic t", "group reset g --to 7 --topic t"),
        ("group reset --group g --shift-by -5", "group reset g --shift -5"),
        ("group reset g --shift-by=-5", "group reset g --shift=-5"),
        (
            "group reset g --to-datetime 2026-01-31T12:00:00.000",
            "group reset g --to 2026-01-31T12:00:00.000Z",
        ),
        (
            "group reset g --to-datetime 2026-01-31T12:00:00.000+01:00",
            "group reset g --to 2026-01-31T12:00:00.000+01:00",
        ),
        ("group reset g --by-duration P1DT2H30M", "group reset g --to -95400s"),
        ("group offsets delete --group g --topic t", "group offsets delete g t"),
        ("topic list --exclude-internal", "topic list"),
        ("consume --include 'a.*'", "consume --regex 'a.*'"),
        ("consume t --isolation-level read_committed", "consume t --read-committed"),
        ("consume t --isolation-level=read_uncommitted", "consume t"),
        ("consume t --consumer-property client.id=x", "consume t -X client.id=x"),
        ("consume t --consumer.config f", "consume t --command-config f"),
        ("produce t --compression-codec zstd", "produce t --codec zstd"),
        ("produce t --request-required-acks=1", "produce t --acks=1"),
        ("log dump --files f --print-data-log", "log dump f --records"),
        ("bench produce --record-size 100", "bench produce --size 100"),
    ],
)
def test_an_option_that_has_an_equal_is_understood(kafkas, ours):
    assert understood(kafkas) == understood(ours)


def test_what_stands_behind_two_dashes_is_no_option():
    assert understood("group describe -- --group")["group"] == "--group"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("consume t --property print.key=true", r"type -f '%k\t%v\n'"),
        ("consume t --property print.key=true --property print.value=0", r"type -f '%k\n'"),
        ("consume t --property print.offset=true --property key.separator=:", r"-f '%o:%v\n'"),
        (
            "consume t --property key.deserializer=org.apache.kafka.LongDeserializer",
            "--decode key=HOW",
        ),
        ("produce t --property parse.key=true --property key.separator=,", "type -f '%k,%v'"),
        ("produce t --reader-property parse.headers=true", r"type -f '%h\t%v'"),
        ("produce t --reader-property null.marker=NULL", "--null"),
        ("config get --entity-type topics --entity-name t", "name topic/NAME"),
        ("group describe g --members --verbose", "leave it out"),
        ("topic describe t --under-replicated-partitions", "ottla cluster health"),
    ],
)
def test_an_option_without_an_equal_is_told_what_to_type(line, told, capsys):
    with pytest.raises(SystemExit) as left:
        _parse(shlex.split(line))
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert told in said
    assert " is an option of Kafka's scripts\n" in said


OPTIONS = [
    (command, option)
    for table in (RENAMED, REPLACED, VALUED, INSTEAD)
    for command, options in table.items()
    for option in options
]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_no_name_hides_an_option_of_ours(command, option, capsys):
    """What is translated or refused must not be an option that the command has."""
    with pytest.raises(SystemExit):
        _parse([*command.split(), "--help"])
    assert f" {option} " not in capsys.readouterr().out.partition("\n\n")[2]


@pytest.mark.parametrize("text", ["P", "PT", "5m", "P1W", "PT\u0665M"])
def test_a_duration_that_is_none_of_iso_8601_is_left_to_the_command(text):
    assert understood(f"group reset g --by-duration {text}")["place"] == f"-{text}"
