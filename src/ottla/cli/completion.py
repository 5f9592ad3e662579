"""``ottla completion``: scripts for shells, and the words that they ask for.

A script calls ``ottla __complete WORD...`` at each tab; the last word is the one being typed, and
may be empty. Owns which words can follow: commands and options by the parsers, the names of topics,
groups and transactional ids by the cluster, if it answers in time. What goes wrong is no words.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from re import fullmatch

from ottla.cli.arguments import Commands, Parser, add_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ottla.client.asyncio.cluster import Cluster

SECONDS = 0.2
"""How long a cluster may take to name things; a person waits."""
WORDS_MAX = 1000
_SCRIPTS = {
    "bash": r"""_ottla() {
    local IFS=$'\n'
    COMPREPLY=($(ottla __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o default -F _ottla ottla
""",
    "zsh": r"""#compdef ottla
_ottla() {
    local -a found
    found=(${(f)"$(ottla __complete "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _ottla ottla
""",
    "fish": r"""function __ottla
    ottla __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c ottla -f -a '(__ottla)'
""",
}
_TOPICS = ("TOPIC", "TOPIC[:N,N]", "FROM", "TO", "FIRST", "SECOND")
_CONNECTING = ("-b", "--bootstrap-server", "-X", "--command-config")


def register(commands: Commands) -> None:
    """Declare the command."""
    about = "Print what makes a shell complete commands, options and live names at the tab key."
    parser = add_command(commands, "completion", about, completion)
    parser.add_argument(
        "shell", metavar="SHELL", choices=_SCRIPTS, help='bash: eval "$(ottla completion bash)"'
    )


def completion(options: Namespace) -> None:
    """Print a shell's script."""
    sys.stdout.write(_SCRIPTS[options.shell])


def complete(words: list[str], modules: Mapping[str, str]) -> None:
    """Print the words that the last of ``words`` may become, one a line.

    ``modules``: of each command.
    """
    typed = words[-1] if words else ""
    for each in sorted(
        {each for each in _candidates(words[:-1], typed, modules) if _is_plain(each)}
    ):
        if each.startswith(typed):
            sys.stdout.write(f"{each}\n")


def _is_plain(word: str) -> bool:
    """Whether a shell takes the word as it is: anybody may name a group ``$(reboot)``."""
    return fullmatch(r"[\w.@:+/=,-]+", word) is not None


def _candidates(before: list[str], typed: str, modules: Mapping[str, str]) -> Iterable[str]:
    if not before or before == ["help"]:
        return [*modules, "help"]
    parser, rest = _parser_of(before, modules)
    if parser is None:
        return []
    verbs = _verbs(parser)
    if verbs is not None:
        return verbs.choices
    if typed.startswith("-"):
        return [each for each in parser._option_string_actions if each.startswith("--")]  # noqa: SLF001
    action = _expected(parser, rest)
    if action is None:
        return []
    if action.choices is not None:
        return [str(each) for each in action.choices]
    return _live(str(action.metavar or action.dest.upper()), parser, before)


def _parser_of(
    before: list[str], modules: Mapping[str, str]
) -> tuple[argparse.ArgumentParser | None, list[str]]:
    """Return the parser of the command that was typed, and the words behind its name."""
    from importlib import import_module

    words = before[1:] if before[0] == "help" else before
    if words[0] not in modules:
        return None, []
    top = Parser(prog="ottla")
    commands = top.add_subparsers()
    import_module(modules[words[0]]).register(commands)
    parser: argparse.ArgumentParser = commands.choices[words[0]]
    rest = words[1:]
    while (verbs := _verbs(parser)) is not None and rest and rest[0] in verbs.choices:
        parser, rest = verbs.choices[rest[0]], rest[1:]
    return parser, rest


def _verbs(parser: argparse.ArgumentParser) -> "Commands | None":
    for each in parser._actions:  # noqa: SLF001 - argparse tells it in no other way
        if isinstance(each, argparse._SubParsersAction):  # noqa: SLF001
            return each
    return None


def _expected(parser: argparse.ArgumentParser, rest: list[str]) -> argparse.Action | None:
    """Return the option whose value is due behind ``rest``, else the positional one that is."""
    options = parser._option_string_actions  # noqa: SLF001
    due: argparse.Action | None = None
    taken = 0
    for word in rest:
        if due is not None:
            due = None
        elif word in options:
            due = options[word] if options[word].nargs != 0 else None
        elif not word.startswith("-"):
            taken += 1
    if due is not None:
        return due
    positional = [each for each in parser._actions if not each.option_strings]  # noqa: SLF001
    if taken < len(positional):
        return positional[taken]
    return positional[-1] if positional and positional[-1].nargs in ("*", "+") else None


def _live(what: str, parser: argparse.ArgumentParser, before: list[str]) -> Iterable[str]:
    """Return the names of what an argument stands for."""
    if what in {"KEY", "KEY=VALUE"}:
        return _config_keys(before, "=" if "=" in what else "")
    if what not in (*_TOPICS, "GROUP", "ID", "OF"):
        return []
    names = _ask(what, parser, before)
    if what == "OF":
        return ["cluster", *(f"topic/{each}" for each in names)]
    return names


def _config_keys(before: list[str], behind: str) -> Iterable[str]:
    from ottla.config.topic import TOPIC_TABLE

    table = TOPIC_TABLE
    if any(each.startswith(("broker/", "cluster")) for each in before):
        from ottla.config.broker import BROKER_TABLE

        table = BROKER_TABLE
    elif any(each.startswith("group/") for each in before):
        from ottla.config.group import GROUP_TABLE

        table = GROUP_TABLE
    return [each.key + behind for each in table if not each.internal]


def _ask(what: str, parser: argparse.ArgumentParser, before: list[str]) -> list[str]:
    """Return the names that the cluster tells in time; none if anything is wrong."""
    import asyncio
    from pathlib import Path

    from ottla.cli.arguments import DEFAULT_TIMEOUT
    from ottla.cli.failure import Failure, leave_at_once
    from ottla.cli.run import client_settings
    from ottla.client.asyncio.cluster import Cluster
    from ottla.errors import OttlaError

    options = _connection_options(parser, before)
    file = options.get("--command-config")
    bootstrap = options.get("-b") or options.get("--bootstrap-server")

    async def names() -> list[str]:
        settings = client_settings(
            bootstrap,
            [options["-X"]] if "-X" in options else [],
            Path(file) if file else None,
            DEFAULT_TIMEOUT,
        )
        try:
            async with asyncio.timeout(SECONDS), Cluster(settings) as cluster:
                return (await _names(what, cluster))[:WORDS_MAX]
        except TimeoutError:
            leave_at_once(0)  # A thread may yet ask for the host's address.

    try:
        return asyncio.run(names())
    except (Failure, OttlaError):
        return []


async def _names(what: str, cluster: "Cluster") -> list[str]:
    if what == "GROUP":
        from ottla.client.asyncio.groups import Groups

        return [each.group for each in await Groups(cluster).list_groups()]
    if what == "ID":
        from ottla.client.asyncio.transactions import Transactions

        return [each.transactional_id for each in await Transactions(cluster).list_transactions()]
    view = await cluster.refresh(None)
    return [each.name for each in view.topics.values() if not each.is_internal]


def _connection_options(parser: argparse.ArgumentParser, before: list[str]) -> dict[str, str]:
    """Return the last value of each option that says which cluster is meant."""
    if "--bootstrap-server" not in parser._option_string_actions:  # noqa: SLF001 - no other way
        return {}
    from itertools import pairwise

    return {option: value for option, value in pairwise(before) if option in _CONNECTING}
