"""The sink's columns: found, checked, brought to one form."""

import pytest

pa = pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

from ottla.spark.writing.rows import HEADERS, RowError, find_rows  # noqa: E402


def find(*, topic_given=True, **columns):
    return find_rows(pa.record_batch(columns), topic_given=topic_given)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.string_view(),
        pa.binary_view(), pa.dictionary(pa.int32(), pa.string()),
    ],
)  # fmt: skip
def test_keys_and_values_are_octets(kind):
    data = ["a", None, "\u4e16"]
    array = pa.array([each and each.encode() for each in data], pa.binary())
    if "binary" not in str(kind):
        array = pa.array(data, pa.string())
    rows = find(value=array.cast(kind), key=array.cast(kind))
    assert rows.value.type == rows.key.type == pa.binary()
    assert rows.value.to_pylist() == [b"a", None, "\u4e16".encode()]


def test_names_are_found_in_any_case_and_others_are_left_alone():
    rows = find(VALUE=[b"v"], Offset=[3], timestampType=[0])
    assert rows.value.to_pylist() == [b"v"]
    assert rows.key is rows.topic is rows.partition is rows.headers is rows.timestamp is None


def test_the_option_goes_before_the_column():
    assert find(value=[b"v"], topic=["t"]).topic is None
    assert find(value=[b"v"], topic=["t"], topic_given=False).topic.to_pylist() == ["t"]


def test_a_timestamp_that_is_ignored_is_not_looked_at():
    batch = pa.record_batch({"value": [b"v"], "timestamp": ["yesterday"]})
    assert find_rows(batch, topic_given=True, timestamp_ignored=True).timestamp is None


def test_times_become_microseconds():
    times = pa.array([1_500, None], pa.timestamp("ms", tz="UTC"))
    assert find(value=[b"v", b"w"], timestamp=times).timestamp.to_pylist() == [1_500_000, None]


def test_a_column_of_nulls_is_a_column():
    rows = find(value=[b"v"], key=pa.nulls(1), headers=pa.nulls(1), partition=pa.nulls(1))
    assert rows.key.to_pylist() == rows.headers.to_pylist() == rows.partition.to_pylist() == [None]
    assert rows.headers.type == HEADERS


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": [b"k"]}, "value is missing"),
        ({"value": [1]}, "value must be binary or string, it is int64"),
        ({"value": [b"v"], "key": [1.5]}, "key must be binary or string"),
        ({"value": [b"v"], "partition": ["0"]}, "partition must be int"),
        ({"value": [b"v"], "partition": [0]}, "partition must be int, it is int64"),
        ({"value": [b"v"], "timestamp": [0]}, "timestamp must be timestamp"),
        ({"value": [b"v"], "headers": [["a"]]}, "headers must be list"),
        ({"value": [b"v"], "headers": [[{"a": "x", "b": b""}]]}, "headers must be list"),
    ],
)
def test_a_wrong_column_is_named_with_its_possible_types(columns, words):
    with pytest.raises(RowError, match=words):
        find(**columns)


def test_rows_need_a_topic():
    with pytest.raises(RowError, match="option topic, or a column topic"):
        find(value=[b"v"], topic_given=False)
    with pytest.raises(RowError, match="null in the column topic"):
        find(value=[b"v"], topic=pa.nulls(1, pa.string()), topic_given=False)
