"""The page of all commands and their options, from the parsers: ``docs/commands.md``.

``tools.reference`` checks and writes it. Not argparse's own help: that differs between Pythons.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module

from ottla.cli.arguments import Parser, add_client_options
from ottla.cli.main import COMMANDS

_HEAD = """\
# All commands

Made by `python -m tools.reference --write`; do not edit.

What `ottla help COMMAND` says, of every command. [command-line.md](command-line.md) has what they
have in common, with examples; [migrating.md](migrating.md) says what other tools call it.
"""
_CLUSTER = "## Options of all commands that talk to a cluster"


def commands_page() -> str:
    """Return the page."""
    top = Parser(prog="ottla")
    commands = top.add_subparsers()
    for module in COMMANDS.values():
        import_module(module).register(commands)
    shared = Parser(prog="ottla", add_help=False)
    add_client_options(shared)
    known = _options(shared)
    lines = [_HEAD, _CLUSTER, "", *_table(shared, set())]
    for words, parser in _leaves(top, ()):
        lines += ["", f"## ottla {' '.join(words)}", ""]
        if parser.description:
            lines += [" ".join(parser.description.split()).replace("%%", "%"), ""]
        lines += _table(parser, known)
        if _talks(parser, known):
            lines += ["", "And the options of all commands that talk to a cluster."]
    return "\n".join(lines) + "\n"


def _leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the commands that do something, in the order of their declaration."""
    for action in parser._actions:  # noqa: SLF001 - argparse tells nobody else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            for name, each in action.choices.items():
                yield from _leaves(each, (*words, name))
            return
    yield words, parser


def _talks(parser: argparse.ArgumentParser, known: set[tuple[str, ...]]) -> bool:
    return known <= _options(parser)


def _options(parser: argparse.ArgumentParser) -> set[tuple[str, ...]]:
    return {tuple(each.option_strings) for each in parser._actions}  # noqa: SLF001 - as above


def _table(parser: argparse.ArgumentParser, known: set[tuple[str, ...]]) -> list[str]:
    left_out = known if _talks(parser, known) else set()
    rows = [
        f"| `{_name(each)}` | {_cell(each.help or '')} |"
        for each in parser._actions  # noqa: SLF001 - as above
        if not isinstance(each, argparse._HelpAction)  # noqa: SLF001 - it has no other name
        and each.help != argparse.SUPPRESS
        and tuple(each.option_strings) not in left_out
    ]
    return ["| argument | |", "| --- | --- |", *rows] if rows else ["It takes no arguments."]


def _name(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        optional, several = action.nargs in ("?", "*"), action.nargs in ("+", "*")
        text = f"{value}..." if several else value
        return f"[{text}]" if optional else text
    options = ", ".join(action.option_strings)
    return options if action.nargs == 0 else f"{options} {value}"


def _cell(text: str) -> str:
    return " ".join(text.replace("%%", "%").replace("|", "\\|").split())
