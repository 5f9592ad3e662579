"""One authentication as the broker sees it: tokens in, tokens out, and a principal at the end.

Owns what a SASL mechanism is to whoever carries its tokens. A mechanism decides and does no I/O.
Source: RFC 4422; Kafka's protocol guide, SASL.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.errors import OttlaError
from ottla.ids import Principal

NAME_LENGTH_MAX = 255
"""A longer user name is refused before anything is looked up or logged."""


class Proved(NamedTuple):
    """The client has proved who it is; ``token`` is the last thing it is told."""

    principal: Principal
    token: bytes = b""
    expires_ms: int | None = None
    """When the proof ends, as wall time in ms; None: never."""


class AuthenticationRefused(OttlaError):
    """The client has not proved who it is. ``str()`` is what it is told: never a secret.

    ``name`` is the user that it said to be, for the broker's own log; empty when it named nobody.
    ``noted`` is the reason for that log, where the client is told less.
    """

    def __init__(self, why: str, name: str = "", *, noted: str = "") -> None:
        super().__init__(why)
        self.name = name
        self.noted = noted or why


class Exchange(Protocol):
    """The broker's half of one exchange of a mechanism."""

    def step(self, token: bytes) -> bytes | Proved:
        """Take the client's next token; return the answer, or ``Proved`` with the last one.

        Not called again after ``Proved`` or an error. Raises AuthenticationRefused.
        """


OpenExchange = Callable[[], Exchange]
"""Begins an exchange of one mechanism. Called once for each authentication."""
