"""What filters leave to be read: never less than what can match."""

import pickle
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from ottla.client.offsets import FoundOffset
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.spark.offsets import OffsetRange
from ottla.spark.planning.pushdown import narrow, narrowing_of
from ottla.spark.planning.source import OttlaDataSource, schema_of

RANGES = [
    OffsetRange("orders", 0, 0, 100),
    OffsetRange("orders", 1, 50, 150),
    OffsetRange("items", 0, 0, 10),
]
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


class Times:
    """Answers by time: partition 0 of each topic has such a record at 30, the others have none."""

    def __init__(self):
        self.asked = {}

    def list_offsets(self, timestamps):
        self.asked = timestamps
        return {
            each: FoundOffset(-1 if each.partition else 30, 0, 0, ErrorCode.NONE)
            for each in timestamps
        }


def left(*filters):
    return [(one.topic, *one[1:4]) for one in narrow(Times(), RANGES, narrowing_of(filters))]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(OFFSET, 60)], [("orders", 0, 60, 61), ("orders", 1, 60, 61)]),
        ([EqualNullSafe(OFFSET, 5)], [("orders", 0, 5, 6), ("items", 0, 5, 6)]),
        ([GreaterThan(OFFSET, 98)], [("orders", 0, 99, 100), ("orders", 1, 99, 150)]),
        ([GreaterThanOrEqual(OFFSET, 149)], [("orders", 1, 149, 150)]),
        ([LessThan(OFFSET, 5)], [("orders", 0, 0, 5), ("items", 0, 0, 5)]),
        ([LessThanOrEqual(OFFSET, 0)], [("orders", 0, 0, 1), ("items", 0, 0, 1)]),
        ([In(OFFSET, (3, 7))], [("orders", 0, 3, 8), ("items", 0, 3, 8)]),
        ([GreaterThan(OFFSET, 8), LessThan(OFFSET, 9)], []),
        ([GreaterThan(OFFSET, 8), LessThan(OFFSET, 10), EqualTo(TOPIC, "items")],
         [("items", 0, 9, 10)]),
        ([GreaterThan(OFFSET, 8), LessThan(OFFSET, 5)], []),
        ([EqualTo(PARTITION, 1)], [("orders", 1, 50, 150)]),
        ([In(PARTITION, (1, 2))], [("orders", 1, 50, 150)]),
        ([GreaterThan(PARTITION, 0)], [("orders", 1, 50, 150)]),
        ([EqualTo(TOPIC, "items")], [("items", 0, 0, 10)]),
        ([StringStartsWith(TOPIC, "it")], [("items", 0, 0, 10)]),
        ([In(TOPIC, ("items", "x"))], [("items", 0, 0, 10)]),
        ([EqualTo(TOPIC, "x")], []),
    ],
)  # fmt: skip
def test_offsets_partitions_and_topics_narrow(filters, expected):
    assert left(*filters) == expected


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(OFFSET, 5)),
        Not(EqualTo(PARTITION, 1)),
        IsNotNull(OFFSET),
        StringContains(TOPIC, "x"),
        EqualTo(("value",), b"x"),
        EqualTo(("key", "topic"), "x"),
        LessThan(TIME, datetime(2001, 1, 1, tzinfo=UTC)),
        GreaterThan(TIME, datetime(2001, 1, 1)),  # noqa: DTZ001 - a timestamp without a zone
        EqualTo(OFFSET, "5"),
        In(OFFSET, (5, None)),
        GreaterThan(TOPIC, "p"),
    ],
)
def test_what_is_not_understood_leaves_everything(each):
    assert left(each) == [(one.topic, *one[1:4]) for one in RANGES]


@pytest.mark.parametrize(
    ("each", "since_ms"),
    [
        (GreaterThanOrEqual(TIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), 1000),
        (GreaterThanOrEqual(TIME, datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)), 1001),
        (GreaterThan(TIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), 1001),
        (EqualTo(TIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), 1000),
        (GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC)), 0),
    ],
)
def test_a_time_moves_the_start_to_the_first_record_as_new(each, since_ms):
    client = Times()
    found = narrow(client, RANGES, narrowing_of([each]))
    assert set(client.asked.values()) == {since_ms}
    assert found == [OffsetRange("orders", 0, 30, 100)]  # items ends before, the other has none
    assert client.asked.keys() == {TopicPartition(*one[:2]) for one in RANGES}


def reader():
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    return OttlaDataSource(given).reader(schema_of())


def test_every_filter_is_left_to_spark_as_well():
    filters = [EqualTo(OFFSET, 5), StringContains(TOPIC, "x")]
    assert reader().pushFilters(filters) == filters


def test_spark_does_not_refuse_the_reader_where_it_pushes_nothing():
    """It refuses readers with pushFilters of their own unless a conf is on, lest they miss some."""
    assert reader().pushFilters.__func__ is DataSourceReader.pushFilters


def test_a_reader_with_filters_travels():
    own = reader()
    own.pushFilters([EqualTo(OFFSET, 5)])
    pickle.loads(pickle.dumps(own))
