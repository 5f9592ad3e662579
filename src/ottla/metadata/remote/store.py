"""The metadata store of a node that shares it with others: its owner is another process.

Speaks to a ``StoreServer`` over one ``Link``. Every call is a frame and its answer; nothing is kept
here but who waits, so no answer is older than its question. When the link ends, everything fails:
the other end was the only owner of the metadata, and this node has to end, too.
Source: cluster design, section 2.1.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from ottla.env.clock import Clock, Timer
from ottla.errors import MalformedMessage
from ottla.metadata.remote.link import Link
from ottla.metadata.remote.messages import (
    Changes,
    Commit,
    Found,
    Kind,
    Named,
    Number,
    OpenSession,
    Page,
    Refused,
    Watch,
    Why,
    change_set_of,
    entry_of,
    guard_fields,
    op_fields,
)
from ottla.metadata.store import (
    Ambiguous,
    ChangeSet,
    Compacted,
    Entry,
    Guard,
    GuardFailed,
    MetadataError,
    OnSessionState,
    Op,
    SessionGone,
    SessionState,
    Unavailable,
    check_commit,
)
from ottla.protocol.schema import Message

_RENEWALS_PER_TTL = 3
_UNASKED = 0
"""The correlation of a frame that is no request's and no answer's."""
CORRELATION_MAX = 0x7FFFFFFF
"""After it comes 1 again: whoever asked with that has long been answered."""
_ANSWERS: dict[int, type[Message]] = {
    Kind.FOUND: Found,
    Kind.PAGE: Page,
    Kind.DONE: Number,
    Kind.CHANGES: Changes,
    Kind.REFUSED: Refused,
}


class _LinkEnded(Unavailable):
    """The link ended while an answer was awaited."""


class RemoteStore:
    """A store at the other end of ``link``. Everything happens on one loop."""

    def __init__(self, clock: Clock, *, keeps_link: bool = False) -> None:
        """Build a store whose ``link`` is to be given to a transport.

        ``keeps_link``: ``close`` leaves it open, for frames of others; its owner closes it.
        """
        self._clock = clock
        self._keeps_link = keeps_link
        self._correlation = _UNASKED
        """Use: that of the last request."""
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._pages: dict[int, list[Entry]] = {}
        """Use: the entries of scans of which more is to come, by correlation."""
        self._sessions: dict[int, RemoteSession] = {}
        self._is_closed = False
        self.link = Link(self._take, self._lost)
        self.on_lost: Callable[[], None] = _nothing
        """Use: called when the link has ended, unless by ``close``."""
        self.on_other: Callable[[int, memoryview], None] = _no_other
        """Use: takes kind and body of frames that are not the store's."""

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        answer = await self._ask(Kind.GET, Named(name=key))
        assert isinstance(answer, Found), "what GET is answered with"
        return None if answer.entry is None else entry_of(answer.entry)

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix``, sorted by key, and the revision."""
        correlation = self._next_correlation()
        entries = self._pages[correlation] = []
        try:
            answer = await self._ask(Kind.SCAN, Named(name=prefix), correlation)
        finally:
            self._pages.pop(correlation, None)
        assert isinstance(answer, Page), "what SCAN is answered with"
        return entries, answer.revision

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold; return the revision when it is durable.

        Raises Ambiguous when the link ends before the answer.
        """
        self._check_open()
        check_commit(guards, ops)
        guards = tuple(guards)
        message = Commit(guards=list(map(guard_fields, guards)), ops=list(map(op_fields, ops)))
        try:
            answer = await self._ask(Kind.COMMIT, message)
        except _LinkEnded as error:
            raise Ambiguous("the link to the metadata ended before the answer") from error
        except _Refusal as refusal:
            refused = refusal.refused
            if refused.why != Why.GUARD_FAILED or not 0 <= refused.guard < len(guards):
                raise refusal.error from None
            found = None if refused.found is None else entry_of(refused.found)
            raise GuardFailed(guards[refused.guard], found) from None
        return _number(answer)

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        """Yield every change set from ``from_rev`` on, reduced to ``prefix``."""
        return self._watch(prefix, from_rev)

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> "RemoteSession":
        """Open a session. It ends with the link at the latest."""
        if ttl_seconds <= 0:
            raise ValueError(f"a session needs a time to live above 0, not {ttl_seconds}")
        asked_at = self._clock.monotonic()  # The other end begins to count no earlier.
        number = _number(await self._ask(Kind.OPEN_SESSION, OpenSession(ttl_seconds=ttl_seconds)))
        session = RemoteSession(
            self, self._clock, number, ttl_seconds, asked_at=asked_at, on_state=on_state
        )
        self._sessions[number] = session
        on_state(SessionState.CONNECTED)
        if not self.link.is_open:
            self._lost()
        return session

    async def close(self) -> None:
        """End the link, unless it is kept: watches raise Unavailable, commits are ambiguous."""
        self._is_closed = True
        if not self._keeps_link:
            self.link.close()
        self._fail_all()

    def tell(self, kind: int, message: Message) -> None:
        """Send a frame that has no answer; without effect when the link has ended."""
        self.link.send(kind, _UNASKED, message)

    async def end_session(self, number: int) -> None:
        """End a session and have its keys deleted. Raises Unavailable."""
        await self._ask(Kind.END_SESSION, Number(number=number))

    def forget_session(self, number: int) -> None:
        """Expect nothing more of a session."""
        self._sessions.pop(number, None)

    async def _watch(self, prefix: str, from_rev: int) -> AsyncGenerator[ChangeSet, None]:
        if from_rev < 1:
            raise ValueError(f"revisions start at 1, not {from_rev}")
        watch = Watch(prefix=prefix, from_rev=from_rev)
        number = Number(number=_number(await self._ask(Kind.WATCH, watch)))
        try:
            while True:
                answer = await self._ask(Kind.NEXT, number)
                assert isinstance(answer, Changes), "what NEXT is answered with"
                yield change_set_of(answer)
        finally:
            self.tell(Kind.END_WATCH, number)

    async def _ask(self, kind: Kind, message: Message, correlation: int | None = None) -> Message:
        """Return the answer. Raises what REFUSED stands for; _LinkEnded."""
        self._check_open()
        if correlation is None:
            correlation = self._next_correlation()
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = waiter
        self.link.send(kind, correlation, message)
        try:
            answer = await waiter
        finally:
            self._waiting.pop(correlation, None)
        if isinstance(answer, Refused):
            error = _error_of(answer)
            raise _Refusal(answer, error) if kind is Kind.COMMIT else error
        return answer

    def _next_correlation(self) -> int:
        self._correlation = self._correlation % CORRELATION_MAX + 1
        return self._correlation

    def _take(self, kind: int, correlation: int, body: memoryview) -> None:
        if kind >= Kind.OF_OTHERS:
            self.on_other(kind, body)
            return
        if kind in (Kind.SESSION_ENDED, Kind.SESSION_RENEWED):
            self._hear_of_session(kind, Number.decode(body, 0).number)
            return
        table = _ANSWERS.get(kind)
        if table is None:
            raise MalformedMessage("no answer of a store")
        answer = table.decode(body, 0)
        if isinstance(answer, Page):
            pages = self._pages.get(correlation)
            if pages is not None:
                pages += map(entry_of, answer.entries)
            if not answer.is_last:
                return
        waiter = self._waiting.get(correlation)  # None: whoever asked has gone.
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _hear_of_session(self, kind: int, number: int) -> None:
        session = self._sessions.get(number)
        if session is None:
            return
        if kind == Kind.SESSION_RENEWED:
            session.renewed()
        else:
            self.forget_session(number)
            session.ended()

    def _lost(self) -> None:
        self._fail_all()
        if not self._is_closed:
            self.on_lost()

    def _fail_all(self) -> None:
        for waiter in list(self._waiting.values()):
            if not waiter.done():
                waiter.set_exception(_LinkEnded("the link to the metadata has ended"))
        for session in list(self._sessions.values()):
            session.ended()
        self._sessions.clear()

    def _check_open(self) -> None:
        if self._is_closed or not self.link.is_open:
            raise Unavailable("the link to the metadata is closed")


class RemoteSession:
    """A session that a store in another process holds for us as long as we renew it."""

    def __init__(
        self,
        store: RemoteStore,
        clock: Clock,
        number: int,
        ttl_seconds: float,
        *,
        asked_at: float,
        on_state: OnSessionState,
    ) -> None:
        """``asked_at``: when it was asked for, by the monotonic clock."""
        self._store = store
        self._clock = clock
        self._number = number
        self._ttl_seconds = ttl_seconds
        self._on_state = on_state
        self._is_alive = True
        self._renewed_at = asked_at
        """When the newest renewal was sent that was answered."""
        self._unanswered: deque[float] = deque()
        """When the renewals were sent that are still to be answered, in their order."""
        self._timer: Timer
        self._arm(ttl_seconds / _RENEWALS_PER_TTL, self._renew)

    @property
    def id(self) -> int:
        """The number to put into a Put."""
        return self._number

    @property
    def certain_until(self) -> float:
        """When the session would end, had its owner heard no renewal after the last it answered.

        One that is sent late may find that the session has ended.
        """
        return self._renewed_at + self._ttl_seconds

    async def close(self) -> None:
        """End the session and delete its keys. Harmless when it has ended."""
        if self._is_alive:
            await self._store.end_session(self._number)
            self._store.forget_session(self._number)
            self.ended()

    def abandon(self) -> None:
        """Stop renewing, like a holder that hangs: it knows itself when its time is over."""
        if self._is_alive:
            self._timer.cancel()
            left_seconds = self.certain_until - self._clock.monotonic()
            self._arm(max(left_seconds, 0.0), self._give_up)

    def ended(self) -> None:
        """Note that the session has ended, and tell its holder. Harmless when it has."""
        if self._is_alive:
            self._is_alive = False
            self._timer.cancel()
            self._on_state(SessionState.LOST)

    def renewed(self) -> None:
        """Note that the owner has renewed the session: each renewal is answered, in its turn."""
        self._renewed_at = self._unanswered.popleft()

    def _renew(self) -> None:
        self._unanswered.append(self._clock.monotonic())
        self._store.tell(Kind.RENEW_SESSION, Number(number=self._number))
        self._arm(self._ttl_seconds / _RENEWALS_PER_TTL, self._renew)

    def _give_up(self) -> None:
        self._store.tell(Kind.END_SESSION, Number(number=self._number))
        self._store.forget_session(self._number)
        self.ended()

    def _arm(self, delay_seconds: float, due: Callable[[], None]) -> None:
        self._timer = self._clock.call_later(delay_seconds, due)


class _Refusal(Exception):
    """A commit was refused; the guard that failed is known to whoever asked."""

    def __init__(self, refused: Refused, error: Exception) -> None:
        super().__init__(refused.text)
        self.refused = refused
        self.error = error


def _error_of(refused: Refused) -> Exception:
    if refused.why == Why.SESSION_GONE:
        return SessionGone(refused.number)
    if refused.why == Why.COMPACTED:
        return Compacted(refused.number)
    if refused.why == Why.NOT_VALID:
        return ValueError(refused.text)
    kind: type[MetadataError] = Ambiguous if refused.why == Why.AMBIGUOUS else Unavailable
    return kind(refused.text)


def _number(answer: Message) -> int:
    assert isinstance(answer, Number), "what it is answered with"
    return answer.number


def _nothing() -> None:
    """Hear that the link has ended."""


def _no_other(kind: int, body: memoryview) -> None:
    raise MalformedMessage(f"{len(body)} bytes of kind {kind}, which nobody here takes")
