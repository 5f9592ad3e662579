"""What a micro-batch is known by, as options, tasks and the driver hand it on. Pure.

Imported on the planner's side: the standard library only. ``marker`` writes it down and compares.
"""

from enum import Enum
from typing import NamedTuple


class BatchOf(NamedTuple):
    """Which micro-batch rows belong to."""

    query_id: str
    """The id of the query, or the option txnAppId."""
    batch_id: int
    run_id: str | None = None
    """Changes with each start of the query; None: not known."""


class Content(NamedTuple):
    """What rows hold, whatever their order and their division into tasks."""

    rows: int
    sum: int
    """The sum of the rows' checksums, modulo 2 ** 64."""


NOTHING = Content(0, 0)


class Step(Enum):
    """What to do with a batch."""

    WRITE = "write"
    SKIP = "skip"
