"""What a store and its remote user say to each other: one table per kind of frame.

Both ends are always of one installation, started together: the tables have one version. ``link``
puts frames around them. Grammar of a frame, integers big-endian:

    frame = length:int32 kind:int8 correlation:int32 body
    length counts kind, correlation and body; an answer has its request's correlation
"""

from enum import IntEnum

from ottla.metadata.store import Change, ChangeSet, Delete, Entry, Guard, Op, Put
from ottla.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int64,
    string,
    struct,
)

NO_REVISION = -1
"""Stands for a revision that a guard does not ask for."""


class Kind(IntEnum):
    """What a frame holds."""

    GET = 1
    SCAN = 2
    COMMIT = 3
    OPEN_SESSION = 4
    RENEW_SESSION = 5
    END_SESSION = 6
    WATCH = 7
    NEXT = 8
    END_WATCH = 9
    FOUND = 20
    PAGE = 21
    DONE = 22
    CHANGES = 23
    REFUSED = 24
    SESSION_ENDED = 25
    SESSION_RENEWED = 26
    OF_OTHERS = 64
    """Frames from this kind on are none of the store's: ``Link`` hands them to ``on_other``."""


class Why(IntEnum):
    """Why a request was refused."""

    UNAVAILABLE = 1
    AMBIGUOUS = 2
    GUARD_FAILED = 3
    SESSION_GONE = 4
    COMPACTED = 5
    NOT_VALID = 6


class EntryFields(Struct):
    """An entry."""

    key: str = string()
    value: bytes = bytes_()
    create_rev: int = int64()
    mod_rev: int = int64()
    session: int = int64()


class GuardFields(Struct):
    """A guard; ``NO_REVISION``: that one is not asked for."""

    key: str = string()
    mod_rev: int = int64()
    create_rev: int = int64()


class OpFields(Struct):
    """A put; without a value, a delete."""

    key: str = string()
    value: bytes | None = bytes_(nullable="0+")
    session: int = int64()


class ChangeFields(Struct):
    """A change: the new entry, or none."""

    key: str = string()
    entry: EntryFields | None = struct(EntryFields, nullable="0+")


class Named(Message):
    """GET: a key; SCAN: a prefix."""

    name: str = string()


class Commit(Message):
    """COMMIT."""

    guards: list[GuardFields] = array(GuardFields)
    ops: list[OpFields] = array(OpFields)


class OpenSession(Message):
    """OPEN_SESSION; the answer is DONE with its number."""

    ttl_seconds: float = float64()


class Number(Message):
    """RENEW_SESSION, END_SESSION, SESSION_ENDED, SESSION_RENEWED: a session.

    NEXT, END_WATCH: a watch.

    DONE: the revision of a commit, or the session or watch that was opened.
    """

    number: int = int64()


class Watch(Message):
    """WATCH; the answer is DONE with its number. Each NEXT is answered by CHANGES."""

    prefix: str = string()
    from_rev: int = int64()


class Found(Message):
    """FOUND, the answer to GET."""

    entry: EntryFields | None = struct(EntryFields, nullable="0+")


class Page(Message):
    """PAGE: SCAN is answered by one or more of them."""

    revision: int = int64()
    is_last: bool = boolean()
    entries: list[EntryFields] = array(EntryFields)


class Changes(Message):
    """CHANGES."""

    revision: int = int64()
    changes: list[ChangeFields] = array(ChangeFields)


class Refused(Message):
    """REFUSED.

    ``guard``: the position of the guard that failed, ``found``: what it found. ``number``: the
    session that is gone, or the revision that is compacted.
    """

    why: int = int8()
    text: str = string()
    guard: int = int16(default=-1)
    found: EntryFields | None = struct(EntryFields, nullable="0+", default=None)
    number: int = int64(default=0)


def entry_fields(entry: Entry) -> EntryFields:
    """Return an entry's fields."""
    return EntryFields(
        key=entry.key,
        value=entry.value,
        create_rev=entry.create_rev,
        mod_rev=entry.mod_rev,
        session=entry.session,
    )


def entry_of(fields: EntryFields) -> Entry:
    """Return the entry."""
    return Entry(fields.key, fields.value, fields.create_rev, fields.mod_rev, fields.session)


def guard_fields(guard: Guard) -> GuardFields:
    """Return a guard's fields."""
    mod_rev = NO_REVISION if guard.mod_rev is None else guard.mod_rev
    create_rev = NO_REVISION if guard.create_rev is None else guard.create_rev
    return GuardFields(key=guard.key, mod_rev=mod_rev, create_rev=create_rev)


def guard_of(fields: GuardFields) -> Guard:
    """Return the guard."""
    mod_rev = None if fields.mod_rev == NO_REVISION else fields.mod_rev
    create_rev = None if fields.create_rev == NO_REVISION else fields.create_rev
    return Guard(fields.key, mod_rev, create_rev)


def op_fields(op: Op) -> OpFields:
    """Return an operation's fields."""
    if isinstance(op, Put):
        return OpFields(key=op.key, value=op.value, session=op.session)
    return OpFields(key=op.key, value=None, session=0)


def op_of(fields: OpFields) -> Op:
    """Return the operation."""
    if fields.value is None:
        return Delete(fields.key)
    return Put(fields.key, fields.value, fields.session)


def changes_message(change_set: ChangeSet) -> Changes:
    """Return a change set's message."""
    return Changes(
        revision=change_set.rev,
        changes=[
            ChangeFields(
                key=change.key,
                entry=None if change.entry is None else entry_fields(change.entry),
            )
            for change in change_set.changes
        ],
    )


def change_set_of(message: Changes) -> ChangeSet:
    """Return the change set."""
    return ChangeSet(
        message.revision,
        tuple(
            Change(fields.key, None if fields.entry is None else entry_of(fields.entry))
            for fields in message.changes
        ),
    )
