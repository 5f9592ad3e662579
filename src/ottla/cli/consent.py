"""Asks before something is destroyed: ``--yes``, ``--dry-run``, and the question itself."""

import sys

from ottla.cli.arguments import Parser
from ottla.cli.failure import Exit, Failure
from ottla.cli.interruption import leaving
from ottla.cli.output import printable


def add_consent_options(parser: Parser) -> None:
    """Declare what every command takes that may destroy something."""
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")


def ask(question: str) -> None:
    """Return if the person agrees. Raises Failure otherwise, and when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise Failure("not done: nobody to ask", fix="add --yes", code=Exit.USAGE)
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    with leaving():
        answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("not done")
