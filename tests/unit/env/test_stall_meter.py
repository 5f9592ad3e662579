"""The stall meter: what held the loop, for how long, and what it costs to know."""

import asyncio
import logging
import time

import pytest
import uvloop

from ottla.env.clock import ManualClock
from ottla.env.executor import ThreadExecutor
from ottla.env.stall_meter import (
    BUSY_BEAT_SECONDS,
    IDLE_BEAT_SECONDS,
    LOGGED_SECONDS,
    MeteredClock,
    StallMeter,
)


def work_for(clock, seconds):
    clock.hold(seconds)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def meter(clock):
    meter = StallMeter(clock)
    meter.start()
    return meter


def test_the_longest_turn_is_kept_with_what_ran_in_it(clock, meter):
    meter.run(work_for, clock, 0.05)
    meter.run(work_for, clock, 0.03)
    assert meter.longest.wall_seconds == pytest.approx(0.05)
    assert meter.longest.cpu_seconds == pytest.approx(0.05)
    assert "work_for" in meter.longest.what
    meter.reset()
    assert meter.longest.wall_seconds == 0


def test_a_short_turn_is_not_told(clock, meter, caplog):
    meter.run(work_for, clock, LOGGED_SECONDS - 0.01)
    assert caplog.records == []


def test_a_stall_is_told_once_although_a_beat_is_late_as_well(clock, meter, caplog):
    meter.run(work_for, clock, 0.5)
    clock.advance(5)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    message = caplog.records[0].getMessage()
    assert "500 ms" in message
    assert "work_for" in message


def test_a_stall_that_nobody_measured_shows_in_a_late_beat(clock, meter, caplog):
    clock.advance(BUSY_BEAT_SECONDS / 2)
    work_for(clock, 1.0)
    clock.advance(IDLE_BEAT_SECONDS)
    assert len(caplog.records) == 1
    assert 0.9 <= meter.longest.wall_seconds <= 1.0


def test_many_short_rounds_in_one_turn_show_in_a_late_beat(clock, meter):
    for _ in range(100):
        meter.run(work_for, clock, 0.009)
    clock.advance(0)
    assert meter.longest.wall_seconds >= 0.8 - BUSY_BEAT_SECONDS


def test_many_stalls_are_few_lines(clock, meter, caplog):
    for _ in range(10):
        meter.run(work_for, clock, 0.3)
        clock.advance(0)
    assert len(caplog.records) <= 4
    assert "times unreported before" in caplog.records[-1].getMessage()


def test_a_failure_is_measured_and_passed_on(clock, meter):
    def fail():
        work_for(clock, 0.05)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        meter.run(fail)
    assert meter.longest.wall_seconds == pytest.approx(0.05)


def test_it_stops(clock, meter):
    meter.stop()
    assert clock.timers() == 0
    meter.stop()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_timers_and_jobs_are_measured_on_both_loops(new_loop, caplog):
    caplog.set_level(logging.WARNING)
    clock = MeteredClock()
    executor = ThreadExecutor(1, "test", meter=clock.meter)

    def hold(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    turns = []

    async def story():
        ended = asyncio.Event()
        clock.meter.start()

        def timer():
            hold(0.25)
            executor.submit(lambda: None, job)

        def job(_, error):
            assert error is None
            turns.append(clock.meter.longest)
            clock.meter.reset()  # On a busy machine the shorter one may take longer.
            hold(0.3)
            ended.set()

        clock.call_later(0, timer)
        await ended.wait()
        await asyncio.sleep(0)
        clock.meter.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(story(), 20))
    executor.close()
    turns.append(clock.meter.longest)
    timed, worked = turns
    assert timed.cpu_seconds >= 0.25
    assert "timer" in timed.what
    assert worked.cpu_seconds >= 0.3
    assert "job" in worked.what
    assert "timer" in caplog.records[0].getMessage()


def test_a_round_is_measured_for_a_fraction_of_a_microsecond():
    from ottla.turns import Turns

    clock = MeteredClock()
    turns = Turns(clock, clock.meter)
    name = str  # Never called.

    def per_round(count=20_000):
        began = time.thread_time()
        for _ in range(count):
            turns.spent(1e-9, name)
        return (time.thread_time() - began) / count

    assert min(per_round() for _ in range(5)) < 2e-6, "0.1 us where nothing else runs"
