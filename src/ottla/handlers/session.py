"""A session with an end: serves a client that has logged in, until it has to log in again.

Owns the end, and the least time between two authentications of one connection. A request behind the
end closes the connection, unless it is the SaslHandshake that begins a re-authentication; what was
asked for before the end is answered. Stands between the connection and the router; a client whose
session does not end never meets it.
Source: KIP-368; the answers of a live Kafka 4.3.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.errors import CloseConnection
from ottla.handlers.call import Answer
from ottla.ids import Principal
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey

Dispatch = Callable[[memoryview], Answer | Pending[Answer | None] | None]

AGAIN_SECONDS = 1.0
"""A re-authentication may not begin sooner after the one before has begun."""
LIFETIME_MS_MAX = (1 << 53) - 1
"""The longest session: a token may name any time as its end."""
_KEY_BYTES = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")


class Session(NamedTuple):
    """Who has logged in, how, and until when."""

    principal: Principal
    mechanism: str
    serve: Dispatch
    """The router's."""
    ends: float
    """Seconds of the monotonic clock."""
    began_again: float | None
    """When the last re-authentication began, by that clock; None: there was none."""


BeginAgain = Callable[[Session, memoryview], Answer | Pending[Answer | None]]


def lifetime_ms(now_ms: int, *, reauth_ms: int, expires_ms: int | None) -> int | None:
    """Return how long a session that begins now lasts; None: as long as its connection.

    ``reauth_ms``: ``connections.max.reauth.ms``, 0 for no limit. ``expires_ms``: when the
    credential ends, as wall time; None: never. Zero: it has ended, within the clocks' skew.
    """
    left = [reauth_ms] if reauth_ms > 0 else []
    if expires_ms is not None:
        left.append(min(max(expires_ms - now_ms, 0), LIFETIME_MS_MAX))
    return min(left, default=None)


def dispatch_until_end(session: Session, clock: Clock, begin_again: BeginAgain) -> Dispatch:
    """Return what serves the session's frames.

    ``begin_again`` serves the SaslHandshake of a re-authentication.
    """
    serve, ends, monotonic = session.serve, session.ends, clock.monotonic
    not_before = None if session.began_again is None else session.began_again + AGAIN_SECONDS

    def dispatch(frame: memoryview) -> Answer | Pending[Answer | None] | None:
        if frame[:2] == _KEY_BYTES and (not_before is None or monotonic() >= not_before):
            return begin_again(session._replace(began_again=monotonic()), frame)
        if monotonic() > ends:
            raise CloseConnection(f"the session of {session.principal.name} is over")
        return serve(frame)

    return dispatch
