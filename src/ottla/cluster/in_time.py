"""Work on the things that a request names, one after the other, within the request's timeout.

Owns when the answer is given. When the time is over, whoever asked hears of what is done; what is
not begun is left alone, and the one thing that is under way goes on unheard. Both are told as
REQUEST_TIMED_OUT. A time of nothing or less is over before anything is begun, as in Kafka, whose
controller looks at the time when a request's turn comes; what this node makes takes its time behind
that (directories and their syncs), so that the time counts there, too.
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
"""Items of a request that are looked at in one turn of the loop: 2 ms at most."""


class Patience(NamedTuple):
    """How long the client waits."""

    clock: Clock
    timeout_ms: int


def each_in_time(
    wanted: Sequence[Asked],
    one: Callable[[Asked], Awaitable[Made]],
    patience: Patience | None = None,
) -> Pending[list[Made | KafkaError]]:
    """Do ``one`` for each; each succeeds or fails (KafkaError) on its own. Outcomes in order.

    ``patience`` None: however long it takes.
    """
    doing = _Doing(wanted, one)
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

    def __init__(self, wanted: Sequence[Asked], one: Callable[[Asked], Awaitable[Made]]) -> None:
        self._wanted = wanted
        self._one = one
        self._outcomes: list[Made | KafkaError] = []
        self.answer: Pending[list[Made | KafkaError]] = Pending()

    def begin(self, ended: Callable[[], None] = lambda: None) -> None:
        """Do one after the other; then call ``ended``, and answer unless that has been done."""

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
        for item in self._wanted:
            if len(self._outcomes) % EACH_TURN == EACH_TURN - 1:
                await asyncio.sleep(0)  # What is refused at once waits for nothing else.
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
        """Answer with what is done by now."""
        if not self.answer.is_done:
            left = len(self._wanted) - len(self._outcomes)
            why = f"not done within {timeout_ms} ms"
            over = KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
            self.answer.resolve([*self._outcomes, *[over] * left])
