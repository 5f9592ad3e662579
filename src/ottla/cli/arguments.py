"""The command line's grammar, on argparse: how commands and their shared options are declared.

Owns the parser's manners (short errors, close names) and what every command that talks to a cluster
takes. Argparse because it is there and costs 10 ms: Typer brings pydantic into each process since
0.29, a quarter of a second before the first word.
"""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from ottla.cli.near import did_you_mean
from ottla.cli.terminal import width

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = "1s"
HELP_WIDTH_MIN, HELP_WIDTH_MAX = 60, 120

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no other name
Command = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where to read more."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", Help)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)  # type: ignore[arg-type]

    def error(self, message: str, *, fix: str = "") -> NoReturn:
        """Print the complaint and exit with the code of usage errors.

        A command that only gathers others, typed alone, asks for help. ``fix``: what to do; else
        where to read more.
        """
        if message == _NO_COMMAND:
            self.print_help()
            sys.exit(0)
        from ottla.cli.failure import Exit, Failure, leave, say_as

        say_as(_form_of(sys.argv[1:]))
        # argparse begins with the name of the class.
        what = message.removeprefix("argument ")
        leave(Failure(what, fix=fix or f"{self.prog} --help", code=Exit.USAGE))

    def refuse(self, unknown: list[str]) -> NoReturn:
        """Exit, naming the options that may have been meant.

        ``unknown`` are options that there are not, and what stands behind them; or words too many.
        """
        options = [each.partition("=")[0] for each in unknown if len(each) > 1 and each[0] == "-"]
        if not options:
            self.error(f"too many words: {' '.join(unknown)}")
        from ottla.cli.kafka_names import instead_of

        for each in options:
            told = instead_of(self.prog.split()[1:], each, unknown)
            if told:
                self.error(f"{each} is an option of Kafka's scripts", fix=told)
        known = [each for each in self._option_string_actions if each.startswith("--")]
        hints = [did_you_mean(each, known) if each[:2] == "--" else "" for each in options]
        if len(options) == 1:
            self.error(f"unknown option {options[0]}{'; ' if hints[0] else ''}{hints[0]}")
        said = [
            f"{each} ({hint})" if hint else each for each, hint in zip(options, hints, strict=True)
        ]
        self.error(f"unknown options {', '.join(said)}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse what is no choice, in words of one line, with the near ones."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(each) for each in action.choices]
        hint = did_you_mean(str(value), choices) or f"there are {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            self.error(f"no command {value}; {hint}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of them; {hint}")


def _form_of(arguments: list[str]) -> str | None:
    """Return what follows -o in a command line that cannot be parsed; None: nothing does."""
    following = iter(arguments)
    for each in following:
        if each in ("-o", "--output"):
            return next(following, None)
        for option in ("--output=", "-o"):
            if each.startswith(option):
                return each.removeprefix(option)
    return None


_NO_COMMAND = "the following arguments are required: COMMAND"


class Help(argparse.RawDescriptionHelpFormatter):
    """Help in two columns that fits options with values, and the terminal."""

    def __init__(self, prog: str) -> None:
        columns = min(max(width(), HELP_WIDTH_MIN), HELP_WIDTH_MAX)
        super().__init__(prog, max_help_position=min(34, columns // 3), width=columns - 1)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap what a command says of itself, line by line."""
        from textwrap import fill

        lines = text.splitlines()
        return "\n".join(
            fill(line, width, initial_indent=indent, subsequent_indent=indent) for line in lines
        )

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return ``-o, --output WHAT``: what follows is said once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def add_group(commands: Commands, name: str, about: str) -> Commands:
    """Declare a command that has commands of its own; they are added to what is returned."""
    return commands.add_parser(name, help=about, description=about).add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )


def add_command(commands: Commands, name: str, about: str, command: Command) -> Parser:
    """Declare a command; its arguments are added to what is returned."""
    parser = commands.add_parser(name, help=about, description=about)
    parser.set_defaults(command=command, parser=parser)
    return parser


def later(module: str, name: str) -> Command:
    """Return the command ``name`` of a module that is imported when it runs, and no sooner."""

    def command(options: argparse.Namespace) -> None:
        from importlib import import_module

        getattr(import_module(module), name)(options)

    return command


def add_client_options(parser: Parser) -> None:
    """Declare what every command takes that talks to a cluster."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        type=not_empty,
        metavar="HOST:PORT,...",
        help=f"its address; else what settings say, $OTTLA_BOOTSTRAP, or {DEFAULT_BOOTSTRAP}",
    )
    group.add_argument(
        "-X",
        "--command-property",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a client setting, e.g. request.timeout.ms=5s",
    )
    group.add_argument(
        "--command-config",
        type=not_empty,
        metavar="FILE",
        help="a properties file of client settings",
    )
    group.add_argument(
        "--profile",
        type=not_empty,
        metavar="NAME",
        help="settings by name: ottla profile; $OTTLA_PROFILE",
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
        "-o",
        "--output",
        choices=choices,
        metavar="FORMAT",
        help=f"{', '.join(choices)}; else what suits the terminal",
    )
    if "tsv" in choices:
        parser.add_argument("--no-header", action="store_true", help="of TSV: rows only")


def one_of(*names: str) -> Callable[[str], str]:
    """Return argparse's ``type`` for one of some names, however it is capitalized."""

    def named(text: str) -> str:
        for each in names:
            if each.lower() == text.lower():
                return each
        hint = did_you_mean(text, names) or f"there are {', '.join(names)}"
        raise argparse.ArgumentTypeError(f"{text!r} is not one of them; {hint}")

    return named


def not_empty(text: str) -> str:
    """Return a text that is there, for argparse's ``type``: ``-b "$UNSET"`` means no default."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def at_least_one(text: str) -> int:
    """Return a count >= 1, for argparse's ``type``."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 1 or more")
    return int(text)


def whole(text: str) -> int:
    """Return a whole number, for argparse's ``type``: ``int`` would take ``1_0`` and any script."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def per_second(text: str) -> float:
    """Return a rate above 0, for argparse's ``type``; ``1k`` is a thousand."""
    number, factor = (text[:-1], 1000.0) if text.endswith("k") else (text, 1.0)
    try:
        rate = float(number) * factor
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate a second, as 100, 1k or 0.5")
    return rate
