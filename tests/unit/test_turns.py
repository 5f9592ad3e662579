"""The queue for turns of the loop: served in order, and no turn is long."""

import asyncio

from ottla.env.clock import ManualClock
from ottla.turns import TURN_SECONDS, Turns


async def test_waiting_work_is_served_in_order_and_once():
    turns, served = Turns(ManualClock()), []
    for name in "abc":
        turns.wait(lambda name=name: served.append(name))
    assert served == []
    await asyncio.sleep(0)
    assert served == ["a", "b", "c"]
    await asyncio.sleep(0)
    assert served == ["a", "b", "c"]


async def test_a_turn_of_the_loop_ends_when_all_together_have_used_it_up():
    turns, served = Turns(ManualClock()), []

    def work(name):
        served.append(name)
        turns.spent(TURN_SECONDS * 0.6, str)

    for name in range(6):
        turns.wait(lambda name=name: work(name))
    for turn in range(1, 4):
        await asyncio.sleep(0)
        assert served == list(range(2 * turn)), "two fit a turn, the others wait"


async def test_work_that_comes_back_queues_behind_the_others():
    turns, served = Turns(ManualClock()), []

    def again(name, times):
        served.append(name)
        if times:
            turns.wait(lambda: again(name, times - 1))

    turns.wait(lambda: again("a", 2))
    turns.wait(lambda: again("b", 2))
    for _ in range(4):
        await asyncio.sleep(0)
    assert served == list("ababab")


async def test_one_that_fails_does_not_keep_the_others_waiting():
    turns, served = Turns(ManualClock()), []
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    def fail():
        raise ValueError

    turns.wait(fail)
    turns.wait(lambda: served.append("b"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert served == ["b"]
    assert isinstance(problems[0]["exception"], ValueError)


async def test_a_turn_that_is_over_begins_anew_by_itself():
    turns = Turns(ManualClock())
    turns.spent(TURN_SECONDS * 2, str)
    assert turns.is_over
    await asyncio.sleep(0)
    assert not turns.is_over


async def test_short_turns_never_add_up_to_a_long_one():
    turns = Turns(ManualClock())
    for _ in range(50):
        turns.spent(TURN_SECONDS * 0.3, str)
        assert not turns.is_over
        await asyncio.sleep(0)
