"""Names that are nearly right: what a message says that may have been meant.

Imports nothing: the search costs 2 ms of imports, which only a mistake pays.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def near_names(
    typed: str, known: "Iterable[str]", count: int = 1, *, likeness: float = 0.6
) -> list[str]:
    """Return up to ``count`` of the known names that are like what was typed, the nearest first.

    Capitals are as good as small letters. ``likeness``: 1 is the same.
    """
    from difflib import get_close_matches

    by_small = {each.lower(): each for each in known}
    return [by_small[each] for each in get_close_matches(typed.lower(), by_small, count, likeness)]


def did_you_mean(
    typed: str, known: "Iterable[str]", count: int = 1, *, likeness: float = 0.6
) -> str:
    """Return ``did you mean a or b?``, or nothing if no known name is near."""
    near = near_names(typed, known, count, likeness=likeness)
    return f"did you mean {' or '.join(near)}?" if near else ""
