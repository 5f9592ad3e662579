import logging

import pytest

from ottla.env.clock import ManualClock
from ottla.handlers.refusals import KINDS_MAX, Refusals


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="ottla.audit")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_flood_of_refusals_is_a_few_lines(lines):
    clock = ManualClock()
    refusals = Refusals(clock)
    for _ in range(10_000):
        refusals.note("10.0.0.9", "bob", "wrong")
    assert lines() == ["refused 10.0.0.9: user 'bob': wrong"]
    clock.advance(61)
    refusals.note("10.0.0.9", "bob", "wrong")
    assert lines()[1:] == [
        "refused 10.0.0.9: user 'bob': wrong: 10000 times in a minute",
        "refused 10.0.0.9: user 'bob': wrong",
    ]
    assert refusals.count == 10_001


def test_as_many_names_as_one_likes_fill_neither_the_log_nor_memory(lines):
    refusals = Refusals(ManualClock())
    for number in range(10 * KINDS_MAX):
        refusals.note("10.0.0.9", f"user-{number}", "wrong")
    assert len(lines()) == KINDS_MAX + 1
    assert len(refusals._complaints._counts) <= KINDS_MAX + 1


def test_a_name_cannot_write_lines_of_its_own(lines):
    refusals = Refusals(ManualClock())
    refusals.note("10.0.0.9", "eve\nrefused 1.2.3.4\x1b[2J" + "x" * 1000, "wrong")
    (line,) = lines()
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 150
