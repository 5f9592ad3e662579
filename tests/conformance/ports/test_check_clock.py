"""What every clock promises. ``pass_time`` waits on the system's and advances a manual one."""

import asyncio
import time

import pytest

from ottla.env.clock import ManualClock, SystemClock
from ottla.env.jumping_clock import JumpingClock, SteadyClock


def steady_clock():
    clock = SystemClock()
    return SteadyClock(clock, JumpingClock(clock))


CLOCKS = {
    "system": SystemClock,
    "manual": ManualClock,
    "jumping": lambda: JumpingClock(SystemClock()),
    "steady": steady_clock,
}


@pytest.fixture(params=CLOCKS)
def clock(request):
    return CLOCKS[request.param]()


@pytest.fixture
def pass_time(clock):
    async def pass_time(seconds):
        if isinstance(clock, ManualClock):
            clock.advance(seconds)
        elif isinstance(clock, JumpingClock):
            await clock.jump(seconds)
        else:
            await asyncio.sleep(seconds)

    return pass_time


async def test_wall_and_monotonic_time_go_on_together(clock, pass_time):
    wall_ms, monotonic = clock.wall_ms(), clock.monotonic()
    await pass_time(0.03)
    assert clock.monotonic() - monotonic >= 0.029
    assert clock.wall_ms() - wall_ms >= 25
    assert isinstance(clock.wall_ms(), int)


async def test_timers_fire_once_in_the_order_they_are_due(clock, pass_time):
    fired = []
    clock.call_later(0.03, lambda: fired.append("late"))
    clock.call_later(0.01, lambda: fired.append("early"))
    clock.call_later(9.0, lambda: fired.append("never"))
    assert fired == []
    await pass_time(0.02)
    await pass_time(0.05)
    assert fired == ["early", "late"]


async def test_a_timer_is_not_early(clock, pass_time):
    start = clock.monotonic()
    fired = []
    clock.call_later(0.02, lambda: fired.append(clock.monotonic() - start))
    await pass_time(0.05)
    # A loop's clock has a resolution of its own.
    assert fired[0] >= 0.02 - time.get_clock_info("monotonic").resolution - 1e-6


async def test_a_cancelled_timer_does_not_fire(clock, pass_time):
    fired = []
    timer = clock.call_later(0.01, lambda: fired.append(1))
    timer.cancel()
    timer.cancel()
    await pass_time(0.03)
    assert fired == []
    done = clock.call_later(0, lambda: fired.append(2))
    await pass_time(0.01)
    done.cancel()
    assert fired == [2]


async def test_a_callback_may_set_the_next_timer(clock, pass_time):
    fired = []

    def tick():
        fired.append(clock.monotonic())
        if len(fired) < 3:
            clock.call_later(0.01, tick)

    clock.call_later(0.01, tick)
    for _ in range(4):
        await pass_time(0.02)
    assert len(fired) == 3
    assert fired == sorted(fired)
