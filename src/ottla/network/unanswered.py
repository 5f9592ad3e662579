"""The requests of one connection that are not answered yet, in their order.

Owns the order: an answer that is there early waits for those before it. Consecutive Produce
requests whose appends are done may wait together, bounded in count and bytes (row 14 of the
hostile-client rules). Knows neither sockets nor frames.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections import deque
from collections.abc import Callable

from ottla.errors import CloseConnection, MalformedMessage
from ottla.network.limits import Limits
from ottla.network.outgoing import Answer, Outgoing
from ottla.pending import Pending

logger = logging.getLogger(__name__)

PRODUCE_KEY = 0


class _Request:
    """One whose answer is not there yet, or may not leave before its predecessor's."""

    __slots__ = ("answer", "is_done", "is_failed", "overlaps", "pending", "size_bytes")

    def __init__(self, size_bytes: int, *, overlaps: bool) -> None:
        self.answer: Answer | None = None
        self.is_done = False
        self.is_failed = False
        self.overlaps = overlaps
        self.pending: Pending[Answer | None] | None = None
        self.size_bytes = size_bytes


class Unanswered:
    """Of one connection."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests: deque[_Request] = deque()
        """Use: from the oldest on; whoever looks only wants to know whether there are any."""
        self._size_bytes = 0  # Invariant: the sum over the requests.

    @property
    def has_answer(self) -> bool:
        """Tell whether the oldest one's answer may leave."""
        return bool(self.requests) and self.requests[0].is_done

    def may_overlap(self, key: int | None) -> bool:
        """Tell whether a request of this API may be served although others are not answered."""
        return (
            self.requests[-1].overlaps
            and key == PRODUCE_KEY
            and len(self.requests) < self._limits.in_flight_max
            and self._size_bytes < self._limits.in_flight_bytes_max
        )

    def answer(self, answer: Answer) -> None:
        """Take an answer that is there already, behind those of the others."""
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
        """Wait for the answer to a request of so many bytes, and call ``told`` when it is there.

        ``host``: whose it is, for the log.
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
                _report(host, resolved.error)
            told()

        pending.on_done(done)

    def release(self, outgoing: Outgoing) -> bool:
        """Move the answers that are there, from the oldest on, to the way out.

        False: one has failed, so that whatever came after it cannot be answered in order any more.
        """
        requests = self.requests
        while requests and requests[0].is_done:
            first = requests.popleft()
            self._size_bytes -= first.size_bytes
            if first.is_failed:
                self.abandon()
                return False
            if first.answer is not None:
                outgoing.put(first.answer)
        return True

    def hurry(self) -> None:
        """Have what waits for more to come answered with what there is."""
        for request in list(self.requests):
            if request.pending is not None:
                request.pending.hurry()

    def abandon(self) -> None:
        """Say of each request that nobody waits for its answer any more."""
        requests = list(self.requests)
        self.requests.clear()
        self._size_bytes = 0
        for request in requests:
            if request.pending is not None:
                request.pending.cancel()


def _report(host: str, error: Exception) -> None:
    if isinstance(error, CloseConnection | MalformedMessage):
        logger.debug("closing %s: %s", host, error)
    else:
        logger.error("closing %s: its request failed", host, exc_info=error)
