"""The options of format("ottla")."""

import pytest

from ottla.ids import TopicPartition
from ottla.spark.offsets import EVERY_EARLIEST, EVERY_LATEST
from ottla.spark.options import OptionError, parse_options

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_the_least_one_must_say():
    options = parse_options(GIVEN)
    assert options.bootstrap == "h:1"
    assert options.topics == ("a",)
    assert options.partitions == ()
    assert (options.starting, options.ending) == (EVERY_EARLIEST, EVERY_LATEST)
    assert not options.include_headers


def test_names_have_any_case():
    options = parse_options(
        {"bootstrap.servers": "h:1,i:2", "SUBSCRIBE": "a, b,a", "includeheaders": "TRUE"}
    )
    assert options.bootstrap == "h:1,i:2"
    assert options.topics == ("a", "b")
    assert options.include_headers


def test_assign_names_partitions():
    options = parse_options({"bootstrap.servers": "h:1", "assign": '{"a": [2]}'})
    assert options.partitions == (TopicPartition("a", 2),)
    assert options.topics == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": "a,,b"}, "an empty topic name"),
        ({"assign": '{"a": [0]}'}, "exactly one of"),
        ({"startingOffsets": "latest"}, "option startingOffsets: 'latest' makes no sense"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: 'earliest' makes no sense"),
        ({"endingOffsets": "{"}, "option endingOffsets: expected"),
        ({"includeHeaders": "yes"}, "true or false, not 'yes'"),
        ({"startingOfset": "earliest"}, "did you mean startingOffsets?"),
        ({"zebra": "1"}, "unknown option 'zebra'.*there are kafka.bootstrap.servers, "),
    ],
)
def test_a_wrong_option_is_named(change, why):
    with pytest.raises(OptionError, match=why):
        parse_options(GIVEN | change)


def test_nothing_to_read_is_refused():
    with pytest.raises(OptionError, match="exactly one of"):
        parse_options({"bootstrap.servers": "h:1"})
