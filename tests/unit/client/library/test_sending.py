"""The library's sender, on a broker of a few lines."""

import asyncio

from ottla.client.library.gathering import ProducerSettings
from ottla.client.library.sending import BatchSender


async def test_a_partition_without_a_leader_holds_no_other_up(broker, cluster):
    broker.leaderless = {0}
    sender = BatchSender(cluster, ProducerSettings(linger_ms=1))
    try:
        async with asyncio.timeout(10):
            topic = await sender.targets.topic("t")
            row = (1, None, b"v", ())
            waits, _, _ = sender.gatherer.add(topic, 0, row, sender.clock.monotonic())
            written, _, _ = sender.gatherer.add(topic, 1, row, sender.clock.monotonic())
            await sender.wait_for(written, at_once=True)
            assert (written.error, written.base_offset, waits.is_done) == (None, 0, False)
            broker.leaderless = set()
            await sender.wait_for(waits, at_once=True)
            assert (waits.error, waits.base_offset) == (None, 0)
    finally:
        await sender.close()


async def test_partitions_that_came_are_known_after_some_minutes(broker, cluster):
    sender = BatchSender(cluster, ProducerSettings(linger_ms=1))
    try:
        async with asyncio.timeout(10):
            topic = await sender.targets.topic("t")
            broker.partition_count = 5
            for due, known in ((1e9, 2), (0.0, 5)):
                sender.targets._next_refresh = due
                batch, _, _ = sender.gatherer.add(
                    topic, 0, (1, None, b"v", ()), sender.clock.monotonic()
                )
                await sender.wait_for(batch, at_once=True)
                assert len(topic.lanes) == known
    finally:
        await sender.close()
