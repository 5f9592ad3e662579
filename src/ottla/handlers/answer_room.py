"""Limits how many elements one answer may hold.

A request of some KB may name many groups, partitions or transactions, and the answer to each may
have thousands of elements: hundreds of MB, built in memory. So a thing that is named twice is
answered once (Kafka answers it twice), and an answer has room for ``ottla.answer.max.elements``.
Each thing that has no room is refused by itself with INVALID_REQUEST. The first thing is answered
whatever its size, so a client can ask for a large one alone.
"""

from collections.abc import Sized

from ottla.errors import ErrorCode, KafkaError

BYTES_PER_ELEMENT = 256
"""A text or bytes count as one more element for every so many bytes."""


class AnswerRoom:
    """The room that is left in one answer."""

    __slots__ = ("_elements_max", "_left")

    def __init__(self, elements_max: int) -> None:
        self._elements_max = elements_max
        self._left = elements_max

    @property
    def is_full(self) -> bool:
        """Whether nothing more has room, so that it need not be looked up."""
        return self._left <= 0

    @property
    def refusal(self) -> KafkaError:
        """The error for a thing that has no room."""
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the answer would hold more than ottla.answer.max.elements={self._elements_max}: "
            "ask for fewer at a time",
        )

    def take(self, elements: int, *, first_is_free: bool = True) -> bool:
        """Take room for so many elements. Returns False when there is too little.

        ``first_is_free``: the first call succeeds whatever its size.
        """
        is_free = first_is_free and self._left == self._elements_max
        if elements > self._left and not is_free:
            self._left = 0
            return False
        self._left -= max(elements, 1)
        return True


def weight(*parts: Sized | None) -> int:
    """Return for how many elements a thing with these texts or bytes counts; at least 1."""
    return 1 + sum(len(part) for part in parts if part) // BYTES_PER_ELEMENT
