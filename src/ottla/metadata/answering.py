"""What clients are told while the metadata store does not answer, or not for sure.

Whoever serves a request by the store wraps what asks it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.store import Ambiguous, Unavailable


@contextmanager
def store_answers() -> Iterator[None]:
    """Raise KafkaError REQUEST_TIMED_OUT for Unavailable and Ambiguous."""
    try:
        yield
    except (Unavailable, Ambiguous) as error:
        raise unsure(error) from error


def unsure(error: Exception) -> KafkaError:
    """Return what a client is told."""
    why = f"the metadata store does not answer for sure: {error}"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
