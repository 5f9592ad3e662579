"""A session in etcd: a lease that is kept alive, and until when its holder may count on it.

Each renewal is one message and its answer. The deadline counts from when the last answered one was
sent: etcd cannot have begun to count earlier. After the deadline the session is not lost: only etcd
says that. (A member that becomes etcd's leader gives every lease its whole time again.) But nobody
may count on it. Source: cluster design 3.7; etcd's lease API.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.env.clock import Clock, Timer
from ottla.env.tasks import begin_task
from ottla.metadata.etcd import wire
from ottla.metadata.etcd.members import Members, Refused
from ottla.metadata.store import OnSessionState, SessionState, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_RENEWALS_PER_TTL = 4
_RETRY_SECONDS = 0.2
_ANSWER_SECONDS_MAX = 2.0


class EtcdSession:
    """A lease with the number ``number`` that etcd grants for ``ttl_seconds`` at a time."""

    def __init__(
        self,
        members: Members,
        clock: Clock,
        number: int,
        ttl_seconds: int,
        *,
        asked_at: float,
        on_state: OnSessionState,
        forget: Callable[[EtcdSession], None],
    ) -> None:
        """``asked_at``: when the lease was asked for. ``forget``: told when the session is over."""
        self._members = members
        self._clock = clock
        self._number = number
        self._ttl_seconds = ttl_seconds
        self._on_state = on_state
        self._forget = forget
        self._state = SessionState.CONNECTED
        self._renewing: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[bytes] | None = None
        self._certain_until = asked_at + ttl_seconds
        self._timer: Timer = clock.call_later(ttl_seconds / _RENEWALS_PER_TTL, self._renew)

    @property
    def id(self) -> int:
        """The number to put into a Put."""
        return self._number

    @property
    def certain_until(self) -> float:
        """Until when etcd cannot have ended the session, by the monotonic clock."""
        return self._certain_until

    @property
    def is_alive(self) -> bool:
        """Whether the session is not known to have ended."""
        return self._state is not SessionState.LOST

    async def close(self) -> None:
        """End the session and delete its keys. Harmless when it has ended. Raises Unavailable."""
        if self.is_alive:
            self._stop()
            try:
                await self._members.call_again("LeaseRevoke", wire.lease(self._number))
            except Refused as error:
                if not error.is_not_found:
                    raise Unavailable(str(error)) from error
            finally:
                self.ended()

    def abandon(self) -> None:
        """Stop renewing, like a holder that hangs: it knows itself when its time is over."""
        self._stop()
        left_seconds = self._certain_until - self._clock.monotonic()
        self._timer = self._clock.call_later(max(left_seconds, 0.0), self._give_up)

    def ended(self) -> None:
        """Note that the session has ended, and tell its holder. Harmless when it has."""
        if self.is_alive:
            self._stop()
            self._forget(self)
            self._tell(SessionState.LOST)

    def _stop(self) -> None:
        self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _tell(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            self._on_state(state)

    def _give_up(self) -> None:
        revoking = self._members.call_again("LeaseRevoke", wire.lease(self._number))
        self._ending = begin_task(revoking, name="end a session", ended=_heard)
        self.ended()

    # Renewals.

    def _renew(self) -> None:
        if self._renewing is None:
            self._renewing = begin_task(
                self._keep_alive(), name="keep a session alive", ended=self._renewed
            )
        self._timer = self._clock.call_later(self._ttl_seconds / _RENEWALS_PER_TTL, self._renew)

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a session could not be kept alive", exc_info=error)

    async def _keep_alive(self) -> None:
        """Renew until etcd has answered."""
        seconds = min(self._ttl_seconds / 3, _ANSWER_SECONDS_MAX)
        while self.is_alive:
            try:
                async with self._members.stream("LeaseKeepAlive", seconds=seconds) as call:
                    sent_at = self._clock.monotonic()
                    await call.write(wire.lease(self._number))
                    lease = wire.read_lease(await call.read())
            except (Unavailable, Refused) as error:
                self._unanswered(error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if lease.ttl_seconds <= 0:
                logger.warning("etcd has ended this node's session")
                self.ended()
                return
            self._certain_until = max(self._certain_until, sent_at + lease.ttl_seconds)
            self._tell(SessionState.CONNECTED)
            return

    def _unanswered(self, error: Exception) -> None:
        if self.is_alive and self._clock.monotonic() > self._certain_until:
            if self._state is SessionState.CONNECTED:
                logger.warning("etcd does not renew this node's session: %s", error)
            self._tell(SessionState.SUSPENDED)


def _heard(task: asyncio.Task[bytes]) -> None:
    """Let etcd end the lease by itself if it was not told."""
    if not task.cancelled():
        task.exception()
