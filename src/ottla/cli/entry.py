"""The first lines of the ``ottla`` command: Ctrl-C ends it without a word from here on.

Imports what the interpreter has already, so that hardly a moment is left in which Ctrl-C prints a
traceback: that of the interpreter's own start, and of the installer's wrapper. ``main`` does the
rest.
"""

import os
import signal

TYPE_CHECKING = False  # typing itself costs 5 ms
if TYPE_CHECKING:
    from types import FrameType


def _leave(number: int, _: "FrameType | None") -> None:
    os._exit(128 + number)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)


def main() -> None:
    """Be the process: run its command line, and end it in the right way."""
    from ottla.cli.main import main as command

    command()
