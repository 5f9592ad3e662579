"""A consumer that waits at the end of a log, and writes to it meanwhile.

Judged: once the batch is acknowledged, whoever waits for it is told soon, not when his time is
over.
"""

from ottla.client.wire.errors import ConnectionFailed
from ottla.protocol.messages.fetch import FetchResponse
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.readers import LATEST, fetch_request, list_offset

WAIT_MS = 30_000
"""How long a Fetch may wait."""
SOON_SECONDS = 5.0
"""Within which it is told of what is committed."""


class Waiter(Producer):
    """Waits for what it writes."""

    kind = "waiting"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._other = None
        """The connection that a Fetch waits on: others have to go on beside it."""
        self._timeout_ms = 60_000

    def hang_up(self):
        super().hang_up()
        if self._other is not None:
            self._other.close()
            self._other = None

    async def step(self):
        chosen = self.choose()
        if chosen is None:
            return
        topic, partition = chosen
        code, end = await list_offset(self, topic, partition, LATEST)
        if code:
            return
        if self._other is None or self._other.is_closed:
            self._other = await self.connect()
        begun = self.world.loop.now
        isolation = int(self.random.random() < 0.3)
        request = fetch_request(
            [(topic.topic_id, partition, end)], isolation=isolation, wait_ms=WAIT_MS
        )
        waiting = self._other.send(request, FetchResponse)
        try:
            await self.world.sleep(self.random.choice([0.0, 0.05, 1.0]))
            batch, data = self.make(topic, partition)
            code = self.judge(batch, await self.send(batch, data))
            if code:
                return
            await self._be_told(waiting, begun, isolation, f"{batch.name}-{partition}@{end}")
        finally:
            if not waiting.done():
                self._other.close()

    async def _be_told(self, waiting, begun, isolation, where):
        """Wait for the answer of a Fetch for what was acknowledged just now."""
        world, since = self.world, self.world.loop.now
        while not waiting.done():
            if world.loop.now - since > SOON_SECONDS:
                is_judged = world.is_unhindered and world.unhindered_since < begun
                # A transaction may be open there, and keep it from readers of committed records.
                if is_judged and not isolation and not self._other.is_closed:
                    world.problem(f"{self.name}: nobody tells who waits at {where} of what came")
                return
            await world.sleep(0.1)
        try:
            told = (await waiting).responses[0].partitions[0]
        except (ConnectionFailed, OSError):
            return
        world.coverage.answered("Fetch that waits", told.error_code)
