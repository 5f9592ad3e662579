"""The metadata store in memory: for ``ottla serve --memory``, tests and simulations.

Nothing is kept beyond the object. Operations are done at once, in the order of the calls.
"""

from collections.abc import AsyncIterator, Sequence

from ottla.env.clock import Clock
from ottla.metadata.history import HISTORY_BYTES, HISTORY_REVISIONS, History, follow
from ottla.metadata.sessions import LocalSession, SessionTable
from ottla.metadata.store import (
    NO_SESSION,
    Change,
    ChangeSet,
    Delete,
    Entry,
    Guard,
    GuardFailed,
    OnSessionState,
    Op,
    Put,
    Unavailable,
    check_commit,
    failed_guard,
)


class MemoryStore:
    """A dict with revisions; watches can resume from ``history_revisions`` change sets."""

    def __init__(
        self,
        clock: Clock,
        *,
        history_revisions: int = HISTORY_REVISIONS,
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        self._entries: dict[str, Entry] = {}
        self._keys_of: dict[int, set[str]] = {}
        self._history = History(0, history_revisions, bytes_max=history_bytes)
        self._sessions = SessionTable(clock, first_id=1, expired=self._delete_keys_of)
        self._closed = False

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        self._check_open()
        return self._entries.get(key)

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix``, by key, and the revision. Looks at all keys."""
        self._check_open()
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        return [self._entries[key] for key in keys], self._history.revision

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold; return the revision."""
        self._check_open()
        check_commit(guards, ops)
        for guard in guards:
            found = self._entries.get(guard.key)
            if failed_guard(guard, found):
                raise GuardFailed(guard, found)
        for op in ops:
            if isinstance(op, Put) and op.session != NO_SESSION:
                self._sessions.check(op.session)
        self._apply(ops)
        return self._history.revision

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        """Yield every change set from ``from_rev`` on, reduced to ``prefix``."""
        return follow(self._history, prefix, from_rev)

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> LocalSession:
        """Open a session."""
        self._check_open()
        return self._sessions.open(ttl_seconds, on_state, self._end_session)

    async def close(self) -> None:
        """End sessions and watches."""
        self._closed = True
        self._sessions.close()
        self._history.close()

    async def _end_session(self, session_id: int) -> None:
        self._sessions.forget(session_id)
        self._delete_keys_of(session_id)

    def _delete_keys_of(self, session_id: int) -> None:
        self._apply([Delete(key) for key in sorted(self._keys_of.get(session_id, ()))])

    def _apply(self, ops: Sequence[Op]) -> None:
        rev = self._history.revision + 1
        changes = []
        for op in ops:
            old = self._entries.pop(op.key, None)
            if old is not None:
                self._detach(old)
            if isinstance(op, Put):
                create_rev = rev if old is None else old.create_rev
                entry = Entry(op.key, bytes(op.value), create_rev, rev, op.session)
                self._entries[op.key] = entry
                if op.session != NO_SESSION:
                    self._keys_of.setdefault(op.session, set()).add(op.key)
                changes.append(Change(op.key, entry))
            elif old is not None:
                changes.append(Change(op.key, None))
        if changes:
            self._history.append(ChangeSet(rev, tuple(changes)))

    def _detach(self, entry: Entry) -> None:
        if entry.session != NO_SESSION:
            keys = self._keys_of[entry.session]
            keys.discard(entry.key)
            if not keys:
                del self._keys_of[entry.session]

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")
