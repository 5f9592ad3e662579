"""The things that a request names are done one after the other, until its timeout."""

import asyncio

import pytest

from ottla.cluster.in_time import Patience, each_in_time
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError

OVER = ErrorCode.REQUEST_TIMED_OUT


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def made():
    """Makes things when it is let; remembers what was begun and what was done."""

    class Made:
        def __init__(self):
            self.begun, self.finished = [], []
            self.permits = asyncio.Semaphore(100)

        async def one(self, thing):
            self.begun.append(thing)
            await self.permits.acquire()
            if thing == "bad":
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            self.finished.append(thing)
            return thing

    return Made()


def told(pending):
    assert pending.is_done
    return [one.code if isinstance(one, KafkaError) else one for one in pending.value]


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_done_in_time_is_told_in_order_and_the_timer_goes(clock, made):
    answer = each_in_time(["a", "bad", "c"], made.one, Patience(clock, 1000))
    await settle()
    assert told(answer) == ["a", ErrorCode.INVALID_TOPIC_EXCEPTION, "c"]
    clock.advance(2)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_without_time_nothing_is_begun(clock, made, timeout_ms):
    answer = each_in_time(["a", "b"], made.one, Patience(clock, timeout_ms))
    await settle()
    assert told(answer) == [OVER, OVER]
    assert made.begun == []
    assert told(each_in_time([], made.one, Patience(clock, timeout_ms))) == []


async def test_when_the_time_is_over_what_is_done_is_told_and_no_more_begun(clock, made):
    made.permits = asyncio.Semaphore(1)
    answer = each_in_time(["a", "b", "c"], made.one, Patience(clock, 1000))
    await settle()
    assert (made.begun, made.finished) == (["a", "b"], ["a"])
    clock.advance(1)
    assert told(answer) == ["a", OVER, OVER]
    made.permits.release()
    made.permits.release()
    await settle()
    assert made.finished == ["a", "b"], "what is under way goes on"
    assert "c" not in made.begun
    assert told(answer) == ["a", OVER, OVER]


async def test_without_a_timeout_it_takes_as_long_as_it_takes(clock, made):
    made.permits = asyncio.Semaphore(0)
    answer = each_in_time(["a"], made.one)
    clock.advance(10**6)
    await settle()
    assert not answer.is_done
    made.permits.release()
    await settle()
    assert told(answer) == ["a"]


async def test_a_fault_is_told_and_the_timer_goes(clock):
    async def fault(_):
        raise ZeroDivisionError

    answer = each_in_time(["a"], fault, Patience(clock, 1000))
    await settle()
    assert isinstance(answer.error, ZeroDivisionError)
    clock.advance(2)
