"""Offsets as the options spell them, and the ranges that follow."""

import pytest

from ottla.ids import TopicPartition
from ottla.spark.offsets import (
    EARLIEST,
    EVERY_EARLIEST,
    EVERY_LATEST,
    LATEST,
    Bound,
    OffsetRange,
    parse_assignment,
    parse_bound,
    ranges,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
STARTS = {P0: 5, P1: 0}
ENDS = {P0: 10, P1: 7}


def test_words_are_bounds_of_every_partition():
    assert parse_bound("earliest", refused=LATEST) == EVERY_EARLIEST
    assert parse_bound(" Latest ", refused=EARLIEST) == EVERY_LATEST


def test_json_is_the_connectors():
    bound = parse_bound('{"t": {"0": 23, "1": -2}}', refused=LATEST)
    assert bound.offsets == {P0: 23, P1: EARLIEST}


@pytest.mark.parametrize(
    "text",
    ["", "first", "[]", "7", '{"t": 5}', '{"t": {"x": 1}}', '{"t": {"0": "1"}}', '{"t": {"0": -3}}',
     '{"t": {"0": true}}', '{"t": {"-1": 4}}', '{"t": {"0": 1.5}}', '{"t": '],
)  # fmt: skip
def test_a_bound_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|no partition and offset"):
        parse_bound(text, refused=LATEST)


@pytest.mark.parametrize("text", ["latest", '{"t": {"0": -1}}'])
def test_a_batch_cannot_start_at_the_end(text):
    with pytest.raises(ValueError, match=r"latest.*makes no sense"):
        parse_bound(text, refused=LATEST)


def test_assignment_keeps_order_and_drops_doubles():
    assert parse_assignment('{"t": [1, 0, 1]}') == (P1, P0)


@pytest.mark.parametrize(
    "text", ["t", "{}", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', '{"t": []}']
)
def test_an_assignment_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected JSON like"):
        parse_assignment(text)


def test_the_whole_log_is_every_range():
    assert ranges(EVERY_EARLIEST, EVERY_LATEST, STARTS, ENDS) == [
        OffsetRange("t", 0, 5, 10),
        OffsetRange("t", 1, 0, 7),
    ]


def test_empty_ranges_are_left_out():
    ending = Bound(offsets={P0: 5, P1: 7})
    assert ranges(EVERY_EARLIEST, ending, STARTS, ENDS) == [OffsetRange("t", 1, 0, 7)]


def test_given_offsets_and_words_mix():
    starting = Bound(offsets={P0: EARLIEST, P1: 3})
    ending = Bound(offsets={P0: 6, P1: LATEST})
    assert ranges(starting, ending, STARTS, ENDS) == [
        OffsetRange("t", 0, 5, 6),
        OffsetRange("t", 1, 3, 7),
    ]


def test_a_partition_left_out_of_the_json_is_no_silent_loss():
    with pytest.raises(ValueError, match=r"must name every partition: it names t-0.*t-0, t-1"):
        ranges(Bound(offsets={P0: 5}), EVERY_LATEST, STARTS, ENDS)


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (4, 10, r"t-0 offsets \[4, 10\) was asked for, but the log holds \[5, 10\)"),
        (5, 11, r"the log holds \[5, 10\)"),
        (9, 8, "ends before it starts"),
    ],
)
def test_a_range_that_the_log_does_not_hold_is_refused(start, end, why):
    starting, ending = Bound(offsets={P0: start, P1: 0}), Bound(offsets={P0: end, P1: 7})
    with pytest.raises(ValueError, match=why):
        ranges(starting, ending, STARTS, ENDS)
