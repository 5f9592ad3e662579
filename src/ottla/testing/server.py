"""The broker of a test, on the running loop: the real one, with a clock that can jump.

Owns how the broker is put together for tests: its options, its disk, its clock, what stands before
its router. ``Broker`` runs it in a thread, ``child`` in a process. Knows nothing of either.
"""

import asyncio
from collections.abc import Mapping

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.disk import Disk
from ottla.env.executor import ThreadExecutor
from ottla.env.jumping_clock import JumpingClock, SteadyClock
from ottla.environment import Environment
from ottla.handlers.call import Answer, Keep, copied
from ottla.handlers.client import Client
from ottla.handlers.router import Router, Serve
from ottla.pending import Pending
from ottla.protocol.header import REQUEST_HEADER_BYTES_MIN, read_request_header_start
from ottla.testing.requests import LastRequests

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "ottla.stop.timeout.ms": "500",
    "log.dirs": "/ottla",
}
"""What differs from Kafka's defaults, unless a test says otherwise: no waiting."""
IDLE_TURNS = 20
"""The loop takes so many turns in a row without a job in a thread before its work has settled."""
BUSY_TURNS_MAX = 5_000
"""Of a millisecond each: work that takes longer is not waited for."""


class Server:
    """One broker, from ``start`` to ``stop``; then another of the same data may be made."""

    def __init__(self, texts: Mapping[str, str], *, data: str | None) -> None:
        """``texts``: options by key. ``data``: the directory; None: in memory."""
        given = {**OPTIONS, **texts}
        if data is not None:
            given["log.dirs"] = data
        self._environment = environment = Environment.real(memory=data is None)
        self.clock = JumpingClock(environment.clock, self._settled)
        self.requests = LastRequests(environment.clock)
        self.disk = environment.disk if data is not None else _memory_disk(self.clock)
        self.broker = Broker(
            broker_config(given),
            memory=data is None,
            environment=environment._replace(
                clock=self.clock,
                steady_clock=SteadyClock(environment.clock, self.clock),
                disk=self.disk,
            ),
            intercept=self._intercept,
        )

    async def start(self) -> tuple[str, int]:
        """Start; return the host and port that clients connect to. Raises as ``Broker.start``."""
        await self.broker.start()
        return self.broker.address

    async def stop(self) -> None:
        """Stop in good order. Harmless when stopped."""
        await self.broker.stop()

    async def jump(self, seconds: float) -> None:
        """Let the clock jump, and wait for what that begins."""
        await self.clock.jump(seconds)

    async def _settled(self) -> None:
        environment = self._environment
        executors = [
            each
            for each in (
                environment.executor,
                environment.store_executor,
                environment.read_executor,
                environment.cleaner_executor,
            )
            if isinstance(each, ThreadExecutor)
        ]
        idle_turns = 0
        for _ in range(BUSY_TURNS_MAX):
            if all(each.is_idle for each in executors):
                idle_turns += 1
                await asyncio.sleep(0)
                if idle_turns >= IDLE_TURNS:
                    return
            else:
                idle_turns = 0
                await asyncio.sleep(0.001)

    def _intercept(self, router: Router) -> Serve:
        note = self.requests.note

        def serve(
            frame: memoryview, client: Client, keep: Keep = copied
        ) -> Answer | Pending[Answer | None] | None:
            size = len(frame)
            if size >= REQUEST_HEADER_BYTES_MIN:
                key, version, _, id_bytes = read_request_header_start(frame)
                name = bytes(frame[REQUEST_HEADER_BYTES_MIN:][: max(id_bytes, 0)])
                note(key, version, name.decode(errors="replace"), client, size)
            return router.dispatch(frame, client, keep)

        return serve


def _memory_disk(clock: JumpingClock) -> Disk:
    from ottla.env.memory_disk import MemoryDisk

    return MemoryDisk(clock=clock)
