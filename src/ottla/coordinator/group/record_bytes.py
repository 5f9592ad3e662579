"""Reads and writes what all records of ``__consumer_offsets`` have in common. Pure.

    key    = type int16, then the table of that type
    value  = version int16, then the table in that version; no value: the key is deleted

Each room has the tables of its own types. See docs/formats.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class

from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.errors import ErrorCode, KafkaError

INT16 = Struct(">h")


# Writing.


def written(make: Callable[[], CoordinatorRecord]) -> CoordinatorRecord:
    """Return the record; raise KafkaError (UNKNOWN_SERVER_ERROR) if a text is too long for it.

    The texts of a request are short enough, but bytes that are no UTF-8 become longer.
    """
    try:
        return make()
    except StructError as error:
        raise too_long() from error


def too_long() -> KafkaError:
    """Return the error of a text that is too long to store."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a text is too long to store")


# Reading.


def key_type(stored: StoredRecord) -> int:
    """Return the type of a record's key. Raises KafkaError (CORRUPT_MESSAGE)."""
    if len(stored.key) < INT16.size:
        raise senseless(stored, "a key without a type")
    number: int = INT16.unpack_from(stored.key)[0]
    return number


def value_of(stored: StoredRecord, versions_max: int) -> tuple[memoryview, int]:
    """Return a record's value and its version. Raises KafkaError (CORRUPT_MESSAGE)."""
    data = memoryview(stored.value or b"")
    version: int = INT16.unpack_from(data)[0] if len(data) >= INT16.size else -1
    if not 0 <= version <= versions_max:
        raise senseless(stored, f"a value of version {version}")
    return data, version


def senseless(stored: StoredRecord, why: str) -> KafkaError:
    """Return the error of a record that makes no sense."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"offset {stored.offset}: {why}")
