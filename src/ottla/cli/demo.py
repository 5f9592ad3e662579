"""``ottla serve --demo``: traffic in a topic, and a consumer group that lags behind it.

Owns two clients that live beside the broker, on its loop, and talk to it as any other would. The
group reads more slowly than the topic is written until its lag is ``LAG_MAX``, and stays there.
What the topic keeps is bounded. A client that fails is started again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla.client.library.client import AsyncClient
from ottla.client.library.failures import ClientError
from ottla.env.clock import Clock
from ottla.env.rng import Rng
from ottla.errors import ErrorCode

TOPIC = "demo-orders"
GROUP = "demo-billing"
PARTITIONS = 3
CONFIGS = {
    "retention.bytes": str(4 << 20),
    "segment.bytes": str(1 << 20),
    "retention.ms": "86400000",
}
WRITTEN_A_SECOND = 20
READ_A_SECOND = 12
LAG_MAX = 1_000
AGAIN_SECONDS = 1.0
Work = Callable[[AsyncClient], Awaitable[None]]
_NAMES = ("ann", "bo", "cem", "dia", "eve", "finn", "gül", "hana")


TOLD = (
    f"  Demo     {WRITTEN_A_SECOND} records a second in {TOPIC}, and {GROUP} lags behind:"
    f" ottla group watch {GROUP}"
)


class Demo:
    """Both clients; ``run`` until it is cancelled."""

    def __init__(self, bootstrap: str, clock: Clock, rng: Rng) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._rng = rng
        self._written = 0
        self._read = 0
        """Of what was written since the start; both only tell how far apart they are."""

    async def run(self) -> None:
        """Write and read, for ever."""
        await asyncio.gather(self._again(self._write), self._again(self._read_slowly))

    async def _again(self, work: Work) -> None:
        while True:
            with suppress(ClientError):
                async with AsyncClient(self._bootstrap, client_id="ottla-demo") as client:
                    await work(client)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _write(self, client: AsyncClient) -> None:
        try:
            await client.admin.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)
        except ClientError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        async with client.producer() as producer:
            while True:
                key, value = self._order()
                await producer.send(TOPIC, value, key=key)
                self._written += 1
                await asyncio.sleep(1 / WRITTEN_A_SECOND)

    async def _read_slowly(self, client: AsyncClient) -> None:
        async with client.consumer(TOPIC, group=GROUP) as consumer:
            async for _ in consumer:
                self._read += 1
                if self._written - self._read < LAG_MAX:
                    await asyncio.sleep(1 / READ_A_SECOND)

    def _order(self) -> tuple[str, str]:
        pick = self._rng.random_below
        who = _NAMES[pick(len(_NAMES))]
        total = round(pick(50_000) / 100, 2)
        order = {"id": self._written, "who": who, "total": total, "at": self._clock.wall_ms()}
        return who, json.dumps(order, ensure_ascii=False)
