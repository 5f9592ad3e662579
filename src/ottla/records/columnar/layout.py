"""Columns in Arrow's layout, as the kernels take them and look into them.

The columns hold no Arrow objects, only buffers:

    validity   bit i of the bytes, the lowest bit first: 1 when row i is not null; none: no nulls
    octets     int32 offsets, one more than rows: row i is data[offsets[i] : offsets[i + 1]]
    headers    int32 offsets into two columns of octets, names (never null) and values

Compiled kernels have the functions from layout.pxd, which says the same in C: whoever changes one
changes the other (tests run each kernel in both forms). Source: Apache Arrow's columnar format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.records.numbers import Octets as Bytes

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from typing_extensions import Buffer


class Octets(NamedTuple):
    """A column of binary or string; ``bit`` is where in ``validity`` the first row's bit is."""

    offsets: memoryview
    """Format "i", of as many rows and one more."""
    data: Buffer
    validity: Buffer | None = None
    bit: int = 0


class Numbers(NamedTuple):
    """A column of integers: of 32 bits, format "i", or of 64, format "q"."""

    values: memoryview
    validity: Buffer | None = None
    bit: int = 0


class Headers(NamedTuple):
    """A column of lists of headers."""

    offsets: memoryview
    """Format "i", of as many rows and one more; into ``names`` and ``values``."""
    names: Octets
    values: Octets
    validity: Buffer | None = None
    bit: int = 0


def ascend(offsets: Sequence[int], count: int, end: int) -> bool:
    """Tell whether the offsets of ``count`` rows do not fall and stay within ``[0, end]``.

    Offsets behind the first ``count + 1`` are ignored; the caller sees that there are so many.
    """
    if count < 0:
        return False
    falls = any(offsets[at] < offsets[at - 1] for at in range(1, count + 1))
    return not falls and offsets[0] >= 0 and offsets[count] <= end


def check_validity(size: int, bit: int, count: int) -> None:
    """Raise ValueError unless ``size`` bytes hold ``count`` bits from ``bit`` on."""
    if bit < 0 or (bit + count + 7) // 8 > size:
        raise ValueError("a column's validity is shorter than its rows")


def is_valid(validity: Bytes, bit: int) -> bool:
    """Tell whether the row with this bit is not null."""
    return bool((validity[bit >> 3] >> (bit & 7)) & 1)


def clear(bits: bytearray | memoryview, at: int) -> None:
    """Make a row null."""
    bits[at >> 3] &= ~(1 << (at & 7)) & 0xFF


def put_end(
    ends: MutableSequence[int], bits: bytearray | memoryview, row: int, end: int, size: int
) -> int:
    """Note that the row has ``size`` bytes behind ``end``, or is null; return where it ends."""
    if size < 0:
        clear(bits, row)
    else:
        end += size
    ends[row + 1] = end
    return end
