"""What ``cleaning`` is told, and tells: the fields of its scope, and why its loops end.

One array of SCOPE_SIZE int64 goes from call to call. The cleaner sets it up, the kernel moves it
on. This file knows neither.
"""

SLOT_BYTES = 24
"""The size of a slot of the offset map."""
GROWTH_BYTES = 10
"""How much longer a record may become by another base timestamp."""

# Why a loop ended.
DONE = 0
"""Nothing is left but, perhaps, the beginning of a batch."""
SPECIAL = 1
"""The next batch is compressed, transactional or a marker: the caller handles it."""
FULL = 2
"""The map takes no further key, or the output no further batch; that batch was not handled."""
CORRUPT = 3
"""The next bytes are no whole and sound batch, or its records do not fit it."""

# The fields of scope. The caller sets these once.
SEED_LOW, SEED_HIGH = 0, 1
CAPACITY = 2
"""How many keys the map takes."""
FIRST_OFFSET = 3
"""Records below it are not mapped."""
LATEST_OFFSET = 4
"""All records above it stay."""
NOW_MS = 5
"""Tombstones of a batch go when its delete horizon is not after this."""
HORIZON_MS = 6
"""The delete horizon of batches that get one."""
# These move on.
USED = 7
"""How many keys are in the map."""
POSITION = 8
"""Where the next batch stands in the chunk."""
OUT_POSITION = 9
"""Where it goes in the output."""
NEXT_OFFSET = 10
"""The offset behind the last batch that was mapped."""
# ``filter_records`` sets these for one batch.
KEPT_COUNT, KEPT_TOMBSTONES = 11, 12
DELTA_MAX = 13
"""The largest timestamp delta of a record that stays, shifted."""
# The caller tells it these.
SHIFT = 14
"""Added to every timestamp delta."""
KEEPS_TOMBSTONES = 15
"""1: tombstones stay; 0: they go."""
# The record that the kernel looks at.
TIMESTAMP_DELTA, OFFSET_DELTA = 16, 17
OFFSET_AT = 18
"""Where its offset delta stands."""
KEY_AT, KEY_LENGTH, VALUE_LENGTH = 19, 20, 21
"""A negative length means null."""
SCOPE_SIZE = 22
