"""Retention of one log at once, as ``Deletion`` does it with the flush in an executor."""

from ottla.log.upkeep import front


def retained_from(log, upper_offset, now_ms):
    """Roll and flush a log of which all is expired; return where it should start."""
    log.ensure_open()
    looking = front.expired_to(log, upper_offset, now_ms)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            end_offset = end.value
            break
    if end_offset > log.segments.active.base_offset:
        log.roll()
        log.flush()
    return max(end_offset, log.log_start_offset)
