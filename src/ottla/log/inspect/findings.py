"""What is noticed about a data directory, in words that tell a person what to do.

Plain values, made by ``log.verify`` and ``log.examine``, shown by the command line.
"""

from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """How much a finding matters."""

    ERROR = "error"
    """Records are lost or cannot be served until somebody acts."""
    WARNING = "warning"
    """Nothing is lost, but somebody should know."""
    NOTE = "note"
    """As it should be, and worth a word."""


class Finding(NamedTuple):
    """One thing noticed."""

    severity: Severity
    path: str
    what: str
    why: str = ""
    fix: str = ""
    position: int | None = None
    """The byte in the file, where there is one."""
