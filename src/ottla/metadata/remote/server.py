"""Serves a metadata store to one remote user, over one ``Link``.

Owns the user's sessions and watches: they end with the link, at once. A session whose user is
silent, although the link stands, ends when its time to live is over. The store itself keeps the
order of what is asked: requests begin in the order in which they arrive.
Source: cluster design, section 2.1.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from ottla.env.clock import Clock, Timer
from ottla.env.tasks import begin_task
from ottla.errors import MalformedMessage
from ottla.metadata.remote.link import Link
from ottla.metadata.remote.messages import (
    Commit,
    EntryFields,
    Found,
    Kind,
    Named,
    Number,
    OpenSession,
    Page,
    Refused,
    Watch,
    Why,
    changes_message,
    entry_fields,
    guard_of,
    op_of,
)
from ottla.metadata.store import (
    Ambiguous,
    ChangeSet,
    Compacted,
    GuardFailed,
    MetadataError,
    MetadataStore,
    Session,
    SessionGone,
    SessionState,
)
from ottla.protocol.schema import Message

Service = Callable[[], Coroutine[Any, Any, None]]

REQUESTS_MAX = 256
"""So many requests of one link are served at a time; then it is not read."""
WATCHES_MAX = 64
"""A node has one."""
PAGE_BYTES = 256 * 1024
"""A page of a scan ends with the entry that reaches it."""
_ENTRY_BYTES = 64
_TURNS = 10
"""A user counts as silent only after so many turns of the loop in which it could be heard: when
this process stood still, what the user sent meanwhile is still unread."""


class StoreServer:
    """Serves ``store`` to the user at the other end of ``link``. Everything is on one loop."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        """Build a server whose ``link`` is to be given to a transport."""
        self._store = store
        self._clock = clock
        self._watch_numbers = count(1)
        self._watches: dict[int, AsyncIterator[ChangeSet]] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}
        """Use: by watch, who waits for its next change set."""
        self._sessions: dict[int, _ServedSession] = {}
        self._in_service = 0
        self.link = Link(self._take, self._lost)
        self._heard_at = clock.monotonic()
        self.on_lost: Callable[[], None] = _nothing
        """Use: called when the link has ended."""
        self.on_other: Callable[[int, memoryview], None] = _no_other
        """Use: takes kind and body of frames that are not the store's."""

    @property
    def heard_at(self) -> float:
        """When the user was last heard, in seconds of the clock; now, while it cannot be."""
        return self._clock.monotonic() if self._is_deaf() else self._heard_at

    def _is_deaf(self) -> bool:
        """Tell whether the link is not read: what the user asked is not done yet, by our fault."""
        return self._in_service >= REQUESTS_MAX

    def tell(self, kind: int, message: Message) -> None:
        """Send a frame that has no answer; without effect when the link has ended."""
        self.link.send(kind, 0, message)

    # What arrives.

    def _take(self, kind: int, correlation: int, body: memoryview) -> None:
        self._heard_at = self._clock.monotonic()
        if kind >= Kind.OF_OTHERS:
            self.on_other(kind, body)
        elif kind == Kind.RENEW_SESSION:
            number = Number.decode(body, 0)
            session = self._sessions.get(number.number)
            if session is not None:
                session.renew()
                self.link.send(Kind.SESSION_RENEWED, 0, number)
            else:  # Its user was told when it could not know the session yet, having stood still.
                self.link.send(Kind.SESSION_ENDED, 0, number)
        elif kind == Kind.END_WATCH:
            self._end_watch(Number.decode(body, 0).number)
        elif kind == Kind.WATCH:
            self._open_watch(correlation, Watch.decode(body, 0))
        elif kind == Kind.NEXT:
            self._wait_for_changes(correlation, Number.decode(body, 0).number)
        else:
            self._begin(correlation, self._service(kind, correlation, body))

    def _service(self, kind: int, correlation: int, body: memoryview) -> Service:
        if kind == Kind.GET:
            return partial(self._get, correlation, Named.decode(body, 0).name)
        if kind == Kind.SCAN:
            return partial(self._scan, correlation, Named.decode(body, 0).name)
        if kind == Kind.COMMIT:
            return partial(self._commit, correlation, Commit.decode(body, 0))
        if kind == Kind.OPEN_SESSION:
            return partial(self._open_session, correlation, OpenSession.decode(body, 0).ttl_seconds)
        if kind == Kind.END_SESSION:
            return partial(self._end_session, correlation, Number.decode(body, 0).number)
        raise MalformedMessage("no request to a store")

    def _begin(self, correlation: int, service: Service) -> None:
        self._in_service += 1
        if self._is_deaf():
            self.link.pause_reading()

        def ended(task: asyncio.Task[None]) -> None:
            was_deaf = self._is_deaf()
            self._in_service -= 1
            if was_deaf and not self._is_deaf():
                self._heard_at = self._clock.monotonic()
                for session in self._sessions.values():
                    session.renew()  # Its renewals are still unread.
                self.link.resume_reading()
            self._report(task)

        begin_task(self._answered(correlation, service), name="metadata request", ended=ended)

    async def _answered(self, correlation: int, service: Service) -> None:
        """Serve a request; say so if it is refused."""
        try:
            await service()
        except (MetadataError, ValueError) as error:
            self.link.send(Kind.REFUSED, correlation, _refused(error))

    def _report(self, task: asyncio.Task[None]) -> None:
        """End the link after a fault of ours: its user would wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            task.get_loop().call_exception_handler(
                {"message": "a metadata request failed", "exception": error, "task": task}
            )
            self.link.close()

    # What is asked.

    async def _get(self, correlation: int, key: str) -> None:
        entry = await self._store.get(key)
        fields = None if entry is None else entry_fields(entry)
        self.link.send(Kind.FOUND, correlation, Found(entry=fields))

    async def _scan(self, correlation: int, prefix: str) -> None:
        entries, revision = await self._store.scan(prefix)
        page: list[EntryFields] = []
        size_bytes = 0
        for entry in entries:
            page.append(entry_fields(entry))
            size_bytes += len(entry.key) + len(entry.value) + _ENTRY_BYTES
            if size_bytes >= PAGE_BYTES:
                message = Page(revision=revision, is_last=False, entries=page)
                self.link.send(Kind.PAGE, correlation, message)
                page, size_bytes = [], 0
                await asyncio.sleep(0)  # Others have their turn.
                await self.link.room()
        self.link.send(Kind.PAGE, correlation, Page(revision=revision, is_last=True, entries=page))

    async def _commit(self, correlation: int, message: Commit) -> None:
        guards = tuple(map(guard_of, message.guards))
        try:
            revision = await self._store.commit(guards, tuple(map(op_of, message.ops)))
        except GuardFailed as error:
            refused = _refused(error)
            refused.guard = guards.index(error.guard)
            refused.found = None if error.found is None else entry_fields(error.found)
            self.link.send(Kind.REFUSED, correlation, refused)
            return
        self.link.send(Kind.DONE, correlation, Number(number=revision))

    # Watches: each NEXT has one change set for its answer, so that no change waits in memory here
    # for a user that is slow.

    def _open_watch(self, correlation: int, message: Watch) -> None:
        if len(self._watches) >= WATCHES_MAX:
            raise MalformedMessage(f"more than {WATCHES_MAX} watches")
        number = next(self._watch_numbers)
        self._watches[number] = self._store.watch(message.prefix, message.from_rev)
        self.link.send(Kind.DONE, correlation, Number(number=number))

    def _wait_for_changes(self, correlation: int, number: int) -> None:
        watch = self._watches.get(number)
        if watch is None or number in self._waiting:
            raise MalformedMessage(f"no watch {number} that is free")

        async def next_changes() -> None:
            change_set = await anext(watch)
            del self._waiting[number]  # Before the answer: the next question may follow at once.
            self.link.send(Kind.CHANGES, correlation, changes_message(change_set))

        def ended(task: asyncio.Task[None]) -> None:
            if self._waiting.get(number) is task:
                del self._waiting[number]
            self._report(task)
            if number not in self._watches:
                self._close_watch(watch)

        work = self._answered(correlation, next_changes)
        self._waiting[number] = begin_task(work, name="metadata watch", ended=ended)

    def _end_watch(self, number: int) -> None:
        watch = self._watches.pop(number, None)
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.cancel()  # Its end closes the watch.
        elif watch is not None:
            self._close_watch(watch)

    def _close_watch(self, watch: AsyncIterator[ChangeSet]) -> None:
        close = getattr(watch, "aclose", None)
        if close is not None:
            begin_task(_closed(close), name="metadata watch", ended=self._report)

    # Sessions.

    async def _open_session(self, correlation: int, ttl_seconds: float) -> None:
        heard: list[SessionState] = []
        session = await self._store.session(ttl_seconds, heard.append)
        if not self.link.is_open:
            await session.close()
            return
        served = _ServedSession(
            session, ttl_seconds, self._clock, is_deaf=self._is_deaf, expired=self._expired
        )
        self._sessions[session.id] = served
        self.link.send(Kind.DONE, correlation, Number(number=session.id))

    async def _end_session(self, correlation: int, number: int) -> None:
        served = self._sessions.pop(number, None)
        if served is not None:
            await served.end()
        self.link.send(Kind.DONE, correlation, Number(number=number))

    def _expired(self, number: int) -> None:
        """End a session whose user is silent, and tell it: it may be heard again."""
        served = self._sessions.pop(number, None)
        if served is not None:
            self.link.send(Kind.SESSION_ENDED, 0, Number(number=number))
            begin_task(_closed(served.end), name="session over", ended=self._report)

    def _lost(self) -> None:
        for number in list(self._watches):
            self._end_watch(number)
        for number in list(self._sessions):
            self._expired(number)
        self.on_lost()


class _ServedSession:
    """A session of the store itself, which is ended when the user does not renew it."""

    def __init__(
        self,
        session: Session,
        ttl_seconds: float,
        clock: Clock,
        *,
        is_deaf: Callable[[], bool],
        expired: Callable[[int], None],
    ) -> None:
        """``is_deaf`` tells whether the user cannot be heard; ``expired`` is told of the end."""
        self._session = session
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._is_deaf = is_deaf
        self._expired = expired
        self._deadline = clock.monotonic() + ttl_seconds
        self._is_over = False
        self._timer: Timer
        self._arm()

    def renew(self) -> None:
        """Note that the user lives."""
        self._deadline = self._clock.monotonic() + self._ttl_seconds

    async def end(self) -> None:
        """End the session and delete its keys."""
        self._is_over = True
        self._timer.cancel()
        await self._session.close()

    def _arm(self) -> None:
        delay_seconds = max(self._deadline - self._clock.monotonic(), 0.0)
        self._timer = self._clock.call_later(delay_seconds, self._look)

    def _look(self) -> None:
        if self._is_deaf():
            self.renew()
        if self._deadline > self._clock.monotonic():
            self._arm()
        else:
            begin_task(self._listen(), name="session due", ended=_heard)

    async def _listen(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._is_over:
            return
        if self._deadline > self._clock.monotonic():
            self._arm()
        else:
            self._expired(self._session.id)


async def _closed(close: Service) -> None:
    with suppress(MetadataError):  # The store is closed: it ends sessions and watches itself.
        await close()


def _refused(error: MetadataError | ValueError) -> Refused:
    refuse = partial(Refused, text=str(error)[:1024])
    if isinstance(error, GuardFailed):
        return refuse(why=Why.GUARD_FAILED)
    if isinstance(error, SessionGone):
        return refuse(why=Why.SESSION_GONE, number=error.session)
    if isinstance(error, Compacted):
        return refuse(why=Why.COMPACTED, number=error.from_rev)
    if isinstance(error, Ambiguous):
        return refuse(why=Why.AMBIGUOUS)
    if isinstance(error, ValueError):
        return refuse(why=Why.NOT_VALID)
    return refuse(why=Why.UNAVAILABLE)


def _heard(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _nothing() -> None:
    """Hear that the link has ended."""


def _no_other(kind: int, body: memoryview) -> None:
    raise MalformedMessage(f"{len(body)} bytes of kind {kind}, which nobody here takes")
