"""Who is told that calls are tried again: a command says so to the person who waits.

Below the other modules of the room; knows no connection.
"""

from ottla.errors import OttlaError


class Trouble:
    """Told of each try that failed and is repeated, and when one succeeds again. Says nothing.

    ``of``: who tries, any object. What succeeds for one is no news of another's trouble.
    """

    def retrying(self, error: OttlaError, of: object = None) -> None:
        """Hear that a call failed with ``error``, and is tried again."""

    def answered(self, of: object = None) -> None:
        """Hear that a call, perhaps one that was retried, has its answer."""

    def gave_up(self, of: object = None) -> None:
        """Hear that a call is not tried any more."""


QUIET = Trouble()
