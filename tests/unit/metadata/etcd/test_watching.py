"""The end of a watch, which a stop of the node asks for in two ways at once."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from ottla.metadata.etcd.watching import Watching


class SilentMembers:
    """Members whose streams tell nothing."""

    @asynccontextmanager
    async def stream(self, method):
        yield self

    async def write(self, message):
        pass

    async def read(self):
        await asyncio.Event().wait()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("closes", [True, False])
async def test_a_watch_that_is_cancelled_just_as_news_come_is_cancelled(closes):
    async def check(revision):
        pass

    watching = Watching(SilentMembers(), "/ottla/", 1, told=0, check=check)
    task = asyncio.create_task(watching.next())
    for _ in range(5):
        await asyncio.sleep(0)
    if closes:
        watching.close()
    else:
        watching.told(7)
    task.cancel()
    await asyncio.wait([task], timeout=1)
    assert task.cancelled()
    await watching.end()
