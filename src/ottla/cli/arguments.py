"""The command line's grammar, on argparse: how commands and their shared options are declared.

Owns the parser's manners (short errors, close names) and what every command that talks to a cluster
takes. Argparse because it is there and costs 10 ms: Typer brings pydantic into each process since
0.29, a quarter of a second before the first word.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn, TypeAlias

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = "1s"
USAGE = 2

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no other name
Command = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where to read more."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", Help)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Print the complaint and exit with the code of usage errors."""
        sys.stderr.write(f"error: {message}\n  fix: {self.prog} --help\n")
        sys.exit(USAGE)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help in two columns that fits options with values."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=100)


def add_command(commands: Commands, name: str, about: str, command: Command) -> Parser:
    """Declare a command; its arguments are added to what is returned."""
    parser = commands.add_parser(name, help=about, description=about)
    parser.set_defaults(command=command)
    return parser


def add_client_options(parser: Parser) -> None:
    """Declare what every command takes that talks to a cluster."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        metavar="HOST:PORT,...",
        default=os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
        help=f"its address; else $OTTLA_BOOTSTRAP, else {DEFAULT_BOOTSTRAP}",
    )
    group.add_argument(
        "-X",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a client setting, e.g. request.timeout.ms=5s",
    )
    group.add_argument(
        "--command-config", metavar="FILE", help="a properties file of client settings"
    )
    group.add_argument(
        "--timeout",
        default=DEFAULT_TIMEOUT,
        metavar="TIME",
        help=f"how long to try to connect; {DEFAULT_TIMEOUT}",
    )


def add_output_option(parser: Parser, *choices: str) -> None:
    """Declare -o."""
    parser.add_argument(
        "-o", "--output", choices=choices, help="how to print; else what suits the terminal"
    )


def at_least_one(text: str) -> int:
    """Return a count >= 1, for argparse's ``type``."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 1 or more")
    return int(text)
