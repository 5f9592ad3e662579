"""What ``columns`` is told, and tells: the fields of its scope, and why it stopped.

One array of SCOPE_SIZE int64 goes from call to call; the decoder sets it up, the kernel moves it
on. Knows neither.
"""

# Columns, to be added up in scope[WANTED].
KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = 1, 2, 4, 8, 16, 32

# Why ``fill`` stopped.
DATA_END = 0
"""No whole batch is left."""
RANGE_END = 1
"""The next batch begins at or behind END_OFFSET."""
FULL = 2
"""The next record does not fit, or TARGET_BYTES are reached; call again with room."""
SPECIAL = 3
"""The caller handles the batch at POSITION: it is compressed, or of a transaction while JUDGE is
set. Its header is in scope and its sum was right; call ``fill_records``, or move POSITION by
SIZE_BYTES."""
OLD = 4
"""The caller handles the entry of a message set at POSITION, SIZE_BYTES long and unchecked."""
RECORDS_END = 5
"""``fill_records`` has handled all of them."""

# The fields of scope. Set by the caller; those marked "too" are brought up to date.
WANTED = 0
"""The columns, added up."""
START_OFFSET, END_OFFSET = 1, 2
"""Records with START_OFFSET <= offset < END_OFFSET are rows."""
JUDGE = 3
"""1: batches of transactions are the caller's; 0: markers are passed over, the rest are rows."""
ROWS_MAX, TARGET_BYTES = 4, 5
"""FULL from either on; bytes are those of keys, values and headers."""
POSITION = 6
"""Where the next batch begins in the data; too."""
NEXT_OFFSET = 7
"""Where to read on: behind the last batch that was handled; too."""
# The batch under way.
AT, LEFT = 8, 9
"""Where its next record stands, and how many there are still (0: none is under way); too."""
RECORDS_STOP = 10
"""Where its records end."""
SIZE_BYTES = 11
"""The size of the whole batch or entry; 0: none is under way, or the decoder passes it over."""
BASE_OFFSET, LAST_DELTA, ATTRIBUTES, PRODUCER_ID, COUNT = 12, 13, 14, 15, 16
BASE_TIMESTAMP, MAX_TIMESTAMP = 17, 18
# What the buffers hold; too.
ROWS = 19
KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS = 20, 21, 22, 23
HEADER_COUNT, HEADER_NULLS = 24, 25
"""All headers of all rows, and the rows without any."""
NAME_BYTES, CONTENT_BYTES, CONTENT_NULLS = 26, 27, 28
TIMESTAMP_NULLS = 29
"""Timestamps that 64 bits of microseconds cannot say: a producer took another unit for ms."""
NAMES_PLAIN = 30
"""1 while every header's name is ASCII; else the caller has to see whether it is UTF-8."""
RECORD_BYTES = 31
"""At FULL: no field of the record that did not fit has more bytes, nor has it more headers."""
SCOPE_SIZE = 32

NO_TIME_BIT = 0x10000
"""Beyond a batch's attributes: what was of format 0, which has no timestamps."""

# What is wrong with a batch: the negative results, the first two as ``numbers.varint_at`` has them.
TRUNCATED, BAD_VARINT, BAD_SUM, BAD_SIZE, BAD_OFFSETS, BAD_COUNT = range(
    -1, -7, -1
)  # the first two as ``numbers.varint_at`` has them
BAD_LENGTH, BAD_DELTA, BAD_FIELD, BAD_HEADER_COUNT, BAD_RECORD_END, BAD_END = range(-7, -13, -1)
REASONS: dict[int, str] = {
    BAD_SUM: "wrong CRC32C",
    BAD_SIZE: "its length or its magic is impossible",
    BAD_OFFSETS: "its offsets are impossible",
    BAD_COUNT: "it cannot hold as many records as it says",
    TRUNCATED: "a record ends inside a field",
    BAD_VARINT: "a varint is longer than its type",
    BAD_LENGTH: "a record is longer than the batch",
    BAD_DELTA: "a record's offset lies outside of the batch",
    BAD_FIELD: "a key, value or header is longer than its record, or a header has no name",
    BAD_HEADER_COUNT: "a header count is negative or more than the record can hold",
    BAD_RECORD_END: "a record is longer than its fields",
    BAD_END: "bytes follow the last record",
}
"""What each negative result means; the batch is the one with BASE_OFFSET in scope."""
