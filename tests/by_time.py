"""Look a record up by its time as ListOffsets does, but at once and on this thread."""

from ottla.log.log import Log
from ottla.log.results import TimestampedOffset
from ottla.log.segment.time_lookup import run_here


def offset_for_timestamp(log: Log, timestamp: int, *, upper_offset: int | None = None):
    """Return the first record at or after the log start whose timestamp is >= ``timestamp``.

    None when there is none, or it is not below ``upper_offset``.
    """
    found = run_here(log.search_timestamp(timestamp))
    is_below = found and (upper_offset is None or found.offset < upper_offset)
    return log.place_of(found) if found and is_below else None


def offset_of_max_timestamp(log: Log) -> TimestampedOffset | None:
    """Return the first record with the largest timestamp of all; None for no timestamps."""
    found = run_here(log.search_timestamp(None))
    return found and log.place_of(found)
