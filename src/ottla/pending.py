"""A value that is not there yet.

This is how an answer waits: a handler returns a Pending, the purgatory or a commit queue resolves
it, and the connection writes the answer. A Pending lives on the loop's thread only and runs its
listener at once, so a waiting request costs neither a task nor a turn of the loop (design D2).
Knows nothing of requests.
"""

from __future__ import annotations  # else each call would build those of inner functions

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.env.tasks import begin_task
from ottla.errors import InvariantBroken, KafkaError

Value = TypeVar("Value")
Mapped = TypeVar("Mapped")


class Pending(Generic[Value]):
    """A value or an error to come. Invariant: resolved or failed once; it has one listener."""

    __slots__ = ("_abandon", "_hurry", "_listener", "error", "is_done", "overlaps", "value")

    def __init__(self, *, overlaps: bool = False) -> None:
        self.value: Value | None = None
        self.error: Exception | None = None
        self.is_done = False
        self.overlaps = overlaps
        """True when the next request of the same kind may start before this one is done: what must
        happen in order (the append of a Produce request) has happened."""
        self._listener: Callable[[Pending[Value]], None] | None = None
        self._abandon: Callable[[], None] | None = None
        self._hurry: Callable[[], None] | None = None

    def resolve(self, value: Value) -> None:
        """Set the value and run the listener. Raises InvariantBroken when already done."""
        self._finish()
        self.value = value
        self._tell()

    def fail(self, error: Exception) -> None:
        """Set the error and run the listener. Raises InvariantBroken when already done."""
        self._finish()
        self.error = error
        self._tell()

    def take_over(self, other: Pending[Value]) -> None:
        """Take the value or the error of ``other``, which is done."""
        if other.error is not None:
            self.fail(other.error)
        else:
            self.resolve(other.value)  # type: ignore[arg-type]

    def follow(self, result: Value | Pending[Value]) -> None:
        """Take ``result``, or what it comes to; until then cancel and hurry go on to it."""
        if isinstance(result, Pending):
            self.on_cancel(result.cancel, result.hurry)
            result.on_done(self.take_over)
        else:
            self.resolve(result)

    def on_done(self, listener: Callable[[Pending[Value]], None]) -> None:
        """Run ``listener(self)`` when this is done; at once if it already is.

        Raises InvariantBroken when there is a listener already.
        """
        if self._listener is not None:
            raise InvariantBroken("a Pending has one listener")
        self._listener = listener
        if self.is_done:
            self._tell()

    def on_cancel(
        self, abandon: Callable[[], None], hurry: Callable[[], None] | None = None
    ) -> None:
        """Call ``abandon`` when this is cancelled; it need not be resolved after that.

        ``hurry`` is called when the waiting side has no more time. It should resolve this with the
        result so far.
        """
        self._abandon, self._hurry = abandon, hurry

    def hurry(self) -> None:
        """Ask for the result so far, if this waits for more (a Fetch). Harmless when done."""
        if self._hurry is not None and not self.is_done:
            self._hurry()

    def cancel(self) -> None:
        """Forget the listener and end the work behind this, where it can end.

        What has begun and must be completed (an append, an offset commit) goes on. Harmless when
        done.
        """
        self._listener = _forget
        abandon, self._abandon = self._abandon, None
        if abandon is not None and not self.is_done:
            abandon()

    @property
    def is_cancelled(self) -> bool:
        """Whether ``cancel`` was called: nobody waits for this any more."""
        return self._listener is _forget

    def then(
        self,
        transform: Callable[[Value], Mapped],
        refused: Callable[[KafkaError], Mapped] | None = None,
    ) -> Pending[Mapped]:
        """Return a Pending that gets ``transform(value)``, or this one's error.

        ``refused`` turns a KafkaError into a value, such as the response that carries its code;
        None: it stays an error. What either function raises becomes the error of the new Pending.
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
        """Run the listener and drop it: the listener often refers to this, which makes a cycle."""
        listener = self._listener
        if listener is not None and listener is not _forget:
            self._listener = _told
            listener(self)

    def _finish(self) -> None:
        if self.is_done:
            raise InvariantBroken("a Pending is resolved once")
        self.is_done = True
        self._abandon = self._hurry = None


def failed(error: Exception) -> Pending[Any]:
    """Return a Pending that has failed: what is asked is refused before it begins."""
    pending: Pending[Any] = Pending()
    pending.fail(error)
    return pending


def _forget(_: Pending[Any]) -> None:
    """Stand for the listener of a cancelled Pending."""


def _told(_: Pending[Any]) -> None:
    """Stand for a listener that has run."""


def as_exception(error: BaseException) -> Exception:
    """Return ``error`` itself, or a RuntimeError when it is no Exception (KeyboardInterrupt, ...).

    A Pending fails with an Exception only.
    """
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def pending_of(work: Coroutine[Any, Any, Value]) -> Pending[Value]:
    """Run a coroutine as a task; the Pending gets its result. For rare work: admin requests."""
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
        else:  # Whatever it was, nobody may wait for ever.
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
