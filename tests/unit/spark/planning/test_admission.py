"""How much one micro-batch takes, and when it begins."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.ids import TopicPartition
from ottla.spark.planning.admission import Gate, backlog, share

P = [TopicPartition("t", number) for number in range(4)]


def ends(most, *sizes):
    starts = {P[number]: 100 for number in range(len(sizes))}
    shared = share(most, starts, {P[number]: 100 + size for number, size in enumerate(sizes)})
    return [shared[P[number]] - 100 for number in range(len(sizes))]


@pytest.mark.parametrize(
    ("most", "sizes", "expected"),
    [
        (10, (3, 4), [3, 4]),
        (10, (10, 10), [5, 5]),
        (10, (30, 10), [8, 2]),
        (9, (10, 10), [5, 4]),
        (10, (1000, 1, 0), [9, 1, 0]),
        (2, (10, 10, 10), [1, 1, 1]),
        (1, (10, 0), [1, 0]),
        (100, (), []),
    ],
)
def test_shares_are_in_proportion_and_nobody_starves(most, sizes, expected):
    assert ends(most, *sizes) == expected


@example(3, [1, 1, 4])
@given(st.integers(1, 500), st.lists(st.integers(0, 1000), max_size=4))
def test_shares_fill_the_limit_and_do_not_pass_the_end(most, sizes):
    shared = ends(most, *sizes)
    assert all(0 <= part <= size for part, size in zip(shared, sizes, strict=True))
    assert all(part > 0 for part, size in zip(shared, sizes, strict=True) if size)
    with_any = sum(size > 0 for size in sizes)
    assert sum(shared) == min(max(most, with_any), sum(sizes)) or most < with_any


def test_a_rewound_partition_is_no_negative_backlog():
    assert backlog({P[0]: 10, P[1]: 5}, {P[0]: 4, P[1]: 8}) == 3


def test_the_gate_opens_for_the_first_for_enough_and_after_a_while():
    gate = Gate(max_delay_ms=1000)
    assert gate.lets_through(0, 10, now=5.0)
    assert not gate.lets_through(9, 10, now=5.5)
    assert gate.lets_through(10, 10, now=5.6)
    assert not gate.lets_through(9, 10, now=6.5)
    assert gate.lets_through(1, 10, now=6.6)
    assert gate.lets_through(0, None, now=6.7)
