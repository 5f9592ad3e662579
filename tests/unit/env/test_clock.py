"""The manual clock beyond what every clock promises."""

import asyncio

import pytest

from ottla.env.clock import ManualClock, pause


@pytest.fixture
def clock():
    return ManualClock(wall_ms=1000)


def test_a_callback_sees_the_time_it_was_due_at(clock):
    seen = []
    clock.call_later(0.5, lambda: seen.append((clock.monotonic(), clock.wall_ms())))
    clock.call_later(0.25, lambda: clock.call_later(0.5, lambda: seen.append(clock.monotonic())))
    clock.advance(2)
    assert seen == [(0.5, 1500), 0.75]
    assert (clock.monotonic(), clock.wall_ms()) == (2.0, 3000)


def test_timers_due_together_fire_in_the_order_they_were_set(clock):
    fired = []
    for number in range(5):
        clock.call_later(1, lambda number=number: fired.append(number))
    assert clock.timers() == 5
    clock.advance(1)
    assert fired == [0, 1, 2, 3, 4]
    assert clock.timers() == 0


def test_many_small_steps_add_up_exactly(clock):
    for _ in range(1000):
        clock.advance(0.001)
    assert (clock.monotonic(), clock.wall_ms()) == (1.0, 2000)


def test_after_a_stall_everything_overdue_fires_late_and_in_order(clock):
    seen = []
    for name, due in (("b", 2), ("a", 1), ("c", 9)):
        clock.call_later(due, lambda name=name: seen.append((name, clock.monotonic())))
    clock.stall(3)
    assert seen == [("a", 3.0), ("b", 3.0)]
    clock.advance(6)
    assert seen[2:] == [("c", 9.0)]


def test_the_wall_jumps_alone(clock):
    fired = []
    clock.call_later(1, lambda: fired.append(1))
    clock.jump_wall(-3_600_000)
    assert (clock.monotonic(), clock.wall_ms()) == (0.0, -3_599_000)
    assert fired == []
    clock.jump_wall(7_200_000)
    assert clock.wall_ms() == 3_601_000
    assert fired == []


def test_monotonic_time_cannot_go_back(clock):
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_a_failing_callback_leaves_the_later_timers_due(clock):
    fired = []
    clock.call_later(1, lambda: 1 // 0)
    clock.call_later(2, lambda: fired.append(clock.monotonic()))
    with pytest.raises(ZeroDivisionError):
        clock.advance(5)
    assert clock.monotonic() == 1.0
    clock.advance(5)
    assert fired == [2.0]


async def test_a_pause_ends_when_its_time_has_passed(clock):
    waiting = asyncio.ensure_future(pause(clock, 2))
    await asyncio.sleep(0)
    clock.advance(1.9)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(0.1)
    await asyncio.wait_for(waiting, 5)


async def test_a_cancelled_pause_leaves_no_timer(clock):
    waiting = asyncio.ensure_future(pause(clock, 2))
    await asyncio.sleep(0)
    assert clock.timers() == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert clock.timers() == 0
