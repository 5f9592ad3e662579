"""What both faces of a client share: its settings, its connections, and all that has to be closed.

Everything here runs on one loop, but for the construction. Knows no face.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ottla.client.asyncio.cluster import Cluster
from ottla.client.library.failures import ClientClosed
from ottla.client.library.records import Hooks
from ottla.client.library.sender import Sender
from ottla.client.library.settings import Settings, changed, codec_named

if TYPE_CHECKING:
    from ottla.client.library.consuming import ConsumerCore


class Closing(Protocol):
    """What a client closes: a sender, a reader."""

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Let the tasks end, and return them."""

    async def close(self) -> None:
        """End in order."""


class Core:
    """One client."""

    def __init__(self, settings: Settings, hooks: Hooks | None) -> None:
        self.settings = settings
        self.hooks = hooks
        self.is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shared: Cluster | None = None
        self._clusters: list[Cluster] = []
        self._parts: list[Closing] = []
        self._own_sender: Sender | None = None
        self._until_loop_ends: AsyncGenerator[None] | None = None

    def check(self, what: str) -> None:
        """Raise ClientClosed when it is."""
        if self.is_closed:
            raise ClientClosed(what, "the client is closed")

    def check_loop(self) -> None:
        """Raise ClientClosed on another loop than the first: nobody would ever answer there."""
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            fix = "make a client for each loop, such as in each asyncio.run"
            raise ClientClosed("use the client", "it belongs to another event loop", fix=fix)

    def end_with_loop(self) -> None:
        """Have everything end when the running loop does, if that is in good order.

        ``asyncio.run`` closes the generators that have begun while its loop still runs. Without it
        connections that nobody has closed are left to the garbage collector, which warns.
        """
        self._until_loop_ends = self._abandoned_with_loop()
        _drive(self._until_loop_ends.__anext__())

    async def _abandoned_with_loop(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._until_loop_ends = None
            self.abandon()

    def shared_cluster(self) -> Cluster:
        """Return the connections of producers and of the administrator."""
        if self._shared is None:
            self._shared = self.new_cluster()
        return self._shared

    def new_cluster(self) -> Cluster:
        """Return connections for one user: a consumer's fetches wait, and nobody behind them."""
        self.check("connect")
        cluster = Cluster(self.settings.connections)
        self._clusters.append(cluster)
        return cluster

    def release(self, cluster: Cluster) -> None:
        """Close the connections of one user."""
        cluster.close()
        if cluster in self._clusters:
            self._clusters.remove(cluster)

    def keep(self, part: Closing) -> None:
        """Close ``part`` with the client, unless it is closed before."""
        self._parts = [each for each in self._parts if not getattr(each, "is_closed", False)]
        self._parts.append(part)

    def own_sender(self) -> Sender:
        """Return the sender behind the client's own ``produce``."""
        if self._own_sender is None:
            self._own_sender = self.new_sender({"transactional_id": None}, None)
        return self._own_sender

    def new_sender(self, values: dict[str, Any], compression: str | None) -> Sender:
        """Return a sender; ``values`` change the client's settings. Raises BadArgument."""
        self.check("make a producer")
        if compression is not None:
            values = {**values, "codec": codec_named(compression)}
        sender = Sender(self.shared_cluster(), changed(self.settings.producer, values))
        self.keep(sender)
        return sender

    def new_consumer(self, values: dict[str, Any], topics: tuple[str, ...]) -> "ConsumerCore":
        """Return a consumer of ``topics``; ``values`` change the settings. Raises BadArgument."""
        from ottla.client.library.consuming import ConsumerCore

        self.check("make a consumer")
        settings = changed(self.settings.consumer, values)
        consumer = ConsumerCore(self.new_cluster(), settings)
        if topics:
            consumer.subscribe(topics, None)
        self.keep(consumer)
        return consumer

    async def close(self) -> None:
        """Flush and end everything, then close the connections. Harmless when closed."""
        if self.is_closed:
            return
        try:
            if self._own_sender is not None:
                await self._own_sender.flush()
        finally:
            self.is_closed = True
            for part in self._parts:
                await part.close()
            self._end()

    def abandon(self) -> None:
        """Let everything end without waiting: nobody holds the client any more."""
        if self.is_closed:
            return
        self.is_closed = True
        for part in self._parts:
            part.abandon()
        self._end()

    def _end(self) -> None:
        if self._until_loop_ends is not None:
            _drive(self._until_loop_ends.aclose())
        for cluster in self._clusters:
            cluster.close()
        self._clusters.clear()


def _drive(step: Coroutine[None, None, None]) -> None:
    """Run what waits for nothing to its end."""
    with suppress(StopIteration):
        step.send(None)
