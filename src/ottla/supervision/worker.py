"""The process of one node of several: ``python -m ottla.supervision.worker NODE CHANNEL``.

Owns its life: it hears who it is, runs the ``Broker``, says that it serves, and ends when it is
told to or when the supervisor is gone. The metadata, the sockets and the terminal's signals are the
supervisor's. Nothing secret is on its command line.
"""

import asyncio
import gc
import signal
import sys

from ottla.broker import Broker
from ottla.cluster.copies import Held
from ottla.cluster.taking_in import TakeIn
from ottla.config.files import broker_config
from ottla.config.option import InvalidConfig
from ottla.env.channel import inherited, open_channel
from ottla.env.clock import SystemClock
from ottla.env.collector import Collector
from ottla.env.inherited_net import InheritedNet
from ottla.env.lifeline import end_with
from ottla.env.loop_thread import loop_factory
from ottla.env.open_files import raise_open_files_limit
from ottla.env.processes import follow_nobody_else
from ottla.env.tasks import begin_task
from ottla.environment import Environment
from ottla.errors import MalformedMessage, OttlaError
from ottla.metadata.remote.store import RemoteStore
from ottla.metadata.store import MetadataStore, Unavailable
from ottla.supervision.errands import (
    ALL_STOP,
    FAILED,
    HELD,
    READY,
    SETTLED,
    WELCOME,
    Failed,
    Ready,
    Welcome,
    read_settled,
    read_welcome,
    write,
    write_held,
)

ORPHAN_SECONDS = 1.0
"""How long a node may take to stop in good order when its supervisor is gone."""
ORPHAN_GRACE_SECONDS = 0.3
"""How long of that clients get for the answers that are in flight."""
LIFELINE_SECONDS = ORPHAN_SECONDS + 0.3


class Worker:
    """A node, from its first word with the supervisor to its end."""

    def __init__(self) -> None:
        self._store = store = RemoteStore(SystemClock(), keeps_link=True)
        store.on_other = self._hear
        store.on_lost = self._orphaned
        self._welcome: Welcome | None = None
        self._settled: asyncio.Future[int] | None = None
        """Use: the revision from which on this node may serve; None: it has not asked."""
        self._news = asyncio.Event()
        """Use: set when the supervisor has said something, or is gone, or it is over."""
        self._is_over = False
        self._is_orphan = False
        self._all_stop = False
        """Use: nobody is left to lead what this node leads."""

    async def live(self, channel: int) -> int:
        """Serve until the end; return the exit code."""
        end = inherited(channel)
        end_with(end, grace_seconds=LIFELINE_SECONDS)
        await open_channel(lambda: self._store.link, end)
        await self._news.wait()
        code = 0 if self._welcome is None else await self._try_to_serve(self._welcome)
        self._store.link.close()
        return code

    async def _try_to_serve(self, welcome: Welcome) -> int:
        try:
            return await self._serve(welcome)
        except InvalidConfig as error:
            return self._fail(Failed(str(error), is_usage=True))
        except OttlaError as error:
            return self._fail(_why(error))
        except OSError as error:
            where = f" ({error.filename})" if isinstance(error.filename, str) else ""
            return self._fail(Failed(f"{error.strerror or error}{where}"))

    async def _serve(self, welcome: Welcome) -> int:
        broker = _broker_for(welcome, self._store, self._take_in)
        await broker.start()
        # Until here SIGTERM ends the process at once: nobody relies on it yet.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end)
        Collector(SystemClock()).start()  # No later pass looks at what a start leaves.
        self._store.tell(READY, write(Ready(broker.data_is_new)))
        failed = begin_task(broker.failed.wait(), name="failed", ended=lambda _: self._end())
        while not self._is_over:
            self._news.clear()
            await self._news.wait()
        failed.cancel()
        await broker.stop(
            grace_seconds=ORPHAN_GRACE_SECONDS if self._is_orphan else None,
            hands_over=not self._is_orphan and not self._all_stop,
        )
        if broker.failure is not None:
            raise broker.failure
        return 0

    def _fail(self, failed: Failed) -> int:
        self._store.tell(FAILED, write(failed))
        return 1

    async def _take_in(self, held: Held) -> int:
        """Say what this node has; return when the supervisor has heard from all nodes it needs."""
        self._settled = asyncio.get_running_loop().create_future()
        self._store.tell(HELD, write_held(held))
        return await self._settled

    def _hear(self, kind: int, body: memoryview) -> None:
        if kind == ALL_STOP:
            self._all_stop = True
            return
        if kind == SETTLED and self._settled is not None:
            self._settled.set_result(read_settled(body).revision)
            return
        if kind != WELCOME or self._welcome is not None:
            raise MalformedMessage("a node is welcomed once")
        self._welcome = read_welcome(body)
        self._news.set()

    def _orphaned(self) -> None:
        self._is_orphan = True
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(Unavailable("the supervisor has ended"))
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._news.set()


def _broker_for(welcome: Welcome, store: RemoteStore, take_in: TakeIn) -> Broker:
    """Return the node's broker. Raises InvalidConfig."""

    async def shared_store() -> MetadataStore:
        return store

    config = broker_config(welcome.texts)
    descriptors = {(each.host, each.port): each.descriptors for each in welcome.sockets}
    environment = Environment.real(memory=welcome.is_memory)
    return Broker(
        config,
        memory=welcome.is_memory,
        environment=environment._replace(net=InheritedNet(descriptors)),
        open_store=shared_store,
        first_users=tuple(welcome.first_users),
        shared_doors=welcome.doors,
        inter_broker=welcome.inter_broker,
        take_in=None if welcome.inter_broker is None else take_in,
    )


def _why(error: OttlaError) -> Failed:
    """Return what people are told. Errors of the log carry what their finder knows."""
    why, fix = getattr(error, "why", ""), getattr(error, "fix", "")
    if fix:
        return Failed(f"cannot use {getattr(error, 'path', '')}", why, fix)
    return Failed(str(error))


def main() -> None:
    """Be the process of a node."""
    _node, channel = sys.argv[1:]  # The node's number is for people who look at processes.
    follow_nobody_else()
    gc.disable()  # for the imports and the start; the collector begins when it serves
    raise_open_files_limit()

    async def live() -> int:
        return await Worker().live(int(channel))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(live())
    sys.exit(code)


if __name__ == "__main__":
    main()
