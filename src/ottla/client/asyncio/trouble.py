"""Who is told that calls are tried again: a command says so to the person who waits.

Below the other modules of the room; knows no connection.
"""

from ottla.errors import OttlaError


class Trouble:
    """Told of each try that failed and is repeated, and when one succeeds again. Says nothing."""

    def retrying(self, error: OttlaError) -> None:
        """Hear that a call failed with ``error``, and is tried again."""

    def answered(self) -> None:
        """Hear that a call, perhaps one that was retried, has its answer."""


QUIET = Trouble()
