"""What the options of ``ottla cat`` mean that several of its modes have."""

import os
from argparse import Namespace

from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note


def say(options: Namespace, text: str) -> None:
    """Print a note as kcat does, unless -q."""
    if not options.flag_q:
        note(f"% {text}")


def partition_of(options: Namespace) -> int | None:
    """Return -p; None: any. Raises Failure."""
    text = options.value_p
    if text is None or text == "-1":
        return None
    if not (text.isascii() and text.isdigit()):
        raise Failure(f"-p {text!r} is no number of a partition", code=Exit.USAGE)
    return int(text)


def delimiter(option: str, text: str) -> bytes:
    """Return the bytes of -D or -K. Raises Failure."""
    from ottla.cli.cat_format import parse_delimiter

    try:
        return parse_delimiter(os.fsencode(text))
    except ValueError as error:
        raise Failure(f"{option}: {error}", code=Exit.USAGE) from error
