"""The embedded metadata store: one SQLite file, owned by one process.

Brings ``sqlite_file`` (which blocks, in one thread of an executor) to the loop, and adds what
lives only as long as the process: sessions and watchers. A commit returns when it is fsynced.
Source: cluster design 4.1, decision D9.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.env.clock import Clock
from ottla.env.disk import Disk, Lock
from ottla.env.executor import Executor, run
from ottla.metadata.history import HISTORY_BYTES, HISTORY_REVISIONS, History, follow
from ottla.metadata.sessions import LocalSession, SessionTable
from ottla.metadata.store import (
    NO_SESSION,
    Batch,
    Entry,
    Guard,
    MetadataError,
    OnSessionState,
    Op,
    Put,
    Unavailable,
    check_commit,
)

if TYPE_CHECKING:
    from ottla.metadata.sqlite_file import SqliteFile

Result = TypeVar("Result")

_SESSION_IDS_PER_START = 1_000_000
_RETRY_SECONDS = 1.0


class StoreInUse(MetadataError):
    """Another process owns the metadata file."""


class SqliteStore:
    """Made by ``open``. All calls come from one loop."""

    def __init__(
        self,
        opened: "_Opened",
        *,
        lock: Lock,
        clock: Clock,
        executor: Executor,
        history_revisions: int,
        history_bytes: int,
    ) -> None:
        self._file = opened.file
        self._lock = lock
        self._clock = clock
        self._executor = executor
        self._history = History(opened.revision, history_revisions, bytes_max=history_bytes)
        self._sessions = SessionTable(clock, opened.first_session, self._session_expired)
        self._closed = False
        self.on_broken: Callable[[str], None] | None = None
        """Use: told once, on the loop, why the store does not work any more and cannot before it is
        opened anew. Not told of what passes, such as a full disk."""

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        history_revisions: int = HISTORY_REVISIONS,
        history_bytes: int = HISTORY_BYTES,
    ) -> "SqliteStore":
        """Open or create the file ``path`` in an existing directory of the kernel's.

        ``executor`` must run work one after another in one thread, and is this store's alone; the
        caller closes it after the store. So many commits, of so many bytes, are kept for watches.
        Keys whose session belonged to an earlier process are deleted. Raises StoreInUse,
        CorruptFile (nothing is changed then), OSError.
        """
        try:
            lock = disk.lock(f"{path}.lock")
        except BlockingIOError as error:
            raise StoreInUse(f"{path} is in use by another process") from error
        try:
            opened = await run(
                executor, lambda: _open_file(disk, path, history_revisions, history_bytes)
            )
        except BaseException:
            lock.release()
            raise
        return cls(
            opened,
            lock=lock,
            clock=clock,
            executor=executor,
            history_revisions=history_revisions,
            history_bytes=history_bytes,
        )

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        return await self._ask(lambda: self._file.get(key))

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix`` by key, and the revision."""
        return await self._ask(lambda: self._file.scan(prefix))

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold; return the revision once it is durable.

        A caller that is cancelled meanwhile does not undo it.
        """
        check_commit(ops)
        guards, ops = tuple(guards), tuple(ops)
        self._check_open()
        for op in ops:
            if isinstance(op, Put) and op.session != NO_SESSION:
                # The thread works in order: a session that ends after this check loses the key.
                self._sessions.check(op.session)
        return await self._change(lambda: self._file.commit(guards, ops))

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[Batch]:
        """Yield every batch from ``from_rev`` on under ``prefix``."""
        return follow(self._history, prefix, from_rev, self._older)

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> LocalSession:
        """Open a session. It ends with this process at the latest."""
        self._check_open()
        return self._sessions.open(ttl_seconds, on_state, self._end_session)

    async def close(self) -> None:
        """Finish the commits under way and close the file.

        Keys of open sessions stay in it; the next ``open`` deletes them.
        """
        if self._closed:
            return
        self._closed = True
        self._sessions.close()
        await run(self._executor, self._file.close)
        self._history.close()
        self._lock.release()

    async def _older(self, from_rev: int) -> list[Batch]:
        return await self._ask(lambda: self._file.history(from_rev))

    async def _end_session(self, session_id: int) -> None:
        self._sessions.forget(session_id)
        try:
            await self._change(lambda: self._file.delete_session(session_id))
        except Unavailable:
            self._delete_keys_later(session_id)
            raise

    def _session_expired(self, session_id: int) -> None:
        def done(batch: Batch | None, error: BaseException | None) -> None:
            self._publish(batch)
            self._tell_if_broken()
            if isinstance(error, Unavailable):
                self._delete_keys_later(session_id)

        self._executor.submit(lambda: self._file.delete_session(session_id), done)

    def _delete_keys_later(self, session_id: int) -> None:
        """Try again when the disk may have room: a dead holder's keys must not stay for good."""

        def again() -> None:
            if not self._closed:
                self._session_expired(session_id)

        self._clock.call_later(_RETRY_SECONDS, again)

    async def _ask(self, question: Callable[[], Result]) -> Result:
        self._check_open()
        try:
            return await run(self._executor, question)
        finally:
            self._tell_if_broken()

    async def _change(self, change: Callable[[], Batch | None]) -> int:
        """Run ``change`` in the thread and publish its batch, even if the caller gave up."""
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(batch: Batch | None, error: BaseException | None) -> None:
            self._publish(batch)
            self._tell_if_broken()
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(self._history.revision)

        self._executor.submit(change, done)
        return await outcome

    def _tell_if_broken(self) -> None:
        if self._file.broken is not None and self.on_broken is not None:
            tell, self.on_broken = self.on_broken, None
            tell(self._file.broken)

    def _publish(self, batch: Batch | None) -> None:
        # The thread works in order and so do its answers: revisions come without a gap.
        if batch is not None:
            self._history.append(batch)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")


class _Opened(NamedTuple):
    file: "SqliteFile"
    revision: int
    first_session: int


def _open_file(disk: Disk, path: str, history_revisions: int, history_bytes: int) -> _Opened:
    # Imported here, in the thread: a broker that runs in memory never pays for SQLite.
    from ottla.metadata.sqlite_file import SqliteFile  # noqa: PLC0415

    file = SqliteFile(disk, path, history_revisions=history_revisions, history_bytes=history_bytes)
    try:
        file.delete_session(None)
        first_session = file.next_session()
        file.reserve_sessions(first_session + _SESSION_IDS_PER_START)
        return _Opened(file, file.revision(), first_session)
    except BaseException:
        file.close()
        raise
