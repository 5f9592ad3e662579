"""Does the things that a request names one after the other, within the request's timeout.

Owns when the answer is given. At the timeout the answer holds the outcomes so far. Things that have
not begun are not done; the one that is being done is completed, but its outcome is not reported.
All of these are answered with REQUEST_TIMED_OUT. With a timeout of 0 or less nothing is begun, as
in Kafka. Kafka's controller looks at the timeout only when the request's turn comes; here it also
covers the work after that (directories and their syncs).
Source: the answers of a live Kafka 4.3 to timeouts of -1, 0 and 1 ms.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending, pending_of

Asked = TypeVar("Asked")
Made = TypeVar("Made")

EACH_TURN = 16
"""How many things of a request are begun in one turn of the loop: 2 ms at most."""


class Patience(NamedTuple):
    """How long the client waits, by which clock."""

    clock: Clock
    timeout_ms: int


def each_in_time(
    wanted: Sequence[Asked],
    one: Callable[[Asked], Awaitable[Made]],
    patience: Patience | None = None,
    *,
    first: Callable[[], Awaitable[None]] | None = None,
) -> Pending[list[Made | KafkaError]]:
    """Call ``one`` for each thing in turn; the Pending gets one outcome per thing, in order.

    Each succeeds or fails (KafkaError) on its own. ``patience`` None: there is no timeout.
    ``first``: is done before; a KafkaError that it raises is the outcome of all things.
    """
    doing = _Doing(wanted, one, first)
    if patience is None:
        doing.begin()
    elif patience.timeout_ms <= 0:
        doing.expire(patience.timeout_ms)
    else:
        timeout_ms = patience.timeout_ms
        timer = patience.clock.call_later(timeout_ms / 1000, lambda: doing.expire(timeout_ms))
        doing.begin(timer.cancel)
    return doing.answer


class _Doing(Generic[Asked, Made]):
    """The progress of one request."""

    def __init__(
        self,
        wanted: Sequence[Asked],
        one: Callable[[Asked], Awaitable[Made]],
        first: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._wanted = wanted
        self._one = one
        self._first = first
        self._outcomes: list[Made | KafkaError] = []
        self.answer: Pending[list[Made | KafkaError]] = Pending()

    def begin(self, ended: Callable[[], None] = lambda: None) -> None:
        """Do one thing after the other; then call ``ended``, and answer if nobody has yet."""

        def done(finished: Pending[None]) -> None:
            ended()
            if self.answer.is_done:
                return
            if finished.error is not None:
                self.answer.fail(finished.error)
            else:
                self.answer.resolve(self._outcomes)

        pending_of(self._do()).on_done(done)

    async def _do(self) -> None:
        if self._first is not None and self._wanted:
            try:
                await self._first()
            except KafkaError as error:
                if not self.answer.is_done:
                    self._outcomes += [error.as_value()] * len(self._wanted)
                return
        for item in self._wanted:
            if len(self._outcomes) % EACH_TURN == EACH_TURN - 1:
                await asyncio.sleep(0)  # Things that are refused at once never wait otherwise.
            if self.answer.is_done:
                return
            outcome: Made | KafkaError
            try:
                outcome = await self._one(item)
            except KafkaError as error:
                outcome = error.as_value()
            if not self.answer.is_done:
                self._outcomes.append(outcome)

    def expire(self, timeout_ms: int) -> None:
        """Answer with the outcomes so far, and REQUEST_TIMED_OUT for the rest."""
        if not self.answer.is_done:
            left = len(self._wanted) - len(self._outcomes)
            why = f"not done within {timeout_ms} ms"
            over = KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
            self.answer.resolve([*self._outcomes, *[over] * left])
