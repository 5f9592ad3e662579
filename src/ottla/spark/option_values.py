"""What the options of reading, writing and values have in common: how a value or a name is refused.

Knows no option.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ottla.spark.connection import PREFIX, OptionError

Parsed = TypeVar("Parsed")


def parsed(name: str, parse: Callable[[], Parsed]) -> Parsed:
    """Return what ``parse`` returns. Raises OptionError, naming the option, for its ValueError."""
    try:
        return parse()
    except ValueError as error:
        message = f"option {name}: {error}"
        raise OptionError(message) from error


def refuse_unknown(
    given: Iterable[str], listed: Sequence[str], where: str, *, also: Iterable[str] = ()
) -> None:
    """Raise OptionError unless each name is one of ``listed`` or ``also``, or a client setting.

    ``given`` are in lower case. The message says ``where``, and what was meant or is ``listed``.
    """
    known = {name.lower(): name for name in (*listed, *also)}
    for name in given:
        if name not in known and not name.startswith(PREFIX):
            near = [known[match] for match in difflib.get_close_matches(name, known, n=1)]
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(listed)}"
            message = f"unknown option {name!r} {where}: {meant}"
            raise OptionError(message)
