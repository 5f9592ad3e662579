"""What the kernel ``avro`` and those around it call the fields of its tables, and its findings.

A schema is a table of nodes, what is filled a table of columns, both made by ``avro_columns``.

Columns (a slot per row, or per item of the list that the column is in; bits: 1 where there is a
value; values in units of their size):

    NULL  nothing, not even bits      INT, ENUM, FLOAT                         4 bytes
    BOOLEAN  bits                     LONG, MILLIS (as microseconds), DOUBLE   8 bytes
    RECORD, UNION  nothing            DECIMAL, FIXED_DECIMAL, low word first  16 bytes
    OCTETS, FIXED  ends int32, and the data apart         ARRAY, MAP  ends int32

Grammar of a value, by the kind of its node (varint: zigzag, up to 5 bytes for an int and 10 for a
long, what is beyond 32 or 64 bits falls away, as in Java):

    value   = [magic 0, schema id: 4 bytes] datum            with HEADER_BYTES, Confluent's framing
    datum   = [branch: int] content                          branch: where null is another one
    content = nothing (NULL) | 1 byte (BOOLEAN) | int (INT, ENUM) | long (LONG, MILLIS)
            | 4 or 8 bytes (FLOAT, DOUBLE) | length: long, bytes (OCTETS) | bytes (FIXED)
            | length: long, number (DECIMAL) | number (FIXED_DECIMAL)      number: big-endian
            | datum ... (RECORD) | branch: int, datum (UNION)
            | {count: long [size: long, where count is negative], item ...}, 0   (ARRAY, MAP)
    item    = datum (ARRAY) | key: OCTETS, datum (MAP)

Source: Apache Arrow's columnar format; Apache Avro 1.12 specification, "Binary Encoding".
"""

# Kinds of nodes.
NULL, BOOLEAN, INT, ENUM, LONG, MILLIS, FLOAT, DOUBLE, OCTETS, FIXED = range(10)
DECIMAL, FIXED_DECIMAL, RECORD, UNION, ARRAY, MAP = range(10, 16)

# Fields of a node, in an array of int32; nodes and columns have the same numbers.
KIND, FIRST, NEXT = 0, 1, 2
"""FIRST child and NEXT sibling; -1 without. A map has its keys, then its values, as children."""
NULL_BRANCH, VALUE_BRANCH = 3, 4
"""Where VALUE_BRANCH is not -1 a branch comes first; NULL_BRANCH may be -1."""
SIZE = 5
"""FIXED, FIXED_DECIMAL: bytes. ENUM: symbols. UNION: branches. ARRAY, MAP: the least bytes of an
item."""
MORE = 6
"""UNION: where its branches start in the table of branches, each a node, or -1 for null. Decimals:
where the bound starts in the table of bounds: high, low; magnitudes are below it."""
SKIPPED = 7
"""1: a field of the outermost record that is no column; it is read for what comes behind it."""
NODE_SIZE = 8

# Fields of a column, in an array of int64.
SLOTS, NULLS = 0, 1
USED = 2
"""Bytes of OCTETS and FIXED, items of ARRAY and MAP; ``measure`` counts them, then ``fill``."""
SLOTS_MAX, USED_MAX = 3, 4
"""What there is room for, and ``fill`` must not pass."""
BITS_AT, VALUES_AT, DATA_AT = 5, 6, 7
"""Where the column begins in the buffer: in bytes, in units of its values, in bytes."""
DOUBLES = 8
"""MAP: 1 when a key is there twice in one map, or there are too many in one to tell."""
COLUMN_SIZE = 9

# What a value is found to be.
GOOD, ABSENT = 0, 1
TRUNCATED, BAD_VARINT, BAD_LENGTH, BAD_BRANCH, BAD_SYMBOL, BAD_NUMBER = range(2, 8)
BAD_TIME, TOO_MANY_ITEMS, BAD_MAGIC, OTHER_SCHEMA_ID, NO_ROOM = range(8, 13)
REASONS: dict[int, str] = {
    TRUNCATED: "it ends inside a field",
    BAD_VARINT: "a varint is longer than its type",
    BAD_LENGTH: "a length is negative or more than there are bytes",
    BAD_BRANCH: "a union has no such branch",
    BAD_SYMBOL: "an enum has no such symbol",
    BAD_NUMBER: "a decimal does not fit its precision, or has no bytes",
    BAD_TIME: "a timestamp is beyond what microseconds in 64 bits can say",
    TOO_MANY_ITEMS: "an array or a map has more items than the bytes can hold",
    BAD_MAGIC: "it does not begin with the byte 0 and a schema id",
    OTHER_SCHEMA_ID: "it has another schema id",
    NO_ROOM: "it changed while it was read",
}
"""What each status above ABSENT means."""

BARE_ITEMS_MAX = 1024
"""The most items of one value that take no bytes, such as nulls: few bytes are not many items."""
