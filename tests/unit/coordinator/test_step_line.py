"""A line of work runs its pieces in order, some at once, and goes on behind one that fails."""

import pytest

from ottla.coordinator.step_line import StepLine
from ottla.env.clock import ManualClock
from ottla.turns import Turns


@pytest.fixture
def due():
    return []


@pytest.fixture
def turns(due):
    return Turns(ManualClock(), call_soon=due.append)


@pytest.fixture
def line(turns):
    return StepLine(turns, "pieces")


def piece(seen, name, inside=None):
    seen.append((name, 1))
    if inside is not None:
        inside()
    yield
    seen.append((name, 2))


def test_what_comes_amid_a_piece_is_done_behind_it(line):
    seen = []
    line.do(piece(seen, "a", lambda: (line.do(piece(seen, "b")), line.add(piece(seen, "c")))))
    assert seen == [(name, step) for name in "abc" for step in (1, 2)]


def test_what_is_done_at_once_stands_behind_what_waits(line, turns, due):
    seen = []
    turns.is_over = True
    line.add(piece(seen, "a"))
    line.do(piece(seen, "b"))
    assert seen == []
    while due:
        due.pop(0)()
    line.do(piece(seen, "c"))
    assert seen == [(name, step) for name in "abc" for step in (1, 2)]


def test_nothing_is_done_at_once_in_a_turn_that_is_over(line, turns, due):
    seen = []
    turns.is_over = True
    line.do(piece(seen, "a"))
    assert seen == []
    while due:
        due.pop(0)()
    assert seen == [("a", 1), ("a", 2)]


def test_a_piece_that_fails_leaves_the_others_their_turns(line, due):
    seen = []

    def faulty():
        line.add(piece(seen, "behind"))
        raise RuntimeError("what nobody thought of")
        yield

    with pytest.raises(RuntimeError):
        line.do(faulty())
    while due:
        due.pop(0)()
    line.do(piece(seen, "later"))
    assert seen == [(name, step) for name in ("behind", "later") for step in (1, 2)]
