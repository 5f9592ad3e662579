"""How wide the terminal is. Imports what the interpreter has already: the first words need it."""

import os
import sys

WIDTH_MIN = 40
WIDTH_UNKNOWN = 80


def width() -> int:
    """Return how many columns the terminal has (or $COLUMNS says); 80 if that is not known."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told):
        return max(int(told), WIDTH_MIN)
    for stream in (sys.stdout, sys.stderr):
        try:  # shutil's own costs a command 5 ms.
            columns = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            continue
        if columns:
            return max(columns, WIDTH_MIN)
    return WIDTH_UNKNOWN
