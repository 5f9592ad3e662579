"""The clock that stands while the process does."""

import pytest

from ottla.env.awake_clock import GRACE_SECONDS, PULSE_SECONDS, STALL_SECONDS, AwakeClock
from ottla.env.clock import ManualClock


@pytest.fixture
def true_clock():
    return ManualClock()


@pytest.fixture
def clock(true_clock):
    clock = AwakeClock(true_clock)
    clock.start()
    return clock


def test_without_a_stall_it_is_the_true_clock(true_clock, clock):
    fired = []
    clock.call_later(7.25, lambda: fired.append((clock.monotonic(), true_clock.monotonic())))
    clock.call_later(3, lambda: fired.append("never")).cancel()
    true_clock.advance(20)
    assert fired == [(7.25, 7.25)]
    assert clock.monotonic() == 20
    assert clock.wall_ms() == true_clock.wall_ms()


@pytest.mark.parametrize("stall_seconds", [2.5, 6.0, 11.0, 3600.0])
def test_a_stall_at_any_moment_ends_nobodys_time(true_clock, clock, stall_seconds):
    for step in range(120):
        fired = []
        start = clock.monotonic()
        clock.call_later(6, lambda fired=fired: fired.append(clock.monotonic()))
        true_clock.advance(step * 0.05)
        true_clock.stall(stall_seconds)
        assert fired == [], f"stalled {step * 0.05} s after it was set"
        true_clock.advance(GRACE_SECONDS - 0.01)
        assert fired == [], "not before what came meanwhile could be read"
        true_clock.advance(6 + PULSE_SECONDS + 0.02)
        assert len(fired) == 1
        assert fired[0] - start == pytest.approx(6)


def test_it_never_goes_back(true_clock, clock):
    latest = clock.monotonic()
    for seconds in (0.3, 5, 0.1, 2.5, 0.4, 100, 0.2):
        true_clock.stall(seconds)
        for _ in range(9):
            assert clock.monotonic() >= latest
            latest = clock.monotonic()
            true_clock.advance(0.3)


def test_a_short_hold_up_is_no_stall(true_clock, clock):
    for _ in range(10):
        true_clock.stall(STALL_SECONDS * 0.9)
    assert clock.monotonic() == pytest.approx(true_clock.monotonic())


def test_stopped_it_leaves_no_timer_behind(true_clock, clock):
    clock.stop()
    clock.stop()
    assert true_clock.timers() == 0
    true_clock.stall(100)
    assert clock.monotonic() == 100
