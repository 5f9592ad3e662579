"""The door that every request passes: who asks, may it, how much, how long.

Owns the terms on which the router lets requests in, whichever way they go on (ordinary, long or
direct). Whoever counts or bounds requests (quotas, metrics) is an ``Admit``; today nobody does, and
``let_pass`` stands there. Whether a principal may use a topic or a group is not asked here but in
the handlers: each API answers a denial in its own form. Source: ADR 30.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.handlers.client import Client


class Passage(Protocol):
    """One request that was let in and is counted: from ``Admit`` until its answer is there."""

    def answered(self) -> int:
        """Take note of the answer, before it is encoded; return its throttle time in ms, or 0.

        Called once, for a request without an answer (acks=0) as well; never for one that fails or
        is abandoned: its connection is closed. Whoever returns a throttle time mutes the connection
        by itself. Must not block or raise.
        """


Admit = Callable[[int, memoryview, Client], Passage | None]
"""Lets one request in: its API key, its frame (with the client id, valid during the call only), and
who asks. None: nothing of this request is counted. Called once per request, before anything of it
is decoded but the start of its header. Raises CloseConnection to hang up."""


def let_pass(key: int, frame: memoryview, client: Client) -> Passage | None:
    """Let every request in, and count none."""
    return None
