"""The gate that every request passes, whichever way it then goes (ordinary, long or direct).

Owns the interface between the router and whatever counts or limits requests (quotas, metrics). Such
a thing is an ``Admit``; today there is none, and ``let_pass`` takes its place. Whether a principal
may use a topic or a group is decided in the handlers, because each API answers a denial in its own
form. Source: ADR 30.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.handlers.client import Client


class Passage(Protocol):
    """One request that was let in and is counted, until its answer is ready."""

    def answered(self) -> int:
        """Note that the answer is ready; return its throttle time in ms, 0 for none.

        Called once, before the answer is encoded, also for a request without an answer (acks=0).
        Not called for a request that fails or is abandoned: its connection is closed. An
        implementation that returns a throttle time must also mute the connection. Must not block
        or raise.
        """


Admit = Callable[[int, memoryview, Client], Passage | None]
"""Lets one request in. Takes its API key, its frame (valid only during the call) and its client.
Called once per request, when only the start of its header is decoded. Returns None when the request
is not counted. Raises CloseConnection to have the connection closed."""


def let_pass(key: int, frame: memoryview, client: Client) -> Passage | None:
    """Let every request in, and count none."""
    return None
