"""The buffers of the kernel ``columns``: sets of them, made, handed out, and used again.

Owns their sizes and who may write to them when. A set that was filled leaves as views; it is
filled anew only when these are not used any more, which the views themselves tell; so columns that
are kept keep what they say. Used again, a set is in the processor's cache, and its pages
need not be asked of the system. Knows nothing of Arrow or of records.
"""

from array import array
from typing import NamedTuple

from ottla.records.columnar import columns as kernel
from ottla.records.columnar import scope as fields
from ottla.records.columnar.scope import HEADERS, KEY, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, VALUE

SETS_MAX = 3
"""Sets kept: the one being filled, and those of which the taker may still hold views."""
BYTE_BITS = 8


class BytesColumn(NamedTuple):
    """Values of any length. ``ends`` int32, one more than values; ``bits`` None: none is null."""

    ends: memoryview
    bits: memoryview | None
    data: memoryview
    nulls: int


class HeadersColumn(NamedTuple):
    """The headers of each row, null without any; ``ends`` count in ``names`` and ``contents``."""

    ends: memoryview
    bits: memoryview | None
    nulls: int
    total: int
    names: BytesColumn
    contents: BytesColumn
    names_plain: bool
    """Whether every name is ASCII; else some may be no UTF-8 at all."""


class Columns(NamedTuple):
    """Filled buffers, to be wrapped at once: a view stays as it is while something exports it.

    (Arrow's buffers do.) One that nothing exports any more is released when its set is used again.
    """

    rows: int
    key: BytesColumn
    value: BytesColumn
    offset: memoryview
    """int64, as ``timestamp`` (microseconds since 1970). Columns that are not wanted are empty."""
    timestamp: memoryview
    timestamp_bits: memoryview | None
    """None: none is null. One that microseconds in 64 bits cannot say is."""
    timestamp_nulls: int
    timestamp_type: memoryview
    headers: HeadersColumn | None


class BufferSet:
    """Buffers for some rows, and the kernel's view of them."""

    def __init__(
        self, wanted: int, scope: "array[int]", *, rows: int, data_bytes: int, headers: int
    ) -> None:
        self.rows = rows
        self.data_bytes = data_bytes
        self.headers = headers
        self._wanted = wanted
        self._scope = scope
        self._views: list[memoryview] = []
        self._has_zero_bits = False

        def ends(column: int, count: int) -> "array[int]":
            return array("i", bytes(4 * (count + 1) if wanted & column else 0))

        def bits(column: int, count: int) -> bytearray:
            return bytearray(b"\xff" * (count // BYTE_BITS + 1) if wanted & column else b"")

        def data(column: int) -> bytearray:
            return bytearray(data_bytes if wanted & column else 0)

        self._key_ends, self._key_bits, self._key_data = ends(KEY, rows), bits(KEY, rows), data(KEY)
        self._value_ends, self._value_bits = ends(VALUE, rows), bits(VALUE, rows)
        self._value_data = data(VALUE)
        self._offsets = array("q", bytes(8 * rows if wanted & OFFSET else 0))
        self._timestamps = array("q", bytes(8 * rows if wanted & TIMESTAMP else 0))
        self._timestamp_bits = bits(TIMESTAMP, rows)
        self._types = array("i", bytes(4 * rows if wanted & TIMESTAMP_TYPE else 0))
        self._header_ends, self._header_bits = ends(HEADERS, rows), bits(HEADERS, rows)
        self._name_ends, self._name_data = ends(HEADERS, headers), data(HEADERS)
        self._content_ends, self._content_bits = ends(HEADERS, headers), bits(HEADERS, headers + 1)
        self._content_data = data(HEADERS)
        buffers = (
            self._key_ends,
            self._key_bits,
            self._key_data,
            self._value_ends,
            self._value_bits,
            self._value_data,
            self._offsets,
            self._timestamps,
            self._timestamp_bits,
            self._types,
            self._header_ends,
            self._header_bits,
            self._name_ends,
            self._name_data,
            self._content_ends,
            self._content_bits,
            self._content_data,
        )
        self.filler = kernel.Filler(scope, buffers)

    def take(self) -> Columns:
        """Hand out what was filled, as scope counts it, and set scope's counts to nothing."""
        scope = self._scope
        rows = scope[fields.ROWS]
        filled = Columns(
            rows=rows,
            key=self._bytes(
                self._view(self._key_ends, rows + 1),
                self._bits(self._key_bits, rows, scope[fields.KEY_NULLS]),
                self._view(self._key_data, scope[fields.KEY_BYTES]),
                scope[fields.KEY_NULLS],
            ),
            value=self._bytes(
                self._view(self._value_ends, rows + 1),
                self._bits(self._value_bits, rows, scope[fields.VALUE_NULLS]),
                self._view(self._value_data, scope[fields.VALUE_BYTES]),
                scope[fields.VALUE_NULLS],
            ),
            offset=self._view(self._offsets, rows),
            timestamp=self._view(self._timestamps, rows),
            timestamp_bits=self._bits(self._timestamp_bits, rows, scope[fields.TIMESTAMP_NULLS]),
            timestamp_nulls=scope[fields.TIMESTAMP_NULLS],
            timestamp_type=self._view(self._types, rows),
            headers=self._headers(rows) if self._wanted & HEADERS else None,
        )
        scope[fields.ROWS : fields.NAMES_PLAIN + 1] = _NOTHING
        return filled

    def _headers(self, rows: int) -> HeadersColumn:
        scope = self._scope
        count = scope[fields.HEADER_COUNT]
        nulls = scope[fields.CONTENT_NULLS]
        return HeadersColumn(
            ends=self._view(self._header_ends, rows + 1),
            bits=self._bits(self._header_bits, rows, scope[fields.HEADER_NULLS]),
            nulls=scope[fields.HEADER_NULLS],
            total=count,
            names=self._bytes(
                self._view(self._name_ends, count + 1),
                None,
                self._view(self._name_data, scope[fields.NAME_BYTES]),
                0,
            ),
            contents=self._bytes(
                self._view(self._content_ends, count + 1),
                self._bits(self._content_bits, count, nulls),
                self._view(self._content_data, scope[fields.CONTENT_BYTES]),
                nulls,
            ),
            names_plain=bool(scope[fields.NAMES_PLAIN]),
        )

    def _bytes(
        self, ends: memoryview, bits: memoryview | None, data: memoryview, nulls: int
    ) -> BytesColumn:
        return BytesColumn(ends, bits, data, nulls)

    def _view(self, buffer: "bytearray | array[int]", count: int) -> memoryview:
        """Return the first ``count`` items, and remember that they were given away."""
        view = memoryview(buffer)[:count]
        self._views.append(view)
        return view

    def _bits(self, buffer: bytearray, count: int, nulls: int) -> memoryview | None:
        if not nulls:
            return None
        self._has_zero_bits = True
        return self._view(buffer, (count + BYTE_BITS - 1) // BYTE_BITS)

    def is_free(self) -> bool:
        """Tell whether nothing of what was given away is in use; then it may be filled anew."""
        while self._views:
            try:
                self._views[-1].release()
            except BufferError:
                return False
            self._views.pop()
        if self._has_zero_bits:
            for buffer in (
                self._key_bits,
                self._value_bits,
                self._timestamp_bits,
                self._header_bits,
            ):
                buffer[:] = b"\xff" * len(buffer)
            self._has_zero_bits = False
        return True


_NOTHING = array("q", [0] * (fields.NAMES_PLAIN - fields.ROWS) + [1])
"""The counts in scope for empty buffers: NAMES_PLAIN, the last of them, is true of no names."""


class BufferPool:
    """Hands out sets that are free; makes them as large as was said to be expected."""

    def __init__(self, wanted: int, scope: "array[int]") -> None:
        scope[fields.ROWS : fields.NAMES_PLAIN + 1] = _NOTHING
        self._wanted = wanted
        self._scope = scope
        self._sets: list[BufferSet] = []
        self._rows = 1
        self.data_bytes = 0
        """What the next set is to have of each kind, so far."""
        self._headers = 0

    def expect(self, rows: int, data_bytes: int) -> None:
        """Let the next sets hold at least so many rows and bytes."""
        self._rows = max(self._rows, rows)
        self.data_bytes = max(self.data_bytes, data_bytes)
        self._headers = max(self._headers, 2 * rows)

    def expect_record(self, record_bytes: int) -> None:
        """Say that coming sets must hold a record whose fields together have so many bytes."""
        self.data_bytes = max(self.data_bytes, record_bytes)
        self._headers = max(self._headers, record_bytes // 2 + 1)

    def free_set(self) -> BufferSet:
        """Return a set that is not in use; one that is free and too small gives way."""
        for index, one in enumerate(self._sets):
            if one.is_free():
                if self._suffices(one):
                    return one
                del self._sets[index]
                break
        made = BufferSet(
            self._wanted,
            self._scope,
            rows=self._rows,
            data_bytes=self.data_bytes,
            headers=self._headers,
        )
        self._sets = [*self._sets[-SETS_MAX + 1 :], made]
        return made

    def _suffices(self, one: BufferSet) -> bool:
        return (
            one.rows >= self._rows
            and one.data_bytes >= self.data_bytes
            and one.headers >= self._headers
        )
