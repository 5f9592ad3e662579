"""Lines that clients provoke: one of a kind in a minute, then a count, in bounded memory."""

import logging

import pytest

from ottla.complaints import KINDS_MAX, LINE_MAX, OTHERS, QUIET_SECONDS, Complaints
from ottla.env.clock import ManualClock

logger = logging.getLogger("test.complaints")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def complaints(clock):
    return Complaints(logger, clock)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger=logger.name)
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_flood_is_a_line_and_a_count(complaints, clock, lines):
    for number in range(5000):
        complaints.warn("refusing 10.0.0.9", f" ({number} are open)")
    assert lines() == ["refusing 10.0.0.9 (0 are open)"]
    complaints.tell()
    assert len(lines()) == 1, "not before its time"
    clock.advance(QUIET_SECONDS)
    complaints.tell()
    assert lines()[1:] == ["refusing 10.0.0.9: 5000 times in a minute"]
    clock.advance(QUIET_SECONDS)
    complaints.tell()
    assert len(lines()) == 2, "nothing new"
    complaints.warn("refusing 10.0.0.9")
    assert lines()[2:] == ["refusing 10.0.0.9"]


def test_what_happened_once_is_told_once(complaints, clock, lines):
    complaints.warn("this")
    complaints.warn("that")
    clock.advance(QUIET_SECONDS)
    complaints.tell()
    assert lines() == ["this", "that"]


def test_many_addresses_fill_neither_the_log_nor_memory(complaints, clock, lines):
    for number in range(10 * KINDS_MAX):
        complaints.warn(f"refusing 2001:db8::{number:x}")
    assert len(lines()) == KINDS_MAX + 1
    assert lines()[-1] == OTHERS
    assert len(complaints._counts) == KINDS_MAX + 1
    clock.advance(QUIET_SECONDS)
    complaints.tell()
    assert lines()[-1] == f"{OTHERS}: {9 * KINDS_MAX} times in a minute"


def test_a_name_writes_no_lines_of_its_own(complaints, lines):
    complaints.warn("topic a\nrefused\x1b[2J" + "x" * 5000, "\r\nmore")
    (line,) = lines()
    assert line.isprintable()
    assert line.startswith("topic a\\nrefused\\x1b[2J")
    assert len(line) < LINE_MAX + 50


def test_a_traceback_is_told_once(complaints, caplog):
    for _ in range(3):
        complaints.note(logging.ERROR, "it failed", error=ValueError("why"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info[1].args == ("why",)
