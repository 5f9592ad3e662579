"""The listening addresses of a node and their connections.

Owns how many connections there may be (in all, and per client address), the sweep that enforces
the time limits, and an orderly stop. Does not know what the connections say.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from ottla.answer_memory import AnswerMemory
from ottla.complaints import Complaints
from ottla.env.alarm import STALL_SECONDS
from ottla.env.clock import Clock, Timer
from ottla.env.net import Listening, Net
from ottla.network.connection import Connection, OpenDispatch
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.turns import Turns

logger = logging.getLogger(__name__)

HELD_MAX = 1_000
"""So many connections of addresses that connect too fast are held before they are closed; further
ones are closed at once."""
OF_NODES_MAX = 512
"""Connections of other nodes, those that have not logged in yet included: clients' limits do not
hold for them, so that a full node can still be asked by the others."""
SWEEP_SECONDS_MAX = 1.0
ROOM_SHARE = 0.75
"""When the memory for answers is full, connections are closed until at most this share is used:
waiting requests then find room before another peer that does not read fills it."""
SWEEPS_PER_LIMIT = 4
"""There are at least so many sweeps within the shortest time limit."""


Cover = Callable[[asyncio.BufferedProtocol], asyncio.BaseProtocol]
"""Returns the protocol that the loop gets in the place of a connection."""


class _Refused(asyncio.Protocol):
    """A connection beyond the limits: it is closed right after accept, so that its client knows."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _Paced:
    """An address whose further clients are left in the backlog."""

    def __init__(self) -> None:
        self.timer: Timer | None = None
        """Use: when it goes on to accept."""
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        """Use: until when (monotonic) those wait that were accepted already, and what ends that."""


class Listener:
    """Accepts connections on its addresses and keeps them within ``Limits``, all together."""

    def __init__(
        self,
        *,
        net: Net,
        clock: Clock,
        limits: Limits,
        budget: ReceiveBudget,
        answers: AnswerMemory,
        open_dispatch: OpenDispatch,
        turns: Turns | None = None,
        room: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Build a listener; nothing is bound before ``start``.

        ``turns``: the queue of the loop, if others use it too; None: one for this listener.
        ``room`` returns for how many connections there are files left now; None: any number.
        """
        self._room = room
        self._net = net
        self._clock = clock
        self._limits = limits
        self._budget = budget
        self._answers = answers
        self._open_dispatch = open_dispatch
        self._turns = Turns(clock) if turns is None else turns
        self._complaints = Complaints(logger, clock)
        self._listening: list[Listening] = []
        self._by_name: dict[str, list[Listening]] = {}
        """Use: a listener of a node of several has two addresses, its own and the shared one."""
        self._connections: dict[Connection, None] = {}
        """Use: keys only, in the order of arrival, so that a simulation is repeatable."""
        self._per_host: Counter[str] = Counter()
        """Use: of clients only."""
        self._of_nodes: dict[Connection, None] = {}
        """Use: keys only, those of the connections that come from nodes, or say so."""
        self._held: dict[Connection, None] = {}
        """Use: keys only, those that are held to be closed. As in Kafka they do not count among
        those that there may be, in all and of an address: else they would keep others out."""
        self.arrive: Callable[[str], int] | None = None
        """Use: takes the address of each new client; returns for how many ms to hold it, without
        service, before it is closed. 0: it is served. None: nobody counts."""
        self.pace: Callable[[str], int] | None = None
        """Use: takes the name of the address that a client came to; returns for how many ms it and
        all behind it wait. None: nobody does."""
        self._paced: dict[str, _Paced] = {}
        """Use: by name; such a listener accepts nobody now."""
        self._all_closed: asyncio.Event | None = None
        self._sweep_timer: Timer | None = None
        self._sweep_due = 0.0
        shortest = min(limits.idle_seconds, limits.frame_seconds, limits.write_stall_seconds)
        self._sweep_seconds = min(SWEEP_SECONDS_MAX, max(shortest / SWEEPS_PER_LIMIT, 0.01))

    async def start(
        self,
        *,
        host: str,
        port: int,
        name: str = "",
        paused: bool = False,
        open_dispatch: OpenDispatch | None = None,
        cover: Cover | None = None,
        is_for_nodes: bool = False,
    ) -> tuple[str, int]:
        """Bind, listen and return the bound host and port. Raises OSError.

        May be called for several addresses; the limits hold for all of them together. ``name``: by
        which ``pace`` knows this one, and others of the same name.
        ``open_dispatch``: for connections to this address; None: the constructor's.
        ``cover``: what stands between a socket and its connection (TLS); None: nothing.
        ``is_for_nodes``: other nodes of the cluster connect here. How many connections clients may
        have, and how fast they may come, does not hold for nodes.
        With ``paused`` clients can connect, but are not served before ``open_doors``.
        """
        open_dispatch = open_dispatch or self._open_dispatch
        accept = (
            partial(self._accept_node, open_dispatch)
            if is_for_nodes
            else partial(self._accept, open_dispatch, cover, name)
        )
        listening = await self._net.listen(
            accept,
            host=host,
            port=port,
            backlog=self._limits.backlog,
            paused=paused,
        )
        self._listening.append(listening)
        self._by_name.setdefault(name, []).append(listening)
        if self._sweep_timer is None:
            self._arm_sweep()
        return listening.address

    def open_doors(self) -> None:
        """Accept the clients that wait in the backlog, and all later ones. Harmless when open."""
        for listening in self._listening:
            listening.resume_accepting()

    def set_limits(self, limits: Limits) -> None:
        """Set the limits of connections that are accepted from now on."""
        self._limits = limits

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def drain(self) -> None:
        """Accept no connection and no request any more; requests in flight are still answered."""
        if self._all_closed is not None:
            return
        self._all_closed = asyncio.Event()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for paced in self._paced.values():
            if paced.timer is not None:
                paced.timer.cancel()
        for listening in self._listening:
            await listening.close()
        for connection in list(self._connections):
            connection.drain()

    async def stop(self, *, grace_seconds: float) -> None:
        """Drain, wait at most ``grace_seconds`` for the answers, then cut connections off."""
        await self.drain()
        assert self._all_closed is not None, "draining has begun"
        if self._connections:
            timer = self._clock.call_later(grace_seconds, self.cut_off)
            await self._all_closed.wait()
            timer.cancel()

    def _accept(
        self, open_dispatch: OpenDispatch, cover: Cover | None = None, name: str = ""
    ) -> asyncio.BaseProtocol:
        count, room = len(self._connections) - len(self._of_nodes), self._room()
        counted = count - len(self._held)
        if room is not None and count >= room:
            self._complaints.warn(
                "refusing connections: logs need the other files", f" ({count} are open)"
            )
            return _Refused()
        if counted >= self._limits.connections_max:
            self._complaints.warn("refusing connections: max.connections", f" ({counted} are open)")
            return _Refused()
        connection = self._connection(open_dispatch, partial(self._made, name), self._lost)
        return connection if cover is None else cover(connection)

    def _accept_node(self, open_dispatch: OpenDispatch) -> asyncio.BaseProtocol:
        if len(self._of_nodes) >= OF_NODES_MAX and not self._cut_off_a_stranger():
            self._complaints.warn(f"refusing nodes' connections: {OF_NODES_MAX} are open")
            return _Refused()
        connection = self._connection(open_dispatch, _made_by_node, self._lost_of_node)
        self._of_nodes[connection] = None
        return connection

    def _cut_off_a_stranger(self) -> bool:
        """Make room among the nodes' connections: the oldest that has not shown who it is goes.

        A node does that in some ms. So who connects and says nothing does not keep nodes out.
        """
        for connection in self._of_nodes:
            if connection.patience.let_in_by is not None:
                logger.debug("cutting off %s: nodes need its place", connection.peer.host)
                del self._of_nodes[connection]
                connection.abort()
                return True
        return False

    def _connection(
        self,
        open_dispatch: OpenDispatch,
        on_made: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> Connection:
        connection = Connection(
            limits=self._limits,
            budget=self._budget,
            answers=self._answers,
            clock=self._clock,
            net=self._net,
            open_dispatch=open_dispatch,
            turns=self._turns,
            complaints=self._complaints,
            on_made=on_made,
            on_lost=on_lost,
        )
        self._connections[connection] = None
        return connection

    def _made(self, name: str, connection: Connection) -> None:
        host = connection.peer.host
        if self.pace is not None and (wait_ms := self.pace(name)):
            unmute = connection.mute(wait_ms / 1000)
            connection.patience.forgive(wait_ms / 1000)
            self._accept_after(wait_ms / 1000, name, unmute)
        if self.arrive is not None and (held_ms := self.arrive(host)):
            self._hold(connection, held_ms)
            return
        self._per_host[host] += 1
        most = self._limits.connections_of_ip.get(
            host.removeprefix("::ffff:"), self._limits.connections_per_ip_max
        )
        if self._per_host[host] > most:
            self._complaints.warn(f"refusing {host}: max.connections.per.ip", f" ({most})")
            connection.close()

    def let_in_who_waits(self) -> None:
        """Go on with all that ``pace`` holds up: it would say something else now."""
        if self._all_closed is not None:
            return
        now = self._clock.monotonic()
        for name, paced in list(self._paced.items()):
            if paced.timer is not None:
                paced.timer.cancel()
            self._go_on(name)
            for until, unmute in paced.waiting:
                if now < until:  # Else it may have been muted again since, for another reason.
                    unmute()

    def _accept_after(self, seconds: float, name: str, unmute: Callable[[], None]) -> None:
        """Leave further clients of a listener in the backlog for so long.

        ``unmute`` ends the wait of the one that was accepted.
        """
        paced = self._paced.get(name)
        if paced is None:
            logger.debug("accepting no client of %s: max.connection.creation.rate", name)
            paced = self._paced[name] = _Paced()
            for listening in self._by_name[name]:
                listening.pause_accepting()
        elif paced.timer is not None:  # Several were accepted at once: the last one's wait counts.
            paced.timer.cancel()
        paced.waiting.append((self._clock.monotonic() + seconds, unmute))
        paced.timer = self._clock.call_later(seconds, partial(self._go_on, name))

    def _go_on(self, name: str) -> None:
        del self._paced[name]
        for listening in self._by_name[name]:
            listening.resume_accepting()

    def _hold(self, connection: Connection, held_ms: int) -> None:
        """Close a connection after some time in which it is not served."""
        logger.debug("holding %s: connection_creation_rate", connection.peer.host)
        is_one_too_many = len(self._held) >= HELD_MAX
        self._held[connection] = None
        if is_one_too_many:
            connection.close()
        else:
            connection.mute()
            self._clock.call_later(held_ms / 1000, connection.close)

    def _lost(self, connection: Connection) -> None:
        host = connection.peer.host
        if connection in self._held:
            del self._held[connection]
        else:
            self._per_host[host] -= 1
            if self._per_host[host] <= 0:
                del self._per_host[host]
        self._forget(connection)

    def _lost_of_node(self, connection: Connection) -> None:
        self._of_nodes.pop(connection, None)
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def _arm_sweep(self) -> None:
        self._sweep_due = self._clock.monotonic() + self._sweep_seconds
        self._sweep_timer = self._clock.call_later(self._sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        late_seconds = now - self._sweep_due
        self._arm_sweep()
        self._complaints.tell()
        if late_seconds > STALL_SECONDS:
            # This process stood still, and what the peers sent meanwhile is still unread. That time
            # does not count against them, and nobody is judged before the next sweep.
            for connection in list(self._connections):
                connection.patience.forgive(late_seconds)
            return
        for connection in list(self._connections):
            if connection.patience.waits_in_vain(now):
                logger.debug("closing %s: it has not shown who it is", connection.peer.host)
                connection.abort()
            else:
                connection.enforce_limits(now)
        self._feed_the_starved(now)
        self._make_room_for_answers(now)

    def _feed_the_starved(self, now: float) -> None:
        """If connections starve for receive memory, cut off the one of them that holds the most.

        One per sweep: the memory that it gives back may be enough for the others.
        """
        starving = [(each.starves_with(now), each) for each in self._connections]
        held_bytes, greatest = max(starving, key=lambda one: one[0], default=(0, None))
        if greatest is not None and held_bytes:
            self._complaints.warn(
                f"cutting off {greatest.peer.host}: queued.max.request.bytes is used up by requests"
                " that have come in part, and its own holds the most",
                f" ({held_bytes} bytes)",
            )
            greatest.abort()

    def _make_room_for_answers(self, now: float) -> None:
        """If the memory for answers is full, cut off the peers that read too slowly, slowest first.

        Stops as soon as ``ROOM_SHARE`` is reached. A peer that reads its answers is never cut off.
        """
        answers = self._answers
        if answers.is_full:
            answers.recount()
        if not answers.is_full:
            return
        slow = [(each.patience.slow_seconds(now), each) for each in self._connections]
        slow = [(seconds, each) for seconds, each in slow if seconds and each.counted_bytes]
        excess_bytes = answers.used_bytes - ROOM_SHARE * answers.limit_bytes
        for seconds, each in sorted(slow, key=lambda one: one[0], reverse=True):
            self._complaints.warn(
                f"cutting off {each.peer.host}: ottla.queued.max.answer.bytes is used up by answers"
                " that nobody takes, and it has hardly taken any",
                f" of its {each.counted_bytes} bytes for {seconds:.0f} s",
            )
            excess_bytes -= each.counted_bytes
            each.abort()
            if excess_bytes < 0:
                break

    def cut_off(self) -> None:
        """Cut all connections off at once, as the end of the process would."""
        for connection in list(self._connections):
            connection.abort()


def _made_by_node(connection: Connection) -> None:
    """Hear that a node has connected: there is nothing to count."""
