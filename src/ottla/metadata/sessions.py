"""The sessions of a store that lives in this process, and when they expire.

Owns deadlines and timers, not keys: the store deletes a session's keys when it is told that the
session ended. The holder renews by a timer of its own, as a remote holder would over the wire, so a
holder that hangs loses its session by the same rule. When the whole process stood still (stopped,
asleep, short of memory), the renewals are late only because nothing ran, this table included. So
renewals that are due come before deadlines.
Source: cluster design 4.1.
"""

from collections.abc import Awaitable, Callable
from math import inf

from ottla.env.clock import Clock, Timer
from ottla.metadata.store import OnSessionState, SessionGone, SessionState

_RENEWALS_PER_TTL = 3


class SessionTable:
    """The sessions of one store. ``expired(id)`` is called on the loop when a session expires."""

    def __init__(self, clock: Clock, first_id: int, expired: Callable[[int], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._next_id = first_id
        self._sessions: dict[int, LocalSession] = {}

    def open(
        self,
        ttl_seconds: float,
        on_state: OnSessionState,
        end: Callable[[int], Awaitable[None]],
    ) -> "LocalSession":
        """Open a session; ``end(id)`` is to delete its keys when the holder closes it."""
        if ttl_seconds <= 0:
            raise ValueError(f"a session needs a time to live above 0, not {ttl_seconds}")
        session = LocalSession(self._next_id, ttl_seconds, on_state, end, self._clock)
        self._next_id += 1
        self._sessions[session.id] = session
        session.renew()
        self._watch(session)
        on_state(SessionState.CONNECTED)
        return session

    def check(self, session_id: int) -> None:
        """Raise SessionGone unless the session is alive."""
        if session_id not in self._sessions:
            raise SessionGone(session_id)

    def forget(self, session_id: int) -> None:
        """End a session and tell its holder. Harmless when it has ended."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.lost()

    def close(self) -> None:
        """End all sessions without deleting their keys."""
        for session_id in list(self._sessions):
            self.forget(session_id)

    def _watch(self, session: "LocalSession") -> None:
        def look() -> None:
            session.catch_up()
            if session.deadline > self._clock.monotonic():
                self._watch(session)
            elif session.id in self._sessions:
                self.forget(session.id)
                self._expired(session.id)

        # One timer per session, armed again when it fires: renewals need no timer in this table.
        delay_seconds = session.deadline - self._clock.monotonic()
        session.expiry = self._clock.call_later(delay_seconds, look)


class LocalSession:
    """A session whose holder is in the store's own process."""

    def __init__(
        self,
        session_id: int,
        ttl_seconds: float,
        on_state: OnSessionState,
        end: Callable[[int], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._id = session_id
        self._ttl_seconds = ttl_seconds
        self._on_state = on_state
        self._end = end
        self._clock = clock
        self._renewal: Timer | None = None
        self._renewal_due = inf
        self._alive = True
        self.expiry: Timer | None = None
        self.deadline = 0.0
        """When it expires, in seconds of the monotonic clock. *Invariant:* never falls."""

    @property
    def id(self) -> int:
        """The number to put into a Put."""
        return self._id

    @property
    def certain_until(self) -> float:
        """Infinite: the holder is told at once when the session ends."""
        return inf

    async def close(self) -> None:
        """End the session and delete its keys. Harmless when it has ended."""
        if self._alive:
            await self._end(self._id)

    def abandon(self) -> None:
        """Stop renewing, like a holder that hangs: the session expires at its deadline."""
        self._renewal_due = inf
        if self._renewal is not None:
            self._renewal.cancel()

    def catch_up(self) -> None:
        """Renew the session if a renewal is due whose timer has not fired yet."""
        if self._renewal_due <= self._clock.monotonic():
            self.renew()

    def renew(self) -> None:
        """Renew the session, and arm the timer of the next renewal."""
        if self._renewal is not None:
            self._renewal.cancel()
        now, interval_seconds = self._clock.monotonic(), self._ttl_seconds / _RENEWALS_PER_TTL
        self.deadline = now + self._ttl_seconds
        self._renewal_due = now + interval_seconds
        self._renewal = self._clock.call_later(interval_seconds, self.renew)

    def lost(self) -> None:
        """Note that the session has ended, and tell its holder."""
        self._alive = False
        self.abandon()
        if self.expiry is not None:
            self.expiry.cancel()
        self._on_state(SessionState.LOST)
