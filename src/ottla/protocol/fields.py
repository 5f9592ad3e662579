"""The columns of message tables: wire type, versions, default.

Owns the plain data that ``schema`` writes and ``compiler`` reads; knows neither of them.
Source: the message schema rules of Kafka (KIP-482 for flexible versions and tagged fields).
"""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import NamedTuple, Self

FOREVER = 32767
"""The end of an open version range: versions are int16 on the wire."""


class Versions:
    """A range of versions, both ends included, written ``"3"``, ``"0-4"`` or ``"3+"``."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    @classmethod
    @cache  # The tables contain the same few ranges hundreds of times.
    def parse(cls, text: str) -> Self:
        """Return the range that ``text`` means; ``""`` is the empty range."""
        if not text:
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Versions):
            return NotImplemented
        return (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __repr__(self) -> str:
        return f"Versions({self.first}, {self.last})"

    def __str__(self) -> str:
        if self.last == FOREVER:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class Wire(Enum):
    """The wire types. The value is the ``struct`` format of a fixed-width one, else its name."""

    BOOLEAN = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UINT16 = "H"
    UINT32 = "I"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"


FIXED_WIDTH_BYTES = {
    Wire.BOOLEAN: 1,
    Wire.INT8: 1,
    Wire.INT16: 2,
    Wire.INT32: 4,
    Wire.INT64: 8,
    Wire.UINT16: 2,
    Wire.UINT32: 4,
    Wire.FLOAT64: 8,
    Wire.UUID: 16,
}


class Required(Enum):
    """Stands for the default of a field that has none and must be given to the constructor."""

    REQUIRED = "required"


class Field(NamedTuple):
    """One column of a table.

    ``of``: of an array, the Wire or Struct class of its elements; of a struct, its class. ``tag``:
    None for a positional field; a tagged field is tagged in all of its ``versions``.
    """

    wire: Wire
    versions: Versions
    nullable: Versions
    default: object
    of: object
    tag: int | None
