"""Work in slices: as much as fits, in turn with others, and none for a client that is gone."""

import asyncio

import pytest

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import ManualClock
from ottla.errors import MalformedMessage
from ottla.pending import Pending
from ottla.sliced import (
    RUN,
    RUNNING_MAX,
    STRIDE,
    Room,
    Slices,
    any_in_steps,
    at_once,
    distinct,
    promptly,
)
from ottla.turns import SLICE_SECONDS, TURN_SECONDS, Turns


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def slices(clock):
    return Slices(Turns(clock))


def steps(clock, count, *, seconds=0.001, result="done", log=None):
    """Work of ``count`` steps."""
    for number in range(count):
        clock.hold(seconds)
        if log is not None:
            log.append(number)
        yield
    return result


async def settle(turns=200):
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_small_work_is_done_at_once(clock, slices):
    assert slices.run(steps(clock, 3), str) == "done"
    assert slices.running == 0


async def test_long_work_takes_turns(clock, slices):
    log = []
    pending = slices.run(steps(clock, 100, log=log), str)
    assert isinstance(pending, Pending)
    done = len(log)
    assert 0.001 * done <= 2 * SLICE_SECONDS
    while not pending.is_done:
        await asyncio.sleep(0)
        assert (len(log) - done) * 0.001 <= TURN_SECONDS, "a turn of the loop is short"
        done = len(log)
    assert pending.value == "done"
    assert log == list(range(100))
    assert slices.running == 0


async def test_an_error_in_the_first_slice_is_raised_and_later_ones_are_told(clock, slices):
    def fails(count):
        yield from steps(clock, count)
        raise MalformedMessage("no")

    with pytest.raises(MalformedMessage):
        slices.run(fails(1), str)
    pending = slices.run(fails(100), str)
    await settle()
    assert isinstance(pending.error, MalformedMessage)
    assert slices.running == 0


async def test_work_waits_for_what_is_pending(slices):
    awaited = Pending()

    def work():
        return (yield awaited) + 1

    pending = slices.run(work(), str)
    await settle()
    assert not pending.is_done
    awaited.resolve(41)
    assert not pending.is_done, "never at once: who resolves is in the middle of something"
    await settle()
    assert pending.value == 42


async def test_work_that_waits_leaves_its_place_to_others(clock, slices):
    """Else four clients that wait for a disk would keep everybody's long requests waiting."""
    awaited = [Pending() for _ in range(3 * RUNNING_MAX)]

    def work(one):
        yield from steps(clock, 20)
        value = yield one
        yield from steps(clock, 20)
        return value

    waiting = [slices.run(work(one), str) for one in awaited]
    await settle()
    assert slices.running == 0
    pending = slices.run(steps(clock, 100), str)
    await settle()
    assert pending.value == "done"
    waiting[0].cancel()
    for number, one in enumerate(awaited[1:], 1):
        one.resolve(number)
    await settle(1000)
    assert [one.value for one in waiting[1:]] == list(range(1, 3 * RUNNING_MAX))
    assert slices.running == 0


async def test_a_pending_that_is_done_costs_no_turn(slices):
    there, failed = Pending(), Pending()
    there.resolve(20)
    failed.fail(ValueError())

    def work():
        value = yield there
        with pytest.raises(ValueError):  # noqa: PT011 - the one above
            yield failed
        return value + (yield there)

    assert slices.run(work(), str) == 40


async def test_the_error_of_what_is_pending_is_raised_in_the_work(slices):
    awaited = Pending()

    def work():
        try:
            yield awaited
        except ValueError:
            return "told"

    pending = slices.run(work(), str)
    awaited.fail(ValueError())
    await settle()
    assert pending.value == "told"


async def test_a_pending_result_is_waited_for_without_a_place(clock, slices):
    result = Pending()
    pending = slices.run(steps(clock, 100, result=result), str)
    await settle()
    assert slices.running == 0
    assert not pending.is_done
    result.resolve("late")
    assert pending.value == "late"


async def test_few_run_at_a_time_and_all_come_to_their_end(clock, slices):
    begun = []

    def work(number):
        yield from steps(clock, 6)
        begun.append(number)
        yield from steps(clock, 60)
        return number

    pendings = [slices.run(work(number), str) for number in range(3 * RUNNING_MAX)]
    assert slices.running == RUNNING_MAX
    await settle(5)
    assert begun == list(range(RUNNING_MAX))
    await settle(2000)
    assert [pending.value for pending in pendings] == list(range(3 * RUNNING_MAX))
    assert slices.running == 0


async def test_cancelled_work_ends_and_makes_room(clock, slices):
    logs = [[] for _ in range(2 * RUNNING_MAX)]
    pendings = [slices.run(steps(clock, 10**6, log=log), str) for log in logs]
    await settle(20)
    for pending in pendings[1:]:
        pending.cancel()
    counts = [len(log) for log in logs]
    await settle(20)
    assert [len(log) for log in logs[1:]] == counts[1:]
    assert len(logs[0]) > counts[0]
    assert slices.running == 1
    pendings[0].cancel()
    assert slices.running == 0


async def test_cancelled_work_cancels_what_it_waits_for(slices):
    awaited, ended = Pending(), []
    awaited.on_cancel(lambda: ended.append(True))

    def work():
        yield awaited

    slices.run(work(), str).cancel()
    assert ended == [True]
    assert slices.running == 0


async def test_another_one_has_its_turn_between_two_slices(clock, slices):
    log = []
    slices.run(steps(clock, 10_000, log=log), str)
    seen = []
    slices.turns.wait(lambda: seen.append(len(log)))
    await settle(3)
    assert seen
    assert seen[0] * 0.001 <= 3 * SLICE_SECONDS


class Unread:
    """What somebody has not taken."""

    def __init__(self, unread_bytes):
        self.unread_bytes = unread_bytes


async def test_large_answers_are_not_made_while_others_are_unread(clock):
    memory = AnswerMemory(1_000_000)
    slices, deaf = Slices(Turns(clock), memory), Unread(1_000_000)
    memory.note(deaf)
    assert slices.run(steps(clock, 3), str) == "done", "what is small needs no room"
    large = [slices.run(steps(clock, 50, result=n), str) for n in range(8)]
    first = []
    begun = slices.run(steps(clock, 1, log=first), str, room=Room.TO_BEGIN)
    modest = slices.run(steps(clock, 50), str, room=Room.NEVER)
    await settle()
    assert modest.is_done
    assert not any(pending.is_done for pending in large)
    assert (begun.is_done, first) == (False, [])
    assert slices.running == 0
    large[2].cancel()
    memory.forget(deaf)
    assert slices.running == RUNNING_MAX
    await settle(1000)
    assert [pending.value for pending in large] == [0, 1, None, 3, 4, 5, 6, 7]
    assert begun.is_done
    assert slices.running == 0


async def test_few_large_answers_are_begun_when_each_uses_the_memory_up(clock):
    """Those that wait hold what they had begun with, not nearly all of an answer."""
    memory = AnswerMemory(1_000_000)
    slices, told = Slices(Turns(clock), memory), []
    large = [slices.run(steps(clock, 50, result=n), str) for n in range(30)]
    readers = {pending: Unread(2_000_000) for pending in large}
    for pending in large:
        pending.on_done(lambda done: (memory.note(readers[done]), told.append(done.value)))
    while len(told) < 30:
        before = len(told)
        await settle(1000)
        assert before < len(told) <= before + 2 * RUNNING_MAX
        assert slices.running == 0
        for reader in readers.values():
            memory.forget(reader)
    assert sorted(told) == list(range(30))


def test_what_is_named_very_often_is_sorted_out_in_steps():
    """Looking up 190,000 names at once takes 50 ms."""
    names = [f"name {number // 2}" for number in range(6 * RUN)]
    left, count = distinct(names), 0
    while True:
        try:
            next(left)
        except StopIteration as end:
            found = end.value
            break
        count += 1
    assert count == 6
    assert found == [f"name {number}" for number in range(3 * RUN)]
    with pytest.raises(StopIteration) as none:
        next(distinct([]))
    assert none.value.value == []


def test_whether_any_of_very_many_is_such_is_looked_up_in_steps():
    looked = []
    left = any_in_steps(range(10 * STRIDE), lambda item: looked.append(item) or item == STRIDE + 5)
    assert next(left) is None
    assert len(looked) == STRIDE
    assert at_once(left) is True
    assert len(looked) == STRIDE + 6
    assert at_once(any_in_steps(range(10 * STRIDE), lambda item: item < 0)) is False
    assert at_once(any_in_steps([], bool)) is False


async def test_requests_for_the_largest_answers_do_not_keep_others_waiting(clock):
    memory = AnswerMemory(1_000_000)
    slices, deaf = Slices(Turns(clock), memory), Unread(1_000_000)
    memory.note(deaf)
    order = []
    large = [slices.run(steps(clock, 50), str, room=Room.TO_BEGIN) for _ in range(20)]
    small = slices.run(steps(clock, 50), str)
    for one in [*large, small]:
        one.on_done(order.append)
    memory.forget(deaf)
    await settle(3000)
    assert len(order) == 21
    assert order.index(small) <= RUNNING_MAX


# Without a place.


def in_a_row(*awaited):
    """Work that waits for one after the other and returns what came."""
    found = []
    for one in awaited:
        found += [(yield one)]
    return found


def test_prompt_work_is_done_at_once_or_as_soon_as_what_it_waits_for():
    assert promptly(in_a_row()) == []
    first, second = Pending(), Pending()
    result = promptly(in_a_row(first, second))
    first.resolve("a")
    assert not result.is_done
    second.resolve("b")
    assert result.value == ["a", "b"]


async def test_what_may_be_interrupted_of_prompt_work_is_left_to_others(slices):
    left = promptly(in_a_row(None))
    assert slices.run(left, lambda: "work") == [None]
    first = Pending()
    result = promptly(in_a_row(first, None))
    first.resolve("a")
    assert slices.run(result.value, lambda: "work") == ["a", None]


def test_prompt_work_fails_hurries_and_ends_with_what_it_waits_for():
    failing, waiting, heard = Pending(), Pending(), []
    failing.on_cancel(lambda: None, lambda: failing.fail(KeyError("hurried")))
    result = promptly(in_a_row(failing))
    result.hurry()
    assert isinstance(result.error, KeyError)
    waiting.on_cancel(lambda: heard.append("cancelled"))
    work = in_a_row(waiting)
    promptly(work).cancel()
    assert heard == ["cancelled"]
    assert work.gi_frame is None, "nothing of it is left"
