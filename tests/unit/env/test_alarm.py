"""One timer of the clock rings at the earliest moment, in time, and once."""

import pytest

from ottla.env.alarm import GRACE_SECONDS, NEVER, STALL_SECONDS, Alarm
from ottla.env.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rung():
    return []


def test_it_rings_at_the_earliest_moment_and_once(clock, rung):
    alarm = Alarm(clock, rung.append)
    for at in (3.0, 1.0, 2.0):
        alarm.set(at)
    assert alarm.at == 1.0
    clock.advance(10)
    assert rung == [1.0]
    assert alarm.at == NEVER
    assert clock.timers() == 0


def test_it_can_be_set_while_it_rings(clock, rung):
    def ring(now):
        rung.append(now)
        if len(rung) < 3:
            alarm.set(now + 1)

    alarm = Alarm(clock, ring)
    alarm.set(0.5)
    clock.advance(10)
    assert rung == [0.5, 1.5, 2.5]


def test_an_alarm_that_was_cleared_does_not_ring_and_leaves_no_timer(clock, rung):
    alarm = Alarm(clock, rung.append)
    alarm.set(1.0)
    alarm.clear()
    alarm.clear()
    assert clock.timers() == 0
    clock.advance(10)
    assert rung == []
    alarm.set(11.0)
    clock.advance(1)
    assert rung == [11.0]


def test_a_moment_that_is_over_rings_at_once(clock, rung):
    clock.advance(5)
    alarm = Alarm(clock, rung.append)
    alarm.set(1.0)
    clock.advance(0)
    assert rung == [5.0]


def test_with_patience_it_waits_a_moment_after_a_stall(clock, rung):
    patient = Alarm(clock, rung.append, has_patience=True)
    patient.set(1.0)
    clock.stall(1.0 + STALL_SECONDS + 0.1)
    assert rung == []
    clock.advance(GRACE_SECONDS - 0.01)
    assert rung == []
    clock.advance(0.01)
    assert len(rung) == 1


def test_a_stall_does_not_delay_it_without_patience_nor_a_short_one_with_it(clock, rung):
    impatient, patient = Alarm(clock, rung.append), Alarm(clock, rung.append, has_patience=True)
    impatient.set(1.0)
    clock.stall(30)
    assert rung == [30.0]
    patient.set(31.0)
    clock.stall(1 + STALL_SECONDS * 0.9)
    assert len(rung) == 2


def test_the_grace_after_a_stall_ends_although_it_is_set_again_all_the_time(clock, rung):
    """Each fetch that came began the grace anew: those that were overdue never ended."""
    alarm = Alarm(clock, rung.append, has_patience=True)
    alarm.set(1.0)
    clock.stall(5)
    for _ in range(60):
        clock.advance(0.01)
        alarm.set(1.0)
    assert len(rung) >= 1
