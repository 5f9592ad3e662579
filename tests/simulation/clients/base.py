"""What all clients share: a connection when one is needed, patience, pauses.

A client steps until the world says that it is quiet; then it brings to an end what must not stay
open, and rests. It never looks into a node.
"""

import random

from ottla.client.asyncio.connection import Connection
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import Address, ClientSettings
from ottla.errors import KafkaError
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.campaigns.administering.writing import COMES_BACK
from tests.simulation.network import SimulatedNet

PATIENCE_SECONDS = 60.0
"""A node that is up and not hindered must let a client go on within this time."""
BEGIN_SECONDS = 0.1
"""Within which clients begin a round."""
NOT_THE_COORDINATOR = {15, 16}
NO_SUCH_TOPIC = {3, 100, 103}


class Stuck(Exception):
    """The node serves, and this client cannot go on."""


class Client:
    """One client. Subclasses say what a step is, and what must be brought to an end."""

    kind = "client"

    def __init__(self, world, number):
        self.world = world
        self.name = f"{self.kind}-{number}"
        self.number = number
        self.history = world.history
        self.random = random.Random(f"{world.seed}/{self.name}")
        self.is_idle = True
        self._net = SimulatedNet(world.network, world.clients_life, self.name)
        self._connection = None
        self._timeout_ms = self.random.choice([2_000, 6_000, 30_000])

    async def connection(self):
        """Return the connection, made when it is needed."""
        if self._connection is None or self._connection.is_closed:
            self._connection = await self.connect()
        return self._connection

    async def connect(self):
        """Return one more connection."""
        settings = ClientSettings(
            client_id=self.name, connect_timeout_ms=5_000, request_timeout_ms=self._timeout_ms
        )
        return await Connection.open(self._net, Address(*self.world.node.address), settings)

    async def call(self, request, answer, *, highest=None):
        """Ask, and take note of what. Raises ConnectionFailed."""
        connection = await self.connection()
        name = type(request).__name__
        self.world.nemesis.asked(name)
        response = await connection.call(request, answer, highest=highest)
        self.told(name)
        return response

    def told(self, name):
        """Take note of an answer."""
        self.world.coverage.asked(name)
        self.world.nemesis.told(name)

    def hang_up(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def run(self):
        """Work until the world ends."""
        world = self.world
        try:
            while True:
                if world.is_working:
                    self.is_idle = False
                    await self._attempt(self.step)
                    await self.pause()
                elif self.is_idle or await self._attempt(self.finish):
                    self.is_idle = True
                    await world.work.wait()
                    await world.sleep(self.random.random() * BEGIN_SECONDS)
        except Stuck as error:
            world.problem(f"{self.name} is stuck: {error}")
        except Exception as error:  # noqa: BLE001 - a broken client must not pass for a quiet one
            world.problem(f"{self.name} broke: {type(error).__name__}: {error}", error)
        finally:
            self.is_idle = True

    async def _attempt(self, work):
        try:
            await work()
        except (ConnectionFailed, OSError) as error:
            self.hang_up()
            self.history.count("connections lost")
            self.world.trace.note("lost", self.name, type(error).__name__)
            await self.world.sleep(self.random.choice([0.05, 0.3, 1.0]))
            return False
        except KafkaError as error:
            self.world.problem(f"{self.name}: {error}")
        return True

    async def step(self):
        """Do one thing. Raises ConnectionFailed when the node went away."""
        raise NotImplementedError

    async def finish(self):
        """Bring to an end what must not stay open; the next step begins anew."""

    async def pause(self):
        await self.world.sleep(self.random.expovariate(1 / self.world.mix.pause_seconds))

    async def find_coordinator(self, key_type, key):
        """Ask who coordinates; that makes the internal topic when there is none."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = await self.call(request, FindCoordinatorResponse)
        self.world.coverage.answered("FindCoordinator", answer.coordinators[0].error_code)

    async def insist(self, what, ask, *, coordinator=None):
        """Ask until the code is none of those that pass; return it. Raises Stuck.

        ``coordinator``: the type and the key of who answers, None when any node does.
        """
        begin = self.world.loop.now
        while True:
            code = await ask()
            if code not in COMES_BACK:
                return code
            if coordinator is not None and code in NOT_THE_COORDINATOR:
                await self.find_coordinator(*coordinator)
            self.be_patient(begin, f"{what}: error {code}")
            await self.world.sleep(0.1)

    def be_patient(self, begin, what):
        """Raise Stuck when nothing has hindered the node for long, and this goes on."""
        since = max(begin, self.world.unhindered_since)
        if self.world.is_unhindered and self.world.loop.now - since > PATIENCE_SECONDS:
            raise Stuck(what)
