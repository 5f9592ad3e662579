"""Small ranges of a stream share tasks as long as its micro-batches are quick, and not else."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.planning.sharing import ALONE_BATCHES, FIRST, MOST, QUICK_SECONDS, Sharing


def live(sharing, *durations):
    """Run micro-batches that last so long; return how many offsets shared a task in each."""
    shared, now = [], 100.0
    for seconds in durations:
        shared.append(sharing.planned(now))
        sharing.ended(now + seconds)
        now += seconds
    return shared


def test_a_stream_begins_with_a_task_for_each_range_and_shares_more_and_more():
    assert live(Sharing(), *[0.5] * 8) == [0, 64, 128, 256, 512, 1000, 1000, 1000]


def test_micro_batches_that_come_seldom_share_no_task():
    assert live(Sharing(), *[QUICK_SECONDS + 1] * 20) == [0] * 20


def test_a_slow_micro_batch_gives_each_range_its_task_again_for_a_while():
    shared = live(Sharing(), 0.5, 0.5, 5.0, *[0.5] * (ALONE_BATCHES + 3))
    assert shared[:3] == [0, FIRST, 2 * FIRST]
    assert shared[3 : 3 + ALONE_BATCHES + 1] == [0] * (ALONE_BATCHES + 1)
    assert shared[4 + ALONE_BATCHES :] == [FIRST, 2 * FIRST]


@given(
    seconds_per_row=st.floats(0.003, 0.2),
    rates=st.lists(st.floats(1, 300), min_size=2, max_size=8),
)
def test_a_query_that_is_slow_by_the_row_is_held_up_once_in_many_micro_batches(
    seconds_per_row, rates
):
    """A core for each partition, a trigger of a second: what one task does takes its rows' time."""
    sharing, since, seldom = Sharing(), 1.0, 0
    for _ in range(ALONE_BATCHES):
        rows = [rate * since for rate in rates]
        least, now = sharing.planned(0.0), 0.0
        tasks, together = [], 0.0
        for each in rows:
            together += each
            if together >= least:
                tasks.append(together)
                together = 0.0
        alone = max(rows) * seconds_per_row
        took = max([*tasks, together]) * seconds_per_row
        since = max(now + took, 1.0)
        sharing.ended(since)
        since = min(since, 10.0)
        seldom += took > max(alone, QUICK_SECONDS)
    assert seldom <= 1


def test_one_micro_batch_that_is_planned_twice_is_planned_alike():
    sharing = Sharing()
    live(sharing, 0.5)
    assert (sharing.planned(1.0), sharing.planned(9.0)) == (FIRST, FIRST)
    sharing.ended(9.5)  # from the first plan on: slow
    assert sharing.planned(10.0) == 0


def test_questions_without_a_micro_batch_teach_nothing():
    sharing = Sharing()
    for now in range(10):
        sharing.ended(float(now))
    assert sharing.planned(10.0) == 0
    assert live(sharing, *[0.1] * 20)[-1] == MOST
