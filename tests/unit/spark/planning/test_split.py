"""Ranges become tasks: as many as asked for, nothing lost and nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.offsets import OffsetRange
from ottla.spark.option_table import Use
from ottla.spark.options import parse_options
from ottla.spark.planning.split import gather, split, tasks_of


def make(*sizes):
    return [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def sizes(ranges):
    return [(one.partition, one.end - one.start) for one in ranges]


def test_without_limits_each_range_is_a_task_and_empty_ones_are_none():
    assert split(make(3, 0, 5), min_partitions=0, max_records=0) == [make(3)[0], make(0, 0, 5)[2]]


def test_ranges_above_the_limit_are_divided_evenly():
    parts = split(make(10, 4), min_partitions=0, max_records=4)
    assert sizes(parts) == [(0, 3), (0, 3), (0, 4), (1, 4)]


@pytest.mark.parametrize(
    ("given_sizes", "count", "expected"),
    [
        ((10,), 1, [(0, 10)]),
        ((10,), 3, [(0, 3), (0, 3), (0, 4)]),
        ((10, 10), 2, [(0, 10), (1, 10)]),
        ((10, 10), 4, [(0, 5), (0, 5), (1, 5), (1, 5)]),
        ((1, 100), 3, [(0, 1), (1, 50), (1, 50)]),
        ((2,), 5, [(0, 1), (0, 1)]),
    ],
)
def test_large_ranges_are_divided_until_there_are_enough(given_sizes, count, expected):
    assert sizes(split(make(*given_sizes), min_partitions=count, max_records=0)) == expected


@given(st.lists(st.integers(0, 1000), max_size=6), st.integers(0, 20), st.integers(0, 300))
def test_every_offset_is_in_one_task(given_sizes, count, most):
    ranges = make(*given_sizes)
    parts = split(ranges, min_partitions=count, max_records=most)
    assert all(part.start < part.end for part in parts)
    if most:
        assert all(part.end - part.start <= most for part in parts)
    offsets = [(p.partition, o) for p in parts for o in range(p.start, p.end)]
    assert offsets == [(r.partition, o) for r in ranges for o in range(r.start, r.end)]


def test_ranges_share_a_task_until_it_has_enough():
    tasks = gather(make(3, 4, 2, 50, 1), least=6, most=0)
    assert [sizes(task) for task in tasks] == [[(0, 3), (1, 4)], [(2, 2), (3, 50)], [(4, 1)]]


def test_a_task_that_gathers_stays_below_the_most():
    tasks = gather(make(3, 4, 2, 50, 1), least=6, most=6)
    assert [sizes(task) for task in tasks] == [[(0, 3)], [(1, 4), (2, 2)], [(3, 50)], [(4, 1)]]


def test_two_pieces_of_a_partition_are_never_one_tasks():
    parts = split(make(10), min_partitions=0, max_records=4)
    assert [sizes(task) for task in gather(parts, least=100, most=0)] == [
        [(0, 3)],
        [(0, 3)],
        [(0, 4)],
    ]


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 60), st.integers(0, 60))
def test_gathered_every_range_is_in_one_task_in_its_order(given_sizes, least, most):
    parts = split(make(*given_sizes), min_partitions=0, max_records=most)
    tasks = gather(parts, least=least, most=most)
    assert [one for task in tasks for one in task] == parts
    if not least:
        assert all(len(task) == 1 for task in tasks)
    if most:
        assert all(sum(one.end - one.start for one in task) <= most for task in tasks)


@pytest.mark.parametrize(
    ("options", "learned", "expected"),
    [
        ({}, 0, [1, 1, 1]),
        ({}, 10, [2, 1]),
        ({"minRecordsPerPartition": "0"}, 10, [1, 1, 1]),
        ({"minRecordsPerPartition": "100"}, 10, [3]),
        ({"minPartitions": "2"}, 10, [1, 1, 1]),
        ({"maxRecordsPerPartition": "9"}, 10, [1, 1, 1]),
    ],
)
def test_what_the_options_say_of_sharing_wins_over_what_was_learned(options, learned, expected):
    given_options = {"bootstrap.servers": "h:1", "subscribe": "t", **options}
    parsed = parse_options(given_options, Use.STREAM)
    assert [len(each) for each in tasks_of(make(6, 6, 6), parsed, least=learned)] == expected
