"""Where reading starts and ends, as the options spell it."""

import pytest

from ottla.ids import TopicPartition
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    parse_assignment,
    parse_bound,
    parse_timestamp,
    parse_timestamps,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_words_are_bounds_of_every_partition():
    assert parse_bound("o", "earliest", refused=LATEST) == Bound("o", EARLIEST)
    assert parse_bound("o", " Latest ", refused=None) == Bound("o", LATEST)


def test_json_is_the_connectors():
    bound = parse_bound("o", '{"t": {"0": 23, "1": -2}}', refused=LATEST)
    assert bound.positions.offsets == {P0: 23, P1: EARLIEST}


@pytest.mark.parametrize(
    "text",
    ["", "first", "[]", "7", "{}", '{"t": 5}', '{"t": {"x": 1}}', '{"t": {"0": "1"}}',
     '{"t": {"0": -3}}', '{"t": {"0": true}}', '{"t": {"-1": 4}}', '{"t": {"0": 1.5}}', '{"t": '],
)  # fmt: skip
def test_a_bound_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|no partition and offset|no object"):
        parse_bound("o", text, refused=LATEST)


@pytest.mark.parametrize("text", ["latest", '{"t": {"0": -1}}'])
def test_a_batch_cannot_start_at_the_end(text):
    with pytest.raises(ValueError, match=r"latest.*makes no sense"):
        parse_bound("o", text, refused=LATEST)


def test_a_stream_can_start_at_the_end():
    assert parse_bound("o", '{"t": {"0": -1}}', refused=None).positions.offsets == {P0: LATEST}


def test_timestamps_are_of_all_partitions_or_of_each():
    assert parse_timestamp("o", " 1000 ") == Bound("o", timestamp_ms=1000)
    assert parse_timestamps("o", '{"t": {"1": 1000}}').timestamps_ms == {P1: 1000}
    assert parse_timestamps("o", '{"t": {"1": 1000}}').is_by_time


@pytest.mark.parametrize("text", ["", "now", "-1", "1.5", str(1 << 63), "0" * 20 + "9" * 20])
def test_a_timestamp_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected milliseconds"):
        parse_timestamp("o", text)


@pytest.mark.parametrize("text", ["", "5", "{}", '{"t": 5}', '{"t": {"0": -1}}'])
def test_timestamps_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"expected|no partition and offset|no object"):
        parse_timestamps("o", text)


def test_assignment_keeps_order_and_drops_doubles():
    assert parse_assignment('{"t": [1, 0, 1]}') == (P1, P0)


@pytest.mark.parametrize(
    "text", ["t", "{}", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', '{"t": []}']
)
def test_an_assignment_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected JSON like"):
        parse_assignment(text)
