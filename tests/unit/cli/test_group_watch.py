"""How fast a group reads, and when it will have read everything."""

from collections import deque

from ottla.cli.group_watch import Look, Pace, line_of, look_at, pace, row_of
from ottla.client.wire.group_description import GroupDescription


def looks(*each, partitions=frozenset({("t", 0)})):
    """Each: (seconds, committed, end)."""
    return deque(
        Look(seconds, end - committed, committed, end, partitions)
        for seconds, committed, end in each
    )


def test_one_look_has_no_pace():
    assert pace(looks((0, 10, 100))) == Pace(None, None, None)
    assert pace(looks((0, 100, 100))).empty_ms == 0


def test_the_time_until_it_is_empty_counts_what_is_still_written():
    assert pace(looks((0, 0, 1000), (2, 200, 1100))) == Pace(100, 50, 18_000)


def test_a_group_that_does_not_gain_is_never_empty():
    assert pace(looks((0, 0, 1000), (2, 0, 1000))) == Pace(0, 0, None)
    assert pace(looks((0, 0, 1000), (2, 100, 1200))).empty_ms is None


def test_a_reset_is_no_reading_of_negative_time():
    assert pace(looks((0, 500, 1000), (1, 0, 1000))) == Pace(-500, 0, None)


def test_partitions_that_are_new_do_not_count_as_read():
    mixed = looks((0, 0, 1000))
    mixed += looks((2, 5000, 9000), (3, 5100, 9000), partitions=frozenset({("t", 0), ("t", 1)}))
    assert pace(mixed) == Pace(100, 0, 39_000)


def test_partitions_of_unknown_lag_are_left_out_of_the_sums():
    rows = [
        {"topic": "t", "partition": 0, "committed": 3, "end": 10, "lag": 7},
        {"topic": "t", "partition": 1, "committed": None, "end": 10, "lag": None},
    ]
    assert look_at(rows, 1.0) == Look(1.0, 7, 3, 10, frozenset({("t", 0)}))


def test_a_line_for_people_fits_a_terminal():
    group = GroupDescription("billing", "consumer", "Stable", "consumer", "uniform", 1, ())
    seen = looks((0, 0, 100_000), (2, 20_000, 110_000))
    assert line_of(row_of(group, seen[-1], pace(seen), 1_700_000_000_000)) == (
        "22:13:20Z  Stable  0 members  lag 90,000  read 10,000/s  written 5,000/s  empty in 18s"
    )
    first = looks((0, 0, 5))
    assert line_of(row_of(group, first[-1], pace(first), 0)).endswith("0 members  lag 5")
