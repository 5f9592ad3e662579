"""Which part of a log is dirty, when it is due, and which segments become one."""

import pytest

from ottla.ids import INT64_MAX
from ottla.log.config import LogConfig
from ottla.log.upkeep.compaction import (
    LogBounds,
    SegmentFacts,
    Source,
    cleanable_part,
    group_sources,
)

NOW = 1_000_000


def part(*segments, cleaned_to=None, start=0, end=None, stable=None, **config):
    """``segments``: (base offset, size, newest timestamp), the last one active."""
    facts = [
        SegmentFacts(base, size, lambda newest=newest: newest, lambda newest=newest: newest - 10)
        for base, size, newest in segments
    ]
    end = segments[-1][0] + 10 if end is None else end
    bounds = LogBounds(start, end, end if stable is None else stable)
    found = cleanable_part(facts, bounds, LogConfig(**config), cleaned_to=cleaned_to, now_ms=NOW)
    return (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.cleanable_bytes,
        found.is_overdue,
    )


FOUR = [(0, 100, 100), (10, 200, 200), (20, 400, 300), (30, 800, 400)]


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        # Never cleaned: all but the active segment is dirty.
        ((0, 30, 0, 700, False), {}),
        ((10, 30, 100, 600, False), {"cleaned_to": 10}),
        # In the middle of a segment: it is clean and dirty.
        ((15, 30, 300, 600, False), {"cleaned_to": 15}),
        ((30, 30, 700, 0, False), {"cleaned_to": 30}),
        # A checkpoint that cannot be right counts as none.
        ((5, 30, 100, 700, False), {"cleaned_to": 3, "start": 5}),
        ((0, 30, 0, 700, False), {"cleaned_to": 41}),
        # Nothing undecided, uncommitted or unflushed.
        ((0, 20, 0, 300, False), {"stable": 20}),
        ((0, 20, 0, 300, False), {"stable": 29}),
        ((10, 10, 100, 0, False), {"stable": 5, "cleaned_to": 10}),
        # Nothing younger than the minimal lag, whole segments only.
        ((0, 20, 0, 300, False), {"min_compaction_lag_ms": NOW - 299}),
        ((0, 30, 0, 700, False), {"min_compaction_lag_ms": NOW - 300}),
        ((0, 0, 0, 0, False), {"min_compaction_lag_ms": NOW}),
        # Overdue: by the first batch of any dirty segment, the active one does not count.
        ((0, 30, 0, 700, True), {"max_compaction_lag_ms": NOW - 91}),
        ((0, 30, 0, 700, False), {"max_compaction_lag_ms": NOW - 90}),
        ((20, 30, 300, 400, False), {"max_compaction_lag_ms": NOW - 200, "cleaned_to": 20}),
        ((30, 30, 700, 0, False), {"max_compaction_lag_ms": 1, "cleaned_to": 30}),
    ],
)
def test_the_parts_of_a_log(expected, options):
    assert part(*FOUR, **options) == expected


def test_a_log_is_due_above_its_ratio_or_when_overdue():
    facts = [SegmentFacts(*one[:2], lambda: 0, lambda: 5) for one in FOUR]
    bounds = LogBounds(0, 40, 40)

    def found(cleaned_to, **config):
        return cleanable_part(facts, bounds, LogConfig(**config), cleaned_to=cleaned_to, now_ms=NOW)

    assert found(None).ratio == 1.0
    assert found(20).ratio == pytest.approx(4 / 7)
    assert found(20).is_due(0.5)
    assert not found(20).is_due(4 / 7), "above, not at"
    assert found(20, max_compaction_lag_ms=1).is_due(0.9)
    assert not found(30, max_compaction_lag_ms=1).is_due(0.9)
    assert not found(30).is_due(0.0)


def test_nobody_asks_for_times_without_a_lag():
    def fail():
        raise AssertionError

    facts = [SegmentFacts(0, 1, fail, fail), SegmentFacts(1, 1, fail, fail)]
    config = LogConfig(max_compaction_lag_ms=INT64_MAX)
    cleanable_part(facts, LogBounds(0, 2, 2), config, cleaned_to=None, now_ms=NOW)


def groups(*sources, **config):
    found = group_sources([Source(*source) for source in sources], LogConfig(**config))
    return [[source.base_offset for source in group] for group in found]


def test_segments_are_joined_as_far_as_one_may_be_large():
    segments = [(n * 10, n * 10 + 10, 40) for n in range(5)]
    assert groups(*segments, segment_bytes=100) == [[0, 10], [20, 30], [40]]
    assert groups(*segments, segment_bytes=80) == [[0, 10], [20, 30], [40]]
    assert groups(*segments, segment_bytes=79) == [[0], [10], [20], [30], [40]]
    assert groups(*segments, segment_bytes=10) == [[0], [10], [20], [30], [40]]
    assert groups(segment_bytes=10) == []


@pytest.mark.parametrize("at", [3, 4])
def test_segments_are_joined_as_far_as_indexes_may_be_large(at):
    segments = [[n, n + 1, 1, 0, 0] for n in range(4)]
    for one in segments:
        one[at] = 50
    assert groups(*segments, segment_index_bytes=120) == [[0, 1], [2, 3]]


def test_segments_are_joined_as_far_as_relative_offsets_reach():
    far = 2**31
    assert groups((0, 10, 1), (10, far, 1), (far, far + 1, 1)) == [[0, 10], [far]]
    assert groups((0, 10, 1), (10, far + 1, 1)) == [[0], [10]]
