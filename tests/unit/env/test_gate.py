"""A gate: side by side, alone, and shut, told by threads that really wait for each other."""

import threading

import pytest

from ottla.env.gate import Gate

SECONDS = 10


@pytest.fixture
def thread():
    """Run a function on a thread of its own; ``join`` raises nothing, so functions note things."""
    started = []

    def start(work):
        one = threading.Thread(target=work, daemon=True)
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.join(SECONDS)
        assert not one.is_alive()


def test_many_are_inside_side_by_side(thread):
    gate, meeting = Gate(), threading.Barrier(3)

    def work():
        assert gate.enter()
        meeting.wait(SECONDS)
        gate.leave()

    thread(work)
    thread(work)
    work()
    gate.wait_until_left()


def test_who_takes_the_place_waits_for_all_who_are_inside(thread):
    gate, is_in, may_leave, said = Gate(), threading.Event(), threading.Event(), []

    def job():
        gate.enter()
        is_in.set()
        may_leave.wait(SECONDS)
        said.append("job ends")
        gate.leave()

    def taker():
        gate.wait_until_left()
        said.append("taken")

    thread(job)
    assert is_in.wait(SECONDS)
    gate.shut()
    assert not gate.enter(), "shut while the job is still inside"
    waiting = thread(taker)
    waiting.join(0.05)
    assert not said
    may_leave.set()
    waiting.join(SECONDS)
    assert said == ["job ends", "taken"]


def test_who_comes_while_another_is_alone_waits_and_then_learns_what_became_of_it(thread):
    for is_shut in (False, True):
        gate, outcomes = Gate(), []

        def come(gate=gate, outcomes=outcomes):
            entered = gate.enter()
            outcomes.append(entered)
            if entered:
                gate.leave()

        with gate.alone():
            comer = thread(come)
            comer.join(0.05)
            assert not outcomes
            if is_shut:
                gate.shut()
        comer.join(SECONDS)
        assert outcomes == [not is_shut]


def test_a_thread_does_not_wait_for_itself():
    gate = Gate()
    assert gate.enter()
    with gate.alone():
        assert gate.enter()
        gate.leave()
    gate.shut()
    gate.wait_until_left()
    gate.leave()
    assert gate.is_shut
