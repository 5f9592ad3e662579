"""The metadata store's contract: six operations that memory, SQLite and later etcd all provide.

Owns the words (entry, guard, revision, batch, session) and the limits that hold everywhere. Knows
nothing of topics or brokers: keys are text, values are bytes. Source: cluster design 4.1.

A revision is the store's count of commits that changed something: 0 for an empty store, one more
for each such commit. Every change of a commit has the same revision.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.errors import OttlaError

OPS_MAX = 100
"""Operations in one commit. etcd takes 128 unless told otherwise."""

KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1024 * 1024

NO_SESSION = 0
ABSENT = 0
"""The revision that a Guard expects of a key that must not exist."""


class Entry(NamedTuple):
    """A key as it is at some revision.

    ``create_rev`` is the revision that made the key (deleting and making it again changes it),
    ``mod_rev`` the last that wrote it. ``session`` is 0 or the session it dies with.
    """

    key: str
    value: bytes
    create_rev: int
    mod_rev: int
    session: int = NO_SESSION


class Guard(NamedTuple):
    """A condition on one key; each part that is not None must hold. 0 = the key is absent."""

    key: str
    mod_rev: int | None = None
    create_rev: int | None = None


class Put(NamedTuple):
    """Write a key. Without ``session`` a key that had one no longer dies with it."""

    key: str
    value: bytes
    session: int = NO_SESSION


class Delete(NamedTuple):
    """Remove a key. Nothing happens when it is absent."""

    key: str


Op = Put | Delete


class Change(NamedTuple):
    """What a commit made of one key: its entry, or None when it is gone."""

    key: str
    entry: Entry | None


class Batch(NamedTuple):
    """The changes of one commit under the watched prefix, in the order of its operations.

    One without changes tells only that nothing else happened there up to and including ``rev``.
    """

    rev: int
    changes: tuple[Change, ...]


class MetadataError(OttlaError):
    """The store did not do what was asked."""


class GuardFailed(MetadataError):
    """A guard did not hold; nothing was changed."""

    def __init__(self, guard: Guard, found: Entry | None) -> None:
        held = "absent" if found is None else f"create {found.create_rev}, mod {found.mod_rev}"
        super().__init__(
            f"{guard.key}: expected create {guard.create_rev}, mod {guard.mod_rev}; found {held}"
        )
        self.guard = guard
        self.found = found


class Unavailable(MetadataError):
    """The store cannot be asked now (or any more: closed, its disk failed). Nothing was changed."""


class Ambiguous(MetadataError):
    """The commit may or may not have happened. Re-read before trying again."""


class Compacted(MetadataError):
    """The history that a watch asked for is gone. Scan, and watch from there."""

    def __init__(self, from_rev: int) -> None:
        super().__init__(f"revision {from_rev} is compacted")
        self.from_rev = from_rev


class SessionGone(MetadataError):
    """A Put names a session that has ended or never was; nothing was changed."""

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} does not exist")
        self.session = session


class SessionState(Enum):
    """What the holder of a session knows of it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No word from the store; the keys may still be there."""
    LOST = "lost"
    """For good: the keys are gone or will be. Ask for a new session."""


OnSessionState = Callable[[SessionState], None]


class Session(Protocol):
    """A sign of life: the keys put with it vanish when the holder closes it or dies."""

    @property
    def id(self) -> int:
        """The number to put keys with; never 0, never used again."""

    async def close(self) -> None:
        """End it and delete its keys. Harmless when it has ended."""


class MetadataStore(Protocol):
    """Linearizable keys and values with atomic guarded commits and gapless watches."""

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix`` by key, and the one revision they all are of."""

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold, all or nothing; return the revision.

        When nothing changes (no operations, or deletes of absent keys) that is the present one.
        Raises GuardFailed, SessionGone, Unavailable, Ambiguous; ValueError for more than OPS_MAX
        operations, two on one key, or a key or value beyond the limits.
        """

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[Batch]:
        """Yield every batch with ``rev >= from_rev`` (>= 1) under ``prefix``, in order, for ever.

        After each stretch of commits elsewhere a batch without changes tells how far it is.
        Raises Compacted when history is missing (at the start, or for a reader that fell far
        behind) and Unavailable when the store closes.
        """

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> Session:
        """Open a session; ``on_state`` is called on the loop, CONNECTED first, LOST at most once.

        The store keeps it by itself; it ends when nothing was heard for ``ttl_seconds``.
        """

    async def close(self) -> None:
        """Let go of everything. Watches end with Unavailable. Harmless twice."""


def check_commit(ops: Sequence[Op]) -> None:
    """Raise ValueError unless ``ops`` keep the limits that every store has."""
    if len(ops) > OPS_MAX:
        raise ValueError(f"a commit takes at most {OPS_MAX} operations, not {len(ops)}")
    if len({op.key for op in ops}) != len(ops):
        raise ValueError("a commit takes one operation per key")
    for op in ops:
        check_key(op.key)
        if isinstance(op, Put) and len(op.value) > VALUE_BYTES_MAX:
            raise ValueError(f"{op.key}: {len(op.value)} bytes are more than {VALUE_BYTES_MAX}")


def check_key(key: str) -> None:
    """Raise ValueError unless ``key`` is 1 to KEY_BYTES_MAX characters of printable ASCII.

    Then order and prefixes mean the same in every store. Free text is escaped by ``keys``.
    """
    if not 0 < len(key) <= KEY_BYTES_MAX or not key.isascii() or not key.isprintable():
        raise ValueError(f"not a metadata key: {key[:80]!r}")


def failed_guard(guard: Guard, found: Entry | None) -> bool:
    """Tell whether ``found``, what ``guard.key`` holds now, breaks ``guard``."""
    create_rev, mod_rev = (ABSENT, ABSENT) if found is None else (found.create_rev, found.mod_rev)
    return (guard.mod_rev is not None and guard.mod_rev != mod_rev) or (
        guard.create_rev is not None and guard.create_rev != create_rev
    )


def under(prefix: str, batch: Batch) -> Batch:
    """Return ``batch`` with the changes under ``prefix`` only."""
    if all(change.key.startswith(prefix) for change in batch.changes):
        return batch
    return Batch(batch.rev, tuple(c for c in batch.changes if c.key.startswith(prefix)))
