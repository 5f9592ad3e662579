"""The contract of a metadata store: six operations that memory, SQLite and later etcd provide.

Owns the words (entry, guard, revision, change set, session) and the limits that all stores keep.
Knows nothing of topics or brokers: keys are text, values are bytes. Source: cluster design 4.1.

A revision is the number of commits so far that changed something: 0 for an empty store. All changes
of one commit have the same revision.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.errors import OttlaError

OPS_MAX = 100
"""The most operations in one commit. etcd allows 128 by default."""
CONDITIONS_MAX = 120
"""The most revisions that the guards of one commit may name. etcd allows 128, counted apart."""

COMMIT_BYTES_MAX = 1280 * 1024
"""The most bytes in one commit, with the keys of its guards. etcd allows 1.5 MiB by default."""
KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1024 * 1024

NO_SESSION = 0
ABSENT = 0
"""The revision that a Guard expects of a key that must not exist."""


class Entry(NamedTuple):
    """A key and its value, at some revision.

    ``create_rev`` is the revision that created the key (a key that is deleted and created again has
    a new one), ``mod_rev`` the last that wrote it. ``session``: when that session ends, the key is
    deleted; 0: it belongs to no session.
    """

    key: str
    value: bytes
    create_rev: int
    mod_rev: int
    session: int = NO_SESSION


class Guard(NamedTuple):
    """A condition on one key: each revision that is not None must match. 0: the key is absent."""

    key: str
    mod_rev: int | None = None
    create_rev: int | None = None


class Put(NamedTuple):
    """Write a key. Without ``session`` the key no longer belongs to a session."""

    key: str
    value: bytes
    session: int = NO_SESSION


class Delete(NamedTuple):
    """Remove a key. Nothing happens when it is absent."""

    key: str


Op = Put | Delete


class Change(NamedTuple):
    """What a commit did to one key: its new entry; None: it was deleted."""

    key: str
    entry: Entry | None


class ChangeSet(NamedTuple):
    """The changes of one commit under the watched prefix, in the order of its operations.

    Without changes it says that nothing happened there up to and including revision ``rev``.
    """

    rev: int
    changes: tuple[Change, ...]


class MetadataError(OttlaError):
    """The store did not do what it was asked to do."""


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
    """The store cannot be used now, or never again (closed, failed). Nothing was changed."""


class Ambiguous(MetadataError):
    """The commit may or may not have happened. Read before you try again."""


class Compacted(MetadataError):
    """The history that a watch asked for is gone. Scan, and watch from that revision on."""

    def __init__(self, from_rev: int) -> None:
        super().__init__(f"revision {from_rev} is compacted")
        self.from_rev = from_rev


class SessionGone(MetadataError):
    """A Put names a session that has ended or never existed; nothing was changed."""

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} does not exist")
        self.session = session


class SessionState(Enum):
    """What the holder of a session knows of it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The store does not answer; the keys may still exist."""
    LOST = "lost"
    """The session has ended: its keys are deleted or will be. Open a new one."""


OnSessionState = Callable[[SessionState], None]


class Session(Protocol):
    """A sign of life: the keys of a session are deleted when its holder closes it or dies."""

    @property
    def id(self) -> int:
        """The number to put into a Put; never 0, and never used for another session."""

    @property
    def certain_until(self) -> float:
        """Until when the session has not ended, in seconds of the holder's monotonic clock.

        Infinite where the end is told at once. Later it may have ended, unheard of here.
        """

    async def close(self) -> None:
        """End the session and delete its keys. Harmless when it has ended."""


class MetadataStore(Protocol):
    """Linearizable keys and values, with atomic guarded commits, and watches without gaps."""

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix``, sorted by key, and the revision they are of."""

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply all ``ops`` atomically if all ``guards`` hold; return the revision, durable.

        When nothing changes (no operations, or deletes of absent keys) that is the current one.
        Raises GuardFailed, SessionGone, Unavailable, Ambiguous; ValueError for more than OPS_MAX
        operations, CONDITIONS_MAX revisions in guards or COMMIT_BYTES_MAX, two operations on one
        key, or a key or value beyond the limits.
        """

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        """Yield the change sets under ``prefix`` from revision ``from_rev`` (>= 1) on, forever.

        After commits under other prefixes a change set without changes tells how far the watch is.
        Raises Compacted when history is missing (at the start, or for a reader that fell far
        behind) and Unavailable when the store closes.
        """

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> Session:
        """Open a session; ``on_state`` is called on the loop: CONNECTED first, LOST at most once.

        The session renews itself; it expires when no renewal arrives for ``ttl_seconds``.
        """

    async def close(self) -> None:
        """Close the store. Watches end with Unavailable. Harmless when closed."""


def check_commit(guards: Sequence[Guard], ops: Sequence[Op]) -> None:
    """Raise ValueError unless ``guards`` and ``ops`` are within the limits of all stores."""
    if len(ops) > OPS_MAX:
        raise ValueError(f"a commit takes at most {OPS_MAX} operations, not {len(ops)}")
    conditions = sum((g.mod_rev is not None) + (g.create_rev is not None) for g in guards)
    if conditions > CONDITIONS_MAX or len(guards) > CONDITIONS_MAX:
        why = f"a commit's guards name at most {CONDITIONS_MAX} revisions, not {conditions}"
        raise ValueError(why)
    if len({op.key for op in ops}) != len(ops):
        raise ValueError("a commit takes one operation per key")
    size_bytes = sum(len(guard.key) for guard in guards)
    for op in ops:
        check_key(op.key)
        if isinstance(op, Put) and len(op.value) > VALUE_BYTES_MAX:
            raise ValueError(f"{op.key}: {len(op.value)} bytes are more than {VALUE_BYTES_MAX}")
        size_bytes += op_bytes(op)
    if size_bytes > COMMIT_BYTES_MAX:
        raise ValueError(f"a commit takes at most {COMMIT_BYTES_MAX} bytes, not {size_bytes}")


def op_bytes(op: Op) -> int:
    """Return how many bytes an operation takes in a commit."""
    return len(op.key) + (len(op.value) if isinstance(op, Put) else 0)


def in_commits(ops: Iterable[Op]) -> Iterator[list[Op]]:
    """Yield unguarded operations, in order, as many at a time as one commit takes."""
    some: list[Op] = []
    size_bytes = 0
    for op in ops:
        if some and (len(some) == OPS_MAX or size_bytes + op_bytes(op) > COMMIT_BYTES_MAX):
            yield some
            some, size_bytes = [], 0
        some.append(op)
        size_bytes += op_bytes(op)
    if some:
        yield some


def check_key(key: str) -> None:
    """Raise ValueError unless ``key`` is 1 to KEY_BYTES_MAX characters of printable ASCII.

    This makes order and prefixes the same in every store. ``keys`` escapes other texts.
    """
    if not 0 < len(key) <= KEY_BYTES_MAX or not key.isascii() or not key.isprintable():
        raise ValueError(f"not a metadata key: {key[:80]!r}")


def failed_guard(guard: Guard, found: Entry | None) -> bool:
    """Whether ``guard`` fails, given ``found``, the entry of its key now (None: absent)."""
    create_rev, mod_rev = (ABSENT, ABSENT) if found is None else (found.create_rev, found.mod_rev)
    return (guard.mod_rev is not None and guard.mod_rev != mod_rev) or (
        guard.create_rev is not None and guard.create_rev != create_rev
    )


def under(prefix: str, change_set: ChangeSet) -> ChangeSet:
    """Return the change set reduced to the changes under ``prefix``."""
    if all(change.key.startswith(prefix) for change in change_set.changes):
        return change_set
    return ChangeSet(
        change_set.rev, tuple(c for c in change_set.changes if c.key.startswith(prefix))
    )
