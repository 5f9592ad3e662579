import pytest

from ottla.deadlines import Deadlines
from ottla.env.clock import ManualClock
from ottla.turns import Turns


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def timers(clock):
    return Deadlines(
        clock, Turns(clock, call_soon=lambda turn: clock.call_later(0, turn)), name="timers"
    )


def test_they_fire_in_order_and_once(clock, timers):
    fired = []
    for key, delay_ms in (("b", 200), ("a", 100), ("now", -5)):
        timers.schedule(key, delay_ms, lambda key=key: fired.append((key, clock.monotonic())))
    clock.advance(1)
    assert fired == [("now", 0), ("a", 0.1), ("b", 0.2)]
    assert len(timers) == 0


def test_a_moved_timer_fires_at_its_last_place_only(clock, timers):
    fired = []
    for _ in range(5):
        timers.schedule("late", 1000, lambda: fired.append(clock.monotonic()))
        clock.advance(0.9)
    assert not fired
    clock.advance(10)
    assert fired == [pytest.approx(4 * 0.9 + 1)]
    timers.schedule("soon", 1000, lambda: fired.append("late"))
    timers.schedule("soon", 10, lambda: fired.append("soon"))
    clock.advance(5)
    assert fired[1:] == ["soon"]


def test_cancelled_ones_do_not_fire(clock, timers):
    timers.schedule("a", 100, lambda: pytest.fail("cancelled"))
    timers.cancel("a")
    timers.cancel("a")
    timers.schedule("b", 100, lambda: pytest.fail("closed"))
    assert "b" in timers
    timers.close()
    clock.advance(1)


def test_a_timer_may_set_itself_again(clock, timers):
    fired = []

    def again():
        fired.append(clock.monotonic())
        if len(fired) < 3:
            timers.schedule("x", 100, again)

    timers.schedule("x", 100, again)
    clock.advance(1)
    assert fired == pytest.approx([0.1, 0.2, 0.3])


def test_moving_ten_thousand_sessions_leaves_nothing_behind(clock, timers):
    for _ in range(20):
        for key in range(10_000):
            timers.schedule(key, 45_000, lambda: pytest.fail("alive"))
        clock.advance(3)
    assert len(timers._heap) == 10_000


def test_what_was_cancelled_does_not_stay_in_memory_until_it_would_be_due(clock, timers):
    rung = []
    timers.schedule("stays", 1_000_000, lambda: rung.append("stays"))
    for number in range(10_000):
        timers.schedule(number, 1_800_000, lambda: rung.append("cancelled"))
        timers.cancel(number)
    assert len(timers._heap) + len(timers._queued) < 300
    timers.schedule("soon", 10, lambda: rung.append("soon"))
    clock.advance(0.02)
    clock.advance(2_000)
    assert rung == ["soon", "stays"]


def test_what_has_rung_counts_until_it_is_set_anew_or_cancelled(clock, timers):
    told = {}
    for key in "abc":
        timers.schedule(key, 10, lambda key=key: told.update({key: timers.rung(key)}))
    clock.advance(0.02)
    timers.schedule("b", 10, lambda: None)
    timers.cancel("c")
    assert [told[key]() for key in "abc"] == [True, False, False]
    assert not told["a"](), "it is told once"
    assert not timers._rung
