"""Periodic work never meets itself, outlives its own failures, and ends with the broker."""

import asyncio
import logging

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.housekeeping.schedule import Schedule


class Work:
    """Counts how often it began, and how many are under way; ends when it is told to."""

    def __init__(self):
        self.begun = self.under_way = self.at_once = 0
        self.error = None
        self.may_end = asyncio.Event()

    async def do(self):
        self.begun += 1
        self.under_way += 1
        self.at_once = max(self.at_once, self.under_way)
        try:
            await self.may_end.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.under_way -= 1


class House:
    def __init__(self):
        self.clock, self.work = ManualClock(), Work()
        self.keeping = Schedule(self.clock)

    async def pass_ms(self, milliseconds):
        self.clock.advance(milliseconds / 1000)
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self):
        self.work.may_end.set()
        await self.pass_ms(0)
        self.work.may_end.clear()


@pytest.fixture
async def house():
    one = House()
    yield one
    one.keeping.stop()
    await one.end()


async def test_an_interval_altered_while_the_work_runs_does_not_begin_it_beside_itself(house):
    house.keeping.every(100, house.work.do)
    await house.pass_ms(100)
    assert house.work.begun == 1
    for interval_ms in (101, 1, 50):
        house.keeping.change(interval_ms, house.work.do)
        await house.pass_ms(1000)
    assert (house.work.begun, house.work.at_once) == (1, 1)
    await house.end()
    await house.pass_ms(49)
    assert house.work.begun == 1, "so long after its end"
    await house.pass_ms(1)
    assert (house.work.begun, house.work.at_once) == (2, 1)


async def test_an_interval_altered_in_between_holds_from_then_on(house):
    house.keeping.every(1000, house.work.do)
    await house.pass_ms(500)
    house.keeping.change(10, house.work.do)
    await house.pass_ms(10)
    assert house.work.begun == 1
    await house.end()
    house.keeping.change(10, house.work.do)
    house.keeping.change(1000, house.work.do)
    await house.pass_ms(999)
    assert house.work.begun == 1


async def test_an_interval_that_stays_the_same_does_not_put_the_work_off(house):
    house.keeping.every(100, house.work.do)
    for _ in range(9):
        await house.pass_ms(11)
        house.keeping.change(100, house.work.do)
    await house.pass_ms(11)
    assert house.work.begun == 1


@pytest.mark.parametrize(
    "error", [OSError(28, "full"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), AssertionError("us")]
)
async def test_work_that_fails_is_named_and_begins_again_at_its_next_time(house, error, caplog):
    house.keeping.every(100, house.work.do)
    await house.pass_ms(100)
    house.work.error = error
    with caplog.at_level(logging.ERROR):
        await house.end()
    assert "housekeeping failed" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, AssertionError)
    await house.pass_ms(100)
    assert house.work.begun == 2


async def test_a_stop_begins_nothing_any_more_not_even_after_the_work_under_way(house):
    house.keeping.every(100, house.work.do)
    await house.pass_ms(100)
    house.keeping.stop()
    house.keeping.change(1, house.work.do)
    await house.end()
    house.keeping.change(2, house.work.do)
    await house.pass_ms(1000)
    assert house.work.begun == 1
