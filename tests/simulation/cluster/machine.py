"""One machine of several: a node of the world whose metadata is elsewhere."""

import asyncio
import random

from tests.simulation.cluster.store import LinkedStore, StoreLink
from tests.simulation.node import PORT, Node


class Machine(Node):
    """``number`` is the node's id."""

    def __init__(self, world, number, options):
        name = f"node-{number}"
        super().__init__(
            world,
            name,
            {
                **options,
                "node.id": str(number),
                "advertised.listeners": f"PLAINTEXT://{name}:{PORT}",
            },
        )
        self.number = number
        self.clock.skew_ms = world.mix.skews_ms[(number - 1) % len(world.mix.skews_ms)]
        self.link = StoreLink(world.loop, random.Random(f"{world.seed}/{name}/link"))
        self.news = asyncio.Event()
        """Its process has ended, or may be started again."""
        self._is_held_down = False
        self.breaking = 0
        """How many faults break its disk now."""
        self.is_suspect = False
        """Its disk was in trouble in this life: it may end itself, or have partitions offline."""

    @property
    def is_held_down(self):
        """Whether nobody may start it."""
        return self._is_held_down

    @is_held_down.setter
    def is_held_down(self, is_held_down):
        self._is_held_down = is_held_down
        self.news.set()

    async def _open_store(self):
        world = self.world
        self._connection = LinkedStore(
            world.shared,
            self.link,
            self.life,
            rng=self._stream("store"),
            trace=world.trace,
            trouble=self.trouble,
            seconds=world.mix.commit_seconds,
        )
        self._connection.on_broken = self.broker._giving_up.store_broke
        return self._connection

    def _end(self, life, *, power=False):
        if life.is_dead:
            return
        connection, self._connection = self._connection, None
        super()._end(life, power=power)
        self.is_suspect = self.breaking > 0
        if connection is not None:  # Whoever serves the store sees the process end.
            shared = self.world.shared
            self.world.loop.start_for(shared.life, connection.end_sessions(), "end sessions")
