"""The entry point: finds the command that was typed and imports nothing of the others.

Owns the list of commands and the first words a newcomer reads. Errors become words and exit codes
in ``failure``.
"""

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ottla import __version__

if TYPE_CHECKING:
    from argparse import Namespace

COMMANDS = {
    "serve": "ottla.cli.serve",
    "topic": "ottla.cli.topic",
    "produce": "ottla.cli.produce",
    "consume": "ottla.cli.consume",
    "group": "ottla.cli.group",
    "txn": "ottla.cli.txn",
    "pipeline": "ottla.cli.pipeline",
    "log": "ottla.cli.log",
    "doctor": "ottla.cli.doctor",
    "version": "ottla.cli.version",
}

FIRST_WORDS = f"""\
ottla {__version__}: a Kafka-compatible streaming log

  ottla serve                             start a broker on 127.0.0.1:9092, data in ./ottla-data
  ottla topic create orders -p 3          make a topic of three partitions
  ottla produce orders                    send each line of standard input as a record
  ottla consume orders --from earliest    read them back; --tail to wait for more
  ottla topic list                        what topics there are (-o json for scripts)
  ottla group describe billing            how far a consumer group is, and who is in it
  ottla pipeline init orders              a pipeline of Spark: topics, SQL, tables
  ottla doctor ottla-data                 how a data directory is doing; ottla log verify reads all
  ottla COMMAND --help                    every option of a command
"""


_PLACES = ("--from", "--to")
"""Options whose value may begin with a dash."""


def main() -> None:
    """Run the command line of this process and exit."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.stdout.write(FIRST_WORDS)
        return
    # Imports allocate much and drop little: collecting on the way costs a fifth of a start.
    gc.disable()
    try:
        chosen = _parse(arguments)
    finally:
        gc.enable()
    chosen.command(chosen)


def _parse(arguments: list[str]) -> "Namespace":
    """Import the command that was typed, and return its arguments. Exits when they are wrong."""
    from ottla.cli.arguments import Parser

    parser = Parser(prog="ottla", description="A Kafka-compatible streaming log.")
    parser.add_argument("-V", "--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    typed = arguments[0]
    if typed not in COMMANDS and not typed.startswith("-"):
        parser.error(_unknown(typed))
    for name in (typed,) if typed in COMMANDS else COMMANDS:
        import_module(COMMANDS[name]).register(commands)
    return parser.parse_args(_join_places(arguments))


def _join_places(arguments: list[str]) -> list[str]:
    """Return ``--from -5m`` as ``--from=-5m``: argparse would take the place for an option."""
    joined: list[str] = []
    for each in arguments:
        if joined and joined[-1] in _PLACES and each.startswith("-"):
            joined[-1] += f"={each}"
        else:
            joined.append(each)
    return joined


def _unknown(typed: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(typed, COMMANDS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
    return f"no command {typed}; {hint}"
