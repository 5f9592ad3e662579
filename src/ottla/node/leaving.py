"""A node stops in good order: others lead first what it has led, then it leaves the cluster.

Owns the order of that, and its bound. Knows no store; ``replication.hand_overs`` does the work, and
``cluster.membership`` tells the others. Source: Kafka's controlled shutdown; cluster design 3.8.
"""

import asyncio
import logging
from contextlib import suppress

from ottla.env.tasks import begin_task
from ottla.environment import Environment
from ottla.errors import OttlaError
from ottla.node.doors import Doors
from ottla.node.work import Work

logger = logging.getLogger(__name__)

HAND_OVER_SECONDS = 30.0
"""How long others may take until they lead what they can."""


async def hand_over_and_leave(work: Work, doors: Doors, environment: Environment) -> None:
    """Let other nodes lead what they can, then end the membership: within 30 seconds."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    task = begin_task(_hand_over(work, doors), name="hand over", ended=end)
    timer = environment.waits_clock.call_later(HAND_OVER_SECONDS, end)
    try:
        await over
    finally:
        timer.cancel()
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(error, Exception):
            logger.error("other nodes could not be given the lead", exc_info=error)
    await doors.leave()


async def _hand_over(work: Work, doors: Doors) -> None:
    with suppress(OttlaError):  # Without the store nobody is told; the session ends by itself.
        if await doors.membership.drain() is not None:
            count = await work.hand_over()
            logger.info("other nodes lead %d partitions that this one has led", count)
