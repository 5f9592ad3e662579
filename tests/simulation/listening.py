"""Hears what the broker says of its own faults: what it logs with a traceback is one.

What a disk, a peer or a client did is told in a line. An exception that nobody thought of is logged
with its traceback, whatever it does then: a connection is closed, a chore begins again later. No
client could tell that from a cut.
"""

import logging
from contextlib import contextmanager

from ottla.env.faulty_disk import DiskKilled


class _Ear(logging.Handler):
    def __init__(self, told):
        super().__init__(logging.ERROR)
        self._told = told

    def emit(self, record):
        error = record.exc_info and record.exc_info[1]
        if error is not None and not isinstance(error, DiskKilled):
            self._told(record.getMessage(), error)


@contextmanager
def listening(told):
    """Call ``told(text, error)`` for each such fault during a ``with`` block; print nothing."""
    logger, ear = logging.getLogger("ottla"), _Ear(told)
    disabled, propagates = logging.root.manager.disable, logger.propagate
    logging.disable(logging.WARNING)
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.propagate = propagates
        logging.disable(disabled)  # Other tests of this process look at what is logged.
