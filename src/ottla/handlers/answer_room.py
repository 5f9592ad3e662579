"""How much one answer may hold, when what it names is larger than its name.

A request of some KB may name groups, partitions or transactions of which each is answered with
thousands of elements: hundreds of MB, built in memory. What is named again is answered once (Kafka
answers it again), and an answer has room for ``ottla.answer.max.elements``; what is named behind
that is refused with INVALID_REQUEST, by itself, so that the client may ask for it alone: what comes
first is answered whatever its size.
"""

from collections.abc import Sized

from ottla.errors import ErrorCode, KafkaError

BYTES_PER_ELEMENT = 256
"""Longer texts and bytes count as several elements."""


class AnswerRoom:
    """The room that is left in one answer."""

    __slots__ = ("_elements_max", "_left")

    def __init__(self, elements_max: int) -> None:
        self._elements_max = elements_max
        self._left = elements_max

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more will be taken, so that it need not be looked up."""
        return self._left <= 0

    @property
    def refusal(self) -> KafkaError:
        """Why something has no room."""
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the answer would hold more than ottla.answer.max.elements={self._elements_max}: "
            "ask for fewer at a time",
        )

    def take(self, elements: int, *, first_is_free: bool = True) -> bool:
        """Take room for so many elements if there is; the first to ask gets it if it is free."""
        is_free = first_is_free and self._left == self._elements_max
        if elements > self._left and not is_free:
            self._left = 0
            return False
        self._left -= max(elements, 1)
        return True


def weight(*parts: Sized | None) -> int:
    """Return for how many elements one counts that has these texts or bytes in it."""
    return 1 + sum(len(part) for part in parts if part) // BYTES_PER_ELEMENT
