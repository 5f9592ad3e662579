"""A value that is not there yet.

The way an answer waits: a handler returns a Pending, the purgatory or a flush resolves it, the
connection writes it. It lives on the loop's thread only and runs its listener at once, so that a
waiting request costs neither a task nor a turn of the loop (design D2). Knows nothing of requests.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.env.tasks import begin_task
from ottla.errors import InvariantBroken, KafkaError

Value = TypeVar("Value")
Mapped = TypeVar("Mapped")


class Pending(Generic[Value]):
    """Resolved or failed exactly once; heard by at most one listener."""

    __slots__ = ("_abandon", "_hurry", "_listener", "error", "is_done", "overlaps", "value")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.value: Value | None = None
        self.error: Exception | None = None
        self.is_done = False
        self.overlaps = overlaps
        """True when a successor of the same kind may start before this one is done: whatever had to
        happen in order (a Produce request's append) has happened."""
        self._listener: Callable[[Pending[Value]], None] | None = None
        self._abandon: Callable[[], None] | None = None
        self._hurry: Callable[[], None] | None = None

    def resolve(self, value: Value) -> None:
        """Set the value and run the listener. Raises InvariantBroken when done already."""
        self._finish()
        self.value = value
        self._tell()

    def fail(self, error: Exception) -> None:
        """Set the error and run the listener. Raises InvariantBroken when done already."""
        self._finish()
        self.error = error
        self._tell()

    def take_over(self, other: Pending[Value]) -> None:
        """Be done as ``other``, which is done, was."""
        if other.error is not None:
            self.fail(other.error)
        else:
            self.resolve(other.value)  # type: ignore[arg-type]

    def on_done(self, listener: Callable[[Pending[Value]], None]) -> None:
        """Run ``listener(self)`` once done; at once when done already. One listener only."""
        if self._listener is not None:
            raise InvariantBroken("a Pending has one listener")
        self._listener = listener
        if self.is_done:
            self._tell()

    def on_cancel(
        self, abandon: Callable[[], None], hurry: Callable[[], None] | None = None
    ) -> None:
        """Call ``abandon`` if nobody waits for this any more; it need not be resolved then.

        ``hurry`` is called when whoever waits has no more time: to resolve with what there is.
        """
        self._abandon, self._hurry = abandon, hurry

    def hurry(self) -> None:
        """Ask for what there is, if this is a wait for more. Harmless when done."""
        if self._hurry is not None and not self.is_done:
            self._hurry()

    def cancel(self) -> None:
        """Say that nobody waits any more: the listener is forgotten, work that can end ends.

        What has begun and must come to its end (an append, a commit) goes on. Harmless when done.
        """
        self._listener = _forget
        abandon, self._abandon = self._abandon, None
        if abandon is not None and not self.is_done:
            abandon()

    @property
    def is_cancelled(self) -> bool:
        """Tell whether nobody waits any more."""
        return self._listener is _forget

    def then(
        self,
        transform: Callable[[Value], Mapped],
        refused: Callable[[KafkaError], Mapped] | None = None,
    ) -> Pending[Mapped]:
        """Return a Pending that takes ``transform(value)``, or this one's error.

        ``refused`` makes a value of a KafkaError: the answer of who was refused. None: it stays an
        error. An exception of either becomes the error of the new one.
        """
        mapped: Pending[Mapped] = Pending(overlaps=self.overlaps)
        mapped.on_cancel(self.cancel, self.hurry)

        def forward(done: Pending[Value]) -> None:
            error = done.error
            try:
                if error is None:
                    result = transform(done.value)  # type: ignore[arg-type]
                elif refused is not None and isinstance(error, KafkaError):
                    result = refused(error)
                else:
                    mapped.fail(error)
                    return
            except Exception as fault:  # noqa: BLE001 - travels to whoever listens
                mapped.fail(fault)
            else:
                mapped.resolve(result)

        self.on_done(forward)
        return mapped

    def _tell(self) -> None:
        """Run the listener and let go of it: it knows who waited, and who waited knows this."""
        listener = self._listener
        if listener is not None and listener is not _forget:
            self._listener = _told
            listener(self)

    def _finish(self) -> None:
        if self.is_done:
            raise InvariantBroken("a Pending is resolved once")
        self.is_done = True
        self._abandon = self._hurry = None


def _forget(_: Pending[Any]) -> None:
    """Listen to nothing."""


def _told(_: Pending[Any]) -> None:
    """Stand for a listener that has heard."""


def as_exception(error: BaseException) -> Exception:
    """Return what a Pending can fail with for ``error``, which ended some work."""
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def pending_of(work: Coroutine[Any, Any, Value]) -> Pending[Value]:
    """Run a coroutine as a task and return what it will give. For rare work: admin requests."""
    pending: Pending[Value] = Pending()

    def done(finished: asyncio.Task[Value]) -> None:
        if finished.cancelled():
            pending.fail(InvariantBroken("the work was cancelled"))
            return
        error = finished.exception()
        if error is None:
            pending.resolve(finished.result())
        elif isinstance(error, Exception):
            pending.fail(error)
        else:  # Nobody waits for ever, whatever it was.
            fault = InvariantBroken(f"the work ended with {error!r}")
            fault.__cause__ = error
            pending.fail(fault)

    begin_task(work, name="pending", ended=done)
    return pending


async def outcome_of(pending: Pending[Value]) -> Value:
    """Wait for a Pending that nobody else listens to; return its value or raise its error."""
    if not pending.is_done:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Pending[Value]) -> None:
            if not done.done():
                done.set_result(None)

        pending.on_done(wake)
        await done
    if pending.error is not None:
        raise pending.error
    return pending.value  # type: ignore[return-value]
