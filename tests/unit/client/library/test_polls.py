"""Who stays away from its consumer is taken for stuck, who waits or gets records is not."""

import asyncio

import pytest

from ottla.client.library.polls import Polls
from ottla.env.clock import SystemClock

INTERVAL_MS = 60


class Watched:
    def __init__(self):
        self.progress = 0
        self.expired_count = 0
        self.expired = asyncio.Event()
        self.polls = Polls(INTERVAL_MS, lambda: self.progress, self.expire, SystemClock())

    async def expire(self):
        self.expired_count += 1
        self.expired.set()


@pytest.fixture
async def watched():
    watched = Watched()
    watched.polls.start()
    yield watched
    await asyncio.gather(*watched.polls.stop(), return_exceptions=True)


async def test_who_stays_away_is_stuck_and_again(watched):
    for count in (1, 2):
        async with asyncio.timeout(10):
            await watched.expired.wait()
        watched.expired.clear()
        assert watched.expired_count == count


async def test_who_waits_is_not_stuck(watched):
    with watched.polls.waiting():
        await asyncio.sleep(3 * INTERVAL_MS / 1000)
        assert not watched.expired_count
    async with asyncio.timeout(10):
        await watched.expired.wait()


async def test_who_gets_records_is_not_stuck(watched):
    ends = asyncio.get_running_loop().time() + 4 * INTERVAL_MS / 1000
    while asyncio.get_running_loop().time() < ends:
        watched.progress += 1
        await asyncio.sleep(0)
    assert not watched.expired_count


async def test_nothing_is_watched_before_the_start_and_after_the_end():
    watched = Watched()
    assert watched.polls.stop() == []
    watched.polls.start()
    watched.polls.start()
    [task] = watched.polls.stop()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert watched.polls.stop() == []
