"""The embedded metadata store: one SQLite file, owned by one process.

Runs ``sqlite_file``, which blocks, in one thread of an executor, and adds what lives only as long
as the process: sessions and watchers. A commit returns when it is fsynced.
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
    ChangeSet,
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
    """A store that ``open`` has opened. All calls come from one loop."""

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
        """Use: called once, on the loop, with the reason, when the store is broken until it is
        opened again. Not called for errors that pass, such as a full disk."""

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
        """Open or create the file ``path`` in an existing directory of the real file system.

        ``executor`` must run jobs one after another in one thread, and must be for this store only;
        the caller closes it after the store. ``history_revisions`` and ``history_bytes`` limit what
        is kept for watches. Keys of sessions of earlier processes are deleted. Raises StoreInUse,
        CorruptFile (then nothing is changed), OSError.
        """
        try:
            lock = disk.lock(f"{path}.lock")
        except BlockingIOError as error:
            raise StoreInUse(f"{path} is in use by another process") from error
        made: list[SqliteFile] = []

        def open_file() -> _Opened:
            opened = _open_file(disk, path, history_revisions, history_bytes)
            made.append(opened.file)
            return opened

        try:
            opened = await run(executor, open_file)
        except asyncio.CancelledError:  # The job may open the file all the same: close it then.
            executor.submit(lambda: _close(made, lock), lambda _, __: None)
            raise
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
        """Return the entries under ``prefix``, sorted by key, and the revision."""
        return await self._ask(lambda: self._file.scan(prefix))

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold; return the revision when it is durable.

        The commit happens even if its caller is cancelled meanwhile.
        """
        check_commit(guards, ops)
        guards, ops = tuple(guards), tuple(ops)
        self._check_open()
        for op in ops:
            if isinstance(op, Put) and op.session != NO_SESSION:
                # The thread works in order: a session that ends after this check loses the key.
                self._sessions.check(op.session)
        return await self._change(lambda: self._file.commit(guards, ops))

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        """Yield every change set from ``from_rev`` on, reduced to ``prefix``."""
        return follow(self._history, prefix, from_rev, self._older)

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> LocalSession:
        """Open a session. It ends when this process ends, at the latest."""
        self._check_open()
        return self._sessions.open(ttl_seconds, on_state, self._end_session)

    async def close(self) -> None:
        """Finish the commits that have begun and close the file.

        Keys of open sessions stay in the file; the next ``open`` deletes them.
        """
        if self._closed:
            return
        self._closed = True
        self._sessions.close()
        try:
            await run(self._executor, lambda: _close([self._file], self._lock))
        finally:
            self._history.close()

    async def _older(self, from_rev: int) -> list[ChangeSet]:
        return await self._ask(lambda: self._file.history(from_rev))

    async def _end_session(self, session_id: int) -> None:
        self._sessions.forget(session_id)
        try:
            await self._change(lambda: self._file.delete_session(session_id))
        except Unavailable:
            self._delete_keys_later(session_id)
            raise

    def _session_expired(self, session_id: int) -> None:
        def done(change_set: ChangeSet | None, error: BaseException | None) -> None:
            self._publish(change_set)
            self._tell_if_broken()
            if isinstance(error, Unavailable):
                self._delete_keys_later(session_id)

        self._executor.submit(lambda: self._file.delete_session(session_id), done)

    def _delete_keys_later(self, session_id: int) -> None:
        """Try again later, when the disk may have room: a dead session's keys must not stay."""

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

    async def _change(self, change: Callable[[], ChangeSet | None]) -> int:
        """Run ``change`` in the thread and publish its change set, even if the caller gave up."""
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(change_set: ChangeSet | None, error: BaseException | None) -> None:
            self._publish(change_set)
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

    def _publish(self, change_set: ChangeSet | None) -> None:
        # The thread works in order and its results come in order: revisions have no gap.
        if change_set is not None:
            self._history.append(change_set)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")


class _Opened(NamedTuple):
    file: "SqliteFile"
    revision: int
    first_session: int


def _close(files: "Sequence[SqliteFile]", lock: Lock) -> None:
    """Close the files, then release the lock, whether or not closing fails."""
    try:
        for file in files:
            file.close()
    finally:
        lock.release()


def _open_file(disk: Disk, path: str, history_revisions: int, history_bytes: int) -> _Opened:
    # Imported here, in the thread: a broker that runs in memory does not need SQLite.
    from ottla.metadata.sqlite_file import SqliteFile  # noqa: PLC0415

    file = SqliteFile(disk, path, history_revisions=history_revisions, history_bytes=history_bytes)
    try:
        file.delete_session(None)
        first_session = file.next_session()
        file.reserve_sessions(first_session + _SESSION_IDS_PER_START)
        file.keep_room()
        return _Opened(file, file.revision(), first_session)
    except BaseException:
        file.close()
        raise
