"""Who loses tries again: in line with others of this node, for so long, and no longer."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.contests import AT_ONCE, PATIENCE_SECONDS, PAUSE_SECONDS, Contests
from ottla.metadata.store import Guard, GuardFailed, Unavailable


class Contested:
    """One thing that changes: who read it before the last change loses."""

    def __init__(self):
        self.clock = ManualClock()
        self.revision = self.caught_up = self.attempts = self.at_once = self.most = 0
        self.contests = Contests(self.clock, self.catch_up)

    async def catch_up(self):
        self.caught_up += 1
        await asyncio.sleep(0)

    async def change(self):
        self.attempts += 1
        seen = self.revision
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if seen != self.revision:
            raise GuardFailed(Guard("/a/key", mod_rev=seen), None)
        self.revision += 1
        return seen


@pytest.fixture
def contested():
    return Contested()


async def test_those_of_one_node_try_again_one_after_the_other(contested):
    tasks = [contested.contests.won("it", contested.change) for _ in range(50)]
    found = await asyncio.gather(*tasks)
    assert sorted(found) == list(range(50)), "each change came through, once"
    assert contested.attempts <= 50 + 50, "one won at first, and then no two met"
    assert not contested.contests._lines
    assert not contested.contests._users


async def test_nobody_waits_who_changes_something_else(contested):
    async def stuck():
        await asyncio.get_running_loop().create_future()

    async def loses():
        raise GuardFailed(Guard("/a/key"), None)

    first = asyncio.ensure_future(contested.contests.won("it", loses))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(contested.contests.won("another", stuck))
    assert await contested.contests.won("a third", contested.change) == 0
    for task in (first, waiting):
        task.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    assert not contested.contests._users


async def test_who_never_wins_pauses_and_gives_up_at_last(contested):
    times = []

    async def loses():
        times.append(contested.clock.monotonic())
        raise GuardFailed(Guard("/a/key"), None)

    task = asyncio.ensure_future(contested.contests.won("the thing", loses))
    while not task.done():
        for _ in range(5):
            await asyncio.sleep(0)
        if contested.clock.timers():
            contested.clock.advance(PAUSE_SECONDS)
    with pytest.raises(KafkaError) as told:
        task.result()
    assert told.value.code is ErrorCode.REQUEST_TIMED_OUT
    why = "others change the thing all the time; nothing was changed: try again"
    assert told.value.why == why
    assert times[AT_ONCE] == 0
    assert times[-1] == pytest.approx(PATIENCE_SECONDS, abs=2 * PAUSE_SECONDS)
    assert len(times) <= PATIENCE_SECONDS / PAUSE_SECONDS + AT_ONCE + 2


async def test_a_store_that_is_away_is_told_at_once(contested):
    async def away():
        raise Unavailable("away")

    with pytest.raises(Unavailable):
        await contested.contests.won("it", away)
    assert contested.caught_up == 0
