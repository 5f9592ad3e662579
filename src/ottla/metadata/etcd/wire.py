"""What is said to etcd and what it answers, as bytes of protocol buffers. Pure.

Owns the few messages of etcd's API (version 3) that a metadata store needs, with revisions as etcd
counts them. Each field is a tag (its number and its kind) and a value:

    message := field*               field := varint(number << 3 | kind) value
    value   := varint               kind 0: numbers, truths, choices
             | varint(length) bytes kind 2: bytes, text, messages
             | 8 bytes | 4 bytes    kinds 1 and 5: read over

What is not known is read over, as newer servers say more. Source: etcd's API reference; the
encoding of protocol buffers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.errors import MalformedMessage

_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SIZES = {_EIGHT: 8, _FOUR: 4}
_VARINT_BYTES_MAX = 10
_64_BITS = (1 << 64) - 1
_EQUAL = 0
_CREATE_REVISION, _MOD_REVISION = 1, 2

Value = int | memoryview


class KeyValue(NamedTuple):
    """A key as etcd has it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Ranged(NamedTuple):
    """What a range held."""

    revision: int
    """The store's, when it answered; 0 inside a transaction."""
    found: list[KeyValue]
    has_more: bool
    counted: int
    """All that the range holds, whether it was returned or not."""


class Transacted(NamedTuple):
    """What became of a transaction."""

    revision: int
    succeeded: bool
    ranges: list[Ranged]
    deleted: int
    """How many keys were deleted by its operations."""


class Event(NamedTuple):
    """One key that changed."""

    is_deletion: bool
    kv: KeyValue


class Watched(NamedTuple):
    """What a watch tells."""

    events: list[memoryview]
    """For ``read_event``: there may be ten thousand."""
    is_canceled: bool
    compacted: int
    """The revision up to which the history is gone, if the watch asked for such; else 0."""
    reason: str


class Lease(NamedTuple):
    """A lease."""

    id: int
    ttl_seconds: int
    """0 or less: it has ended."""


# Writing.


def _varint(number: int) -> bytes:
    number &= _64_BITS
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _NUMBER) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def range_end(prefix: bytes) -> bytes:
    """Return the end (exclusive) of the keys with a prefix that ends below 0xFF."""
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else b"\0"


def _interval(prefix: bytes) -> bytes:
    # An empty key with an empty end is no key: all keys begin at a zero byte.
    return _bytes(1, prefix or b"\0") + _bytes(2, range_end(prefix))


def get(key: bytes) -> bytes:
    """Ask for one key."""
    return _bytes(1, key)


def page(prefix: bytes, start: bytes, *, limit: int, revision: int) -> bytes:
    """Ask for keys with a prefix from ``start`` on. ``revision`` 0: as they are now."""
    asked = _bytes(1, start or b"\0") + _bytes(2, range_end(prefix)) + _number(3, limit)
    return asked + (_number(4, revision) if revision else b"")


def count(prefix: bytes, *, revision: int = 0) -> bytes:
    """Ask how many keys there are with a prefix. ``revision`` 0: now."""
    return _interval(prefix) + (_number(4, revision) if revision else b"") + _number(9, 1)


def newer(prefix: bytes, revision: int) -> bytes:
    """Ask for one key with a prefix that was written after ``revision``, without its value."""
    return _interval(prefix) + _number(3, 1) + _number(8, 1) + _number(10, revision + 1)


def op_range(asked: bytes) -> bytes:
    """Return the operation of a transaction that asks for a range."""
    return _bytes(1, asked)


def op_put(key: bytes, value: bytes, lease: int) -> bytes:
    """Return the operation that writes a key."""
    put = _bytes(1, key) + _bytes(2, value) + (_number(3, lease) if lease else b"")
    return _bytes(2, put)


def op_delete(key: bytes) -> bytes:
    """Return the operation that deletes a key."""
    return _bytes(3, _bytes(1, key))


def mod_is(key: bytes, revision: int) -> bytes:
    """Return the condition that a key was last written at ``revision``; 0: it is absent."""
    return _number(1, _EQUAL) + _number(2, _MOD_REVISION) + _bytes(3, key) + _number(6, revision)


def create_is(key: bytes, revision: int) -> bytes:
    """Return the condition that a key was created at ``revision``; 0: it is absent."""
    return _number(1, _EQUAL) + _number(2, _CREATE_REVISION) + _bytes(3, key) + _number(5, revision)


def transaction(
    conditions: Sequence[bytes], then: Sequence[bytes], otherwise: Sequence[bytes] = ()
) -> bytes:
    """Do ``then`` if all conditions hold, else ``otherwise``."""
    out = bytearray()
    for field, parts in enumerate((conditions, then, otherwise), 1):
        for part in parts:
            out += _bytes(field, part)
    return bytes(out)


def watch(prefix: bytes, revision: int) -> bytes:
    """Ask for all changes of keys with a prefix from ``revision`` on."""
    return _bytes(1, _interval(prefix) + _number(3, revision))


def grant(ttl_seconds: int) -> bytes:
    """Ask for a lease."""
    return _number(1, ttl_seconds)


def lease(number: int) -> bytes:
    """Name a lease: to keep it alive, or to end it."""
    return _number(1, number)


def compact(revision: int) -> bytes:
    """Forget history up to ``revision``."""
    return _number(1, revision)


def login(name: str, password: str) -> bytes:
    """Ask for a token."""
    return _bytes(1, name.encode()) + _bytes(2, password.encode())


# Reading.


def read_range(answer: bytes) -> Ranged:
    """Return what a range held. Raises MalformedMessage, as all that read."""
    return _ranged(memoryview(answer))


def read_transaction(answer: bytes) -> Transacted:
    """Return what became of a transaction."""
    revision, deleted, succeeded = 0, 0, False
    ranges: list[Ranged] = []
    for field, value in _fields(memoryview(answer)):
        if field == 1:
            revision = _revision(_message(value))
        elif field == 2:
            succeeded = bool(value)
        elif field == 3:
            for kind, part in _fields(_message(value)):
                if kind == 1:
                    ranges.append(_ranged(_message(part)))
                elif kind == 3:
                    deleted += sum(_int(each) for n, each in _fields(_message(part)) if n == 2)
    return Transacted(revision, succeeded, ranges, deleted)


def read_watched(answer: bytes) -> Watched:
    """Return what a watch tells."""
    is_canceled, compacted, reason = False, 0, ""
    events: list[memoryview] = []
    for field, value in _fields(memoryview(answer)):
        if field == 4:
            is_canceled = bool(value)
        elif field == 5:
            compacted = _int(value)
        elif field == 6:
            reason = bytes(_message(value)).decode(errors="replace")
        elif field == 11:
            events.append(_message(value))
    return Watched(events, is_canceled, compacted, reason)


def read_event(message: memoryview) -> Event:
    """Return an event that a watch has told."""
    is_deletion, kv = False, None
    for field, value in _fields(message):
        if field == 1:
            is_deletion = bool(value)
        elif field == 2:
            kv = _key_value(_message(value))
    if kv is None:
        raise MalformedMessage("an event of etcd has no key")
    return Event(is_deletion, kv)


def read_lease(answer: bytes) -> Lease:
    """Return the lease that was granted, or kept alive."""
    number = ttl_seconds = 0
    for field, value in _fields(memoryview(answer)):
        if field == 2:
            number = _int(value)
        elif field == 3:
            ttl_seconds = _int(value)
    return Lease(number, ttl_seconds)


def read_token(answer: bytes) -> str:
    """Return the token of a login. Raises MalformedMessage."""
    for field, value in _fields(memoryview(answer)):
        if field == 2:
            try:
                return bytes(_message(value)).decode()
            except UnicodeDecodeError as error:
                raise MalformedMessage("etcd's login token is no text") from error
    raise MalformedMessage("etcd's answer to a login has no token")


def _ranged(message: memoryview) -> Ranged:
    revision, has_more, counted = 0, False, 0
    found: list[KeyValue] = []
    for field, value in _fields(message):
        if field == 1:
            revision = _revision(_message(value))
        elif field == 2:
            found.append(_key_value(_message(value)))
        elif field == 3:
            has_more = bool(value)
        elif field == 4:
            counted = _int(value)
    return Ranged(revision, found, has_more, counted)


def _revision(header: memoryview) -> int:
    return next((_int(value) for field, value in _fields(header) if field == 3), 0)


def _key_value(message: memoryview) -> KeyValue:
    key = value = b""
    create_revision = mod_revision = of_lease = 0
    for field, found in _fields(message):
        if field == 1:
            key = bytes(_message(found))
        elif field == 2:
            create_revision = _int(found)
        elif field == 3:
            mod_revision = _int(found)
        elif field == 5:
            value = bytes(_message(found))
        elif field == 6:
            of_lease = _int(found)
    return KeyValue(key, value, create_revision, mod_revision, of_lease)


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise MalformedMessage("a number where etcd has bytes")
    return value


def _int(value: Value) -> int:
    """Return a number with its sign: etcd's are of 64 bits."""
    if not isinstance(value, int):
        raise MalformedMessage("bytes where etcd has a number")
    return value - (1 << 64) if value >> 63 else value


def _fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    position, end = 0, len(message)
    while position < end:
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == _NUMBER:
            number, position = _read_varint(message, position)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, position = _read_varint(message, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise MalformedMessage(f"a field of kind {kind} in an answer of etcd")
        if size > end - position:
            raise MalformedMessage(f"{size} bytes where {end - position} are left")
        yield tag >> 3, message[position : position + size]
        position += size


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _64_BITS, position
        shift += 7
    raise MalformedMessage("a number of an answer of etcd does not end")
