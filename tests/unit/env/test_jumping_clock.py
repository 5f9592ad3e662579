"""What a clock that jumps promises beyond what every clock does."""

import asyncio

import pytest

from ottla.env.awake_clock import AwakeClock
from ottla.env.clock import ManualClock, SystemClock
from ottla.env.jumping_clock import JumpingClock, SteadyClock

DAY = 86_400.0


async def test_eight_days_ring_a_timer_of_each_second_a_few_times():
    clock = JumpingClock(ManualClock())
    rung = []

    def tick():
        rung.append(clock.monotonic())
        clock.call_later(1.0, tick)

    clock.call_later(1.0, tick)
    await clock.jump(8 * DAY)
    assert rung == [1.0, 8 * DAY]


async def test_timers_ring_at_their_moments_in_order():
    clock = JumpingClock(ManualClock())
    rung = []
    for seconds in (30.0, 10.0, 20.0, 10.0):
        clock.call_later(seconds, lambda s=seconds: rung.append((s, clock.monotonic())))
    await clock.jump(25.0)
    assert rung == [(10.0, 10.0), (10.0, 10.0), (20.0, 20.0)]
    assert clock.monotonic() == 25.0
    await clock.jump(5.0)
    assert rung[-1] == (30.0, 30.0)


async def test_a_timer_that_is_cancelled_during_the_jump_does_not_ring():
    clock = JumpingClock(ManualClock())
    rung = []
    last = clock.call_later(2.0, lambda: rung.append("last"))
    clock.call_later(1.0, last.cancel)
    await clock.jump(3.0)
    assert rung == []


async def test_a_timer_rings_once_whoever_comes_first():
    behind = ManualClock()
    clock = JumpingClock(behind)
    rung = []
    clock.call_later(1.0, lambda: rung.append(clock.monotonic()))
    await clock.jump(1.0)
    behind.advance(5.0)
    assert rung == [1.0]
    clock.call_later(1.0, lambda: rung.append(clock.monotonic()))
    behind.advance(5.0)
    await clock.jump(5.0)
    assert len(rung) == 2


async def test_nothing_of_a_rung_or_cancelled_timer_is_kept():
    clock = JumpingClock(ManualClock())
    for _ in range(100):
        clock.call_later(1.0, lambda: None).cancel()
        clock.call_later(1.0, lambda: None)
    await clock.jump(2.0)
    assert not clock._timers


async def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="go back"):
        await JumpingClock(ManualClock()).jump(-1)


async def test_a_jump_waits_for_what_it_has_begun_and_rings_what_that_sets():
    rung = []

    async def settled():
        await asyncio.sleep(0)
        if rung == ["first"]:
            clock.call_later(0.0, lambda: rung.append("second"))

    clock = JumpingClock(ManualClock(), settled)
    clock.call_later(1.0, lambda: rung.append("first"))
    await clock.jump(DAY)
    assert rung == ["first", "second"]


async def test_the_steady_clock_shares_the_date_and_nothing_else():
    true = ManualClock()
    jumping = JumpingClock(true)
    steady = SteadyClock(true, jumping)
    rung = []
    steady.call_later(1.0, lambda: rung.append(1))
    await jumping.jump(DAY)
    assert rung == []
    assert steady.monotonic() == true.monotonic()
    assert steady.wall_ms() == jumping.wall_ms() == true.wall_ms() + round(DAY * 1000)


async def test_a_jump_is_no_stall_for_the_clock_of_sessions():
    true = ManualClock()
    jumping = JumpingClock(true)
    awake = AwakeClock(jumping, SteadyClock(true, jumping))
    awake.start()
    rung = []
    awake.call_later(45.0, lambda: rung.append(awake.monotonic()))
    await jumping.jump(50.0)
    assert rung == [45.0]
    true.hold(100.0)
    before = awake.monotonic()
    assert before < 60.0, "but a stall is one"
    awake.stop()


async def test_between_jumps_it_goes_as_the_system_does():
    clock = JumpingClock(SystemClock())
    rung = asyncio.Event()
    clock.call_later(0.001, rung.set)
    await asyncio.wait_for(rung.wait(), 10)
