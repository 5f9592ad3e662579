"""The requests of one connection that are not answered yet, in their order.

Owns the order of answers: one that is ready early waits for those before it. Consecutive Produce
requests whose appends are done may wait together, within limits of count and bytes (row 14 of the
hostile-client rules). Knows neither sockets nor frames.
"""

from __future__ import annotations  # else each call would build those of inner functions

import logging
from collections import deque
from collections.abc import Callable

from ottla.complaints import Complaints
from ottla.errors import CloseConnection, MalformedMessage
from ottla.network.limits import Limits
from ottla.network.outgoing import Answer, Outgoing
from ottla.pending import Pending

logger = logging.getLogger(__name__)

PRODUCE_KEY = 0


class _Request:
    """A request whose answer is not ready, or has to wait for the answer before it."""

    __slots__ = ("answer", "is_done", "is_failed", "overlaps", "pending", "size_bytes")

    def __init__(self, size_bytes: int, *, overlaps: bool) -> None:
        self.answer: Answer | None = None
        self.is_done = False
        self.is_failed = False
        self.overlaps = overlaps
        self.pending: Pending[Answer | None] | None = None
        self.size_bytes = size_bytes


class Unanswered:
    """The queue of unanswered requests of one connection."""

    def __init__(self, limits: Limits, complaints: Complaints) -> None:
        self._limits = limits
        self._complaints = complaints
        self.requests: deque[_Request] = deque()
        """Use: oldest first. Others only ask whether it is empty."""
        self._size_bytes = 0  # Invariant: the sum over the requests.

    @property
    def has_answer(self) -> bool:
        """Whether the answer to the oldest request is ready."""
        return bool(self.requests) and self.requests[0].is_done

    def may_overlap(self, key: int | None) -> bool:
        """Whether a request of this API key may be served while others are unanswered."""
        return (
            self.requests[-1].overlaps
            and key == PRODUCE_KEY
            and len(self.requests) < self._limits.in_flight_max
            and self._size_bytes < self._limits.in_flight_bytes_max
        )

    def answer(self, answer: Answer) -> None:
        """Queue an answer that is ready, after those of the waiting requests."""
        after = _Request(0, overlaps=True)
        after.answer, after.is_done = answer, True
        self.requests.append(after)

    def wait_for(
        self,
        pending: Pending[Answer | None],
        size_bytes: int,
        host: str,
        told: Callable[[], None],
    ) -> None:
        """Queue a request of ``size_bytes``; call ``told`` when its answer is ready.

        ``host``: the client, for the log.
        """
        request = _Request(size_bytes, overlaps=pending.overlaps)
        request.pending = pending
        self.requests.append(request)
        self._size_bytes += size_bytes

        def done(resolved: Pending[Answer | None]) -> None:
            request.is_done = True
            request.answer = resolved.value
            if resolved.error is not None:
                request.is_failed = True
                if isinstance(resolved.error, CloseConnection):
                    request.answer = list(resolved.error.last_answer)
                self._report(host, resolved.error)
            told()

        pending.on_done(done)

    def release(self, outgoing: Outgoing) -> bool:
        """Move finished answers, oldest first, to ``outgoing``.

        Returns False when a request has failed: those after it cannot be answered in order.
        """
        requests = self.requests
        while requests and requests[0].is_done:
            first = requests.popleft()
            self._size_bytes -= first.size_bytes
            if first.answer:
                outgoing.put(first.answer)
            if first.is_failed:
                self.abandon()
                return False
        return True

    def hurry(self) -> None:
        """Have requests that wait for more (Fetches) answered with what there is."""
        for request in list(self.requests):
            if request.pending is not None:
                request.pending.hurry()

    def abandon(self) -> None:
        """Cancel all requests: nobody waits for their answers any more."""
        requests = list(self.requests)
        self.requests.clear()
        self._size_bytes = 0
        for request in requests:
            if request.pending is not None:
                request.pending.cancel()

    def _report(self, host: str, error: Exception) -> None:
        if isinstance(error, CloseConnection | MalformedMessage):
            logger.debug("closing %s: %s", host, error)
        else:
            self._complaints.note(logging.ERROR, f"closing {host}: its request failed", error=error)
