"""A Pending: its one listener, its value or error, and what cancels it."""

import asyncio

import pytest

from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.pending import Pending, pending_of


def heard(pending):
    got = []
    pending.on_done(lambda done: got.append((done.value, done.error)))
    return got


def test_the_listener_hears_the_value_at_once():
    pending = Pending()
    got = heard(pending)
    assert got == []
    assert not pending.is_done
    pending.resolve(7)
    assert got == [(7, None)]
    assert pending.is_done


def test_a_listener_that_comes_late_hears_it_too():
    pending = Pending()
    pending.resolve(None)
    assert heard(pending) == [(None, None)]


def test_an_error_is_heard_like_a_value():
    pending, error = Pending(), RuntimeError("no")
    got = heard(pending)
    pending.fail(error)
    assert got == [(None, error)]


@pytest.mark.parametrize("first", [lambda p: p.resolve(1), lambda p: p.fail(RuntimeError())])
@pytest.mark.parametrize("second", [lambda p: p.resolve(2), lambda p: p.fail(RuntimeError())])
def test_done_is_done_once(first, second):
    pending = Pending()
    got = heard(pending)
    first(pending)
    before = (pending.value, pending.error)
    with pytest.raises(InvariantBroken):
        second(pending)
    assert (pending.value, pending.error) == before
    assert len(got) == 1


def test_there_is_one_listener():
    pending = Pending()
    heard(pending)
    with pytest.raises(InvariantBroken):
        heard(pending)


def test_then_maps_the_value_and_keeps_the_overlap():
    pending = Pending(overlaps=True)
    mapped = pending.then(lambda value: value + 1)
    assert mapped.overlaps
    assert not Pending().then(str).overlaps
    got = heard(mapped)
    pending.resolve(1)
    assert got == [(2, None)]


def test_then_of_one_that_is_done_is_done():
    pending = Pending()
    pending.resolve(1)
    assert heard(pending.then(str)) == [("1", None)]


def test_then_passes_an_error_on_without_mapping():
    pending, error = Pending(), RuntimeError("no")
    got = heard(pending.then(lambda value: pytest.fail("not called")))
    pending.fail(error)
    assert got == [(None, error)]


def test_an_exception_of_the_mapping_becomes_the_error():
    pending = Pending()
    got = heard(pending.then(lambda value: 1 // value))
    pending.resolve(0)
    assert isinstance(got[0][1], ZeroDivisionError)


async def test_pending_of_gives_the_result_of_a_coroutine():
    async def work():
        await asyncio.sleep(0)
        return 5

    pending = pending_of(work())
    got = heard(pending)
    for _ in range(4):
        await asyncio.sleep(0)
    assert got == [(5, None)]


async def test_pending_of_gives_the_error_of_a_coroutine():
    async def work():
        raise ValueError("no")

    got = heard(pending_of(work()))
    for _ in range(4):
        await asyncio.sleep(0)
    assert isinstance(got[0][1], ValueError)


async def test_cancelled_work_fails_rather_than_never_ending():
    started = []

    async def work():
        started.append(asyncio.current_task())
        await asyncio.Event().wait()

    got = heard(pending_of(work()))
    await asyncio.sleep(0)
    started[0].cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert isinstance(got[0][1], InvariantBroken)


def test_a_cancelled_pending_tells_no_listener_and_its_work_once():
    pending, heard, ended = Pending(), [], []
    pending.on_cancel(lambda: ended.append(True))
    mapped = pending.then(lambda value: value + 1)
    mapped.on_done(heard.append)
    mapped.cancel()
    mapped.cancel()
    assert ended == [True]
    assert pending.is_cancelled
    pending.resolve(1)
    assert heard == []


def test_a_cancelled_work_that_is_done_is_not_told():
    pending, ended = Pending(), []
    pending.on_cancel(lambda: ended.append(True))
    pending.resolve(1)
    pending.cancel()
    assert ended == []


class Odd(BaseException):
    """Not an Exception."""


async def test_work_that_ends_with_anything_at_all_leaves_nobody_waiting():
    async def odd():
        raise Odd

    done = asyncio.get_running_loop().create_future()
    pending_of(odd()).on_done(done.set_result)
    error = (await asyncio.wait_for(done, 5)).error
    assert isinstance(error, InvariantBroken)
    assert isinstance(error.__cause__, Odd)


def test_a_refusal_becomes_an_answer_and_a_fault_stays_one():
    refused, fault = Pending(), Pending()
    answers = [one.then(str, lambda error: error.code) for one in (refused, fault)]
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
    fault.fail(OSError("broken"))
    assert answers[0].value is ErrorCode.NOT_COORDINATOR
    assert isinstance(answers[1].error, OSError)


def test_a_refusal_that_nobody_translates_stays_an_error():
    refused = Pending()
    answer = refused.then(str)
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
    assert isinstance(answer.error, KafkaError)


def test_a_pending_that_follows_another_passes_on_what_its_client_wants():
    heard = []
    later, other = Pending(), Pending()
    other.on_cancel(lambda: heard.append("cancel"), lambda: heard.append("hurry"))
    later.follow(other)
    later.hurry()
    other.resolve(7)
    assert (later.value, heard) == (7, ["hurry"])
    later, other = Pending(), Pending()
    other.on_cancel(lambda: heard.append("cancel"))
    later.follow(other)
    later.cancel()
    assert heard == ["hurry", "cancel"]
    at_once = Pending()
    at_once.follow(8)
    assert at_once.value == 8
