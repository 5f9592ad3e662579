import pytest

from ottla.supervision.restarts import Restarts, is_silent


def test_a_node_that_never_served_is_not_started_again():
    assert Restarts(may_restart=True).ended(1.0) is None


def test_a_node_in_memory_does_not_come_back_empty():
    restarts = Restarts(may_restart=False)
    restarts.ready(0.0)
    assert restarts.ended(100.0) is None


def test_a_node_that_keeps_ending_comes_back_later_each_time():
    restarts = Restarts(may_restart=True)
    now, pauses = 0.0, []
    for _ in range(10):
        restarts.ready(now)
        assert restarts.is_serving
        pauses.append(restarts.ended(now + 0.9))
        assert not restarts.is_serving
        now += 12.0
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_ends_before_it_serves_again_count_too():
    restarts = Restarts(may_restart=True)
    restarts.ready(0.0)
    assert [restarts.ended(float(now)) for now in range(1, 4)] == pytest.approx([0.05, 0.1, 0.2])


def test_a_node_that_was_well_comes_back_soon_whatever_was_before():
    restarts = Restarts(may_restart=True)
    for _ in range(5):
        restarts.ready(0.0)
        restarts.ended(0.9)
    for _ in range(3):
        restarts.ready(100.0)
        assert restarts.ended(101.0) == pytest.approx(0.05)


def test_a_very_long_row_of_ends_does_not_overflow():
    restarts = Restarts(may_restart=True)
    restarts.ready(0.0)
    assert [restarts.ended(0.0) for _ in range(5_000)][-1] == pytest.approx(10.0)


def test_silence_counts_only_while_somebody_listened():
    assert not is_silent(now=129.9, heard_at=100.0, listening_since=0.0)
    assert is_silent(now=130.0, heard_at=100.0, listening_since=0.0)
    assert not is_silent(now=1_000.0, heard_at=100.0, listening_since=990.0)
