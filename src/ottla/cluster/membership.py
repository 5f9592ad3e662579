"""This node's membership in the cluster: its registration, and the controller's seat.

Both are keys of a session. They are deleted when the session's holder dies, which other nodes see
by their watches. A node that has lost its session but lives on, whatever the cause, joins again by
itself, because without its keys no client finds it. A single node is always the controller; it
takes the seat in the same way as one of several nodes will. Source: cluster design 4.3, steps 1-2.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla.env.clock import Clock, pause
from ottla.env.tasks import begin_task
from ottla.errors import OttlaError
from ottla.ids import NodeId
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.keys import Keys
from ottla.metadata.store import (
    ABSENT,
    Entry,
    Guard,
    GuardFailed,
    MetadataError,
    MetadataStore,
    Put,
    Session,
    SessionGone,
    SessionState,
)
from ottla.metadata.values import (
    NO_LEADER,
    BrokerState,
    BrokerValue,
    decode_broker,
    decode_controller,
    encode_broker,
    encode_controller,
)

logger = logging.getLogger(__name__)

SESSION_TTL_SECONDS = 9.0
REJOIN_RETRY_SECONDS = 1.0
"""The pause between attempts to join again: the store may fail, or still hold our old keys."""


class AlreadyRegistered(OttlaError):
    """Another process is registered with this node id."""

    what = "this node cannot join its cluster"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = "stop that process, or choose another node.id"


def registered_already(node_id: NodeId, found: Entry | None) -> str:
    """Return why a node cannot register; ``found``: the registration with its id."""
    where = ""
    if found is not None:
        other = decode_broker(found.value)
        where = f", by a process that serves at {other.host}:{other.port}"
    return f"node {node_id} is registered already{where}"


async def _go_on() -> None:
    """See nothing against it."""


class Membership:
    """Holds this node's session in the store, and opens a new one when it is lost."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        node_id: NodeId,
        broker: BrokerValue,
        *,
        clock: Clock,
        ttl_seconds: float = SESSION_TTL_SECONDS,
    ) -> None:
        """Build a membership that has not joined; ``broker``: this node's registration."""
        self._store = store
        self._keys = keys
        self._node_id = node_id
        self._broker = broker
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._session: Session | None = None
        self._sessions_opened = 0
        self._registered: int | None = None
        """Use: the revision of this node's registration by its present session. None: it has none.

        The registration of the session before may be what the image shows.
        """
        self._seen = -1
        """Use: that of the registration which the image shows."""
        self._image: MetadataImage | None = None
        """Use: to tell whether the seat is free. None: nothing was heard yet."""
        self._rejoining: asyncio.Task[None] | None = None
        self._seating: asyncio.Task[None] | None = None
        """Use: tries to take the controller's seat, until somebody has it."""
        self.on_failed: Callable[[BaseException], None] = lambda _: None
        """Called on the loop with an error, of our own, that ended the attempts to join again."""
        self.before: Callable[[], Awaitable[None]] = _go_on
        """Awaited before this node registers, whenever that is; what it raises prevents it."""
        self._has_joined = False
        """Use: True from ``join`` to ``leave``: a lost session is replaced."""
        self.state = SessionState.LOST

    async def join(self) -> int:
        """Register this node and take the controller's seat if it is free; return the revision.

        From then on the node stays a member until ``leave``. A session that is lost meanwhile is
        replaced. Raises AlreadyRegistered when a node with this id is alive; Unavailable,
        Ambiguous.
        """
        revision = await self._register_at_last()
        self._has_joined = True
        if self.state is SessionState.LOST:  # It was lost during the last await.
            self._join_again()
        elif revision == self._registered:  # Another node has the seat, or had it just now.
            self._seek_seat()
        return revision

    async def leave(self) -> None:
        """End the session, so that other nodes need not wait until it expires."""
        self._has_joined = False
        if self._rejoining is not None:
            self._rejoining.cancel()
            await asyncio.gather(self._rejoining, return_exceptions=True)
        if self._seating is not None:
            self._seating.cancel()
            await asyncio.gather(self._seating, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def drain(self) -> int | None:
        """Tell the others that this node stops: it is to lead nothing more; return the revision.

        None: it is no member now. Raises MetadataError.
        """
        return await self._tell(self._broker._replace(state=BrokerState.DRAINING))

    async def tell_full(self, is_full: bool) -> int | None:
        """Tell the others whether a log directory of this node has no space; return the revision.

        None: it is no member now; it tells when it is one again. Raises MetadataError.
        """
        return await self._tell(self._broker._replace(is_full=is_full))

    async def _tell(self, broker: BrokerValue) -> int | None:
        """Register as ``broker`` from now on, in the registration that this node has."""
        session, self._broker = self._session, broker
        if session is None or self.state is not SessionState.CONNECTED:
            return None
        live = self._keys.live_broker(self._node_id)
        while True:
            entry = await self._store.get(live)
            if entry is None or entry.session != session.id:
                return None
            with suppress(GuardFailed):  # It has told something else meanwhile.
                return await self._store.commit(
                    [Guard(live, mod_rev=entry.mod_rev)],
                    [Put(live, encode_broker(self._broker), session.id)],
                )

    async def _register_at_last(self) -> int:
        """Register, with a session anew for each that is lost meanwhile."""
        while True:
            try:
                return await self._register()
            except SessionGone:
                logger.warning("this node's session was lost while it joined: it tries again")
                await pause(self._clock, REJOIN_RETRY_SECONDS)

    async def _register(self) -> int:
        await self.before()
        self._registered = None
        self._sessions_opened += 1
        number = self._sessions_opened
        session = await self._store.session(
            self._ttl_seconds, lambda state: self._heard(number, state)
        )
        self._session = session
        try:
            return await self._put_keys(session)
        except BaseException:
            await session.close()
            raise

    async def _put_keys(self, session: Session) -> int:
        live = self._keys.live_broker(self._node_id)
        try:
            revision = await self._store.commit(
                [Guard(live, create_rev=ABSENT)],
                [Put(live, encode_broker(self._broker), session.id)],
            )
        except GuardFailed as error:
            why = registered_already(self._node_id, error.found)
            raise AlreadyRegistered(why) from error
        self._registered = revision
        try:
            return await self._store.commit(
                [Guard(self._keys.controller, create_rev=ABSENT)],
                [Put(self._keys.controller, encode_controller(self._node_id), session.id)],
            )
        except GuardFailed as error:
            found = error.found
            if found is not None and found.session == session.id:
                return found.mod_rev  # It became free in between, and ``apply`` took it.
            if found is not None and decode_controller(found.value) == self._node_id:
                # By an earlier session of ours: the seat would be lost with that session.
                why = f"node {self._node_id} has the controller's seat already"
                raise AlreadyRegistered(why) from error
            return revision  # Another node is the controller.

    def certain_until(self) -> float:
        """Return until when this node is registered for certain, in seconds of its clock.

        Minus infinity when it is not, or when the image does not show the registration yet: then it
        does not show either what was decided before.
        """
        session = self._session
        if session is None or self.state is SessionState.LOST:
            return -math.inf
        return session.certain_until if self._seen == self._registered else -math.inf

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Try to take the controller's seat when it has become free; a listener of the image."""
        if self._node_id in delta.brokers:
            broker = image.brokers.get(self._node_id)
            self._seen = -1 if broker is None else broker.epoch
        self._image = image
        if delta.controller_changed:
            self._seek_seat()

    def _seek_seat(self) -> None:
        """Begin to take the controller's seat if it is free, as far as this node has heard."""
        image = self._image
        if image is None or image.controller != NO_LEADER:
            return
        if self._has_joined and self._seating is None:
            self._seating = begin_task(
                self._take_seat(image), name="take the controller's seat", ended=self._seat_taken
            )

    async def _take_seat(self, image: MetadataImage) -> None:
        """Try until somebody has the seat: nobody else may be able to when it becomes free."""
        while self._has_joined and image.controller == NO_LEADER:
            session = self._session
            if session is not None and self.state is SessionState.CONNECTED:
                with suppress(MetadataError):  # Another node has it, or the store is away.
                    await self._store.commit(
                        [Guard(self._keys.controller, create_rev=ABSENT)],
                        [Put(self._keys.controller, encode_controller(self._node_id), session.id)],
                    )
            await pause(self._clock, REJOIN_RETRY_SECONDS)

    def _heard(self, number: int, state: SessionState) -> None:
        if number != self._sessions_opened:
            return  # News of a session that was replaced.
        self.state = state
        if state is SessionState.LOST and self._has_joined:
            self._join_again()

    def _join_again(self) -> None:
        if self._rejoining is None:
            logger.warning("this node's session in the metadata store is lost: it joins again")
            self._rejoining = begin_task(
                self._join_until_member(), name="join again", ended=self._joining_ended
            )

    async def _join_until_member(self) -> None:
        while self._has_joined and self.state is SessionState.LOST:
            try:
                await self._register()
            except Exception as error:
                is_ours = not isinstance(error, (OttlaError, OSError))
                logger.log(
                    logging.ERROR,
                    "this node could not join its cluster again yet: %s",
                    error,
                    exc_info=error if is_ours else None,
                )
                await pause(self._clock, REJOIN_RETRY_SECONDS)

    def _joining_ended(self, task: asyncio.Task[None]) -> None:
        self._rejoining = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.on_failed(error)
        elif self._has_joined and self.state is SessionState.LOST:
            self._join_again()  # It was lost again while the task ended.
        elif self._has_joined:
            logger.warning("node %d is a member of its cluster again", self._node_id)

    def _seat_taken(self, task: asyncio.Task[None]) -> None:
        self._seating = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the controller's seat could not be taken", exc_info=error)
        elif not task.cancelled():
            self._seek_seat()  # It may have become free again while the task ended.
