"""The entry point: finds the command that was typed and imports nothing of the others.

Owns the list of commands and the first words a newcomer reads. Errors become words and exit codes
in ``failure``; what is true of every command (Ctrl-C, closed and full streams) is settled here.
"""

import gc
import sys

from ottla import __version__

TYPE_CHECKING = False  # typing itself costs 5 ms
if TYPE_CHECKING:
    from argparse import Namespace

COMMANDS = {
    "serve": "ottla.cli.serve",
    "topic": "ottla.cli.topic",
    "produce": "ottla.cli.produce",
    "consume": "ottla.cli.consume",
    "group": "ottla.cli.group",
    "cluster": "ottla.cli.cluster",
    "config": "ottla.cli.config",
    "txn": "ottla.cli.txn",
    "user": "ottla.cli.user",
    "quota": "ottla.cli.quota",
    "acl": "ottla.cli.acl",
    "pipeline": "ottla.cli.pipeline",
    "cat": "ottla.cli.cat",
    "bench": "ottla.cli.bench",
    "log": "ottla.cli.log",
    "doctor": "ottla.cli.doctor",
    "profile": "ottla.cli.profile",
    "completion": "ottla.cli.completion",
    "version": "ottla.cli.version",
}

FIRST_WORDS = {
    "serve": "start a broker; its data is in ./ottla-data",
    "topic create orders -p 3": "make a topic of three partitions",
    "produce orders": "each line of standard input is a record",
    "consume orders": "read them back; --tail to wait for more",
    "topic list": "what topics there are; -o json for scripts",
    "group describe billing": "how far a group is, and who is in it",
    "cluster info": "brokers, topics, partitions",
    "pipeline init orders": "a pipeline of Spark: topics, SQL, tables",
    "doctor ottla-data": "how a data directory is doing",
    "help COMMAND": "every option of a command",
}
_FIRST_WORDS_WIDTH = 80


def first_words() -> str:
    """Return what a newcomer reads, as wide as the terminal."""
    from ottla.cli.terminal import width

    room = max(map(len, FIRST_WORDS)) + 2
    between = "\n      " if width() < _FIRST_WORDS_WIDTH else ""
    lines = [
        f"  ottla {command if between else command.ljust(room)}{between}{about}\n"
        for command, about in FIRST_WORDS.items()
    ]
    return f"ottla {__version__}: a Kafka-compatible streaming log\n\n{''.join(lines)}"


_WITH_AN_END_OF_THEIR_OWN = frozenset({"multiprocessing", "py4j", "pyspark"})
_PLACES = ("--from", "--to", "--shift")
"""Options whose value may begin with a dash."""


def main() -> None:
    """Be the process: run its command line, and end it in the right way."""
    from ottla.cli.interruption import leave_on_ctrl_c

    leave_on_ctrl_c()
    from ottla.cli.streams import OutputFailed, secure

    secure()
    code: object = 0
    try:
        try:
            command_line(sys.argv[1:])
        except SystemExit as end:
            code = end.code
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does. Nothing more may be written.
        _leave_at_once(0)
    except OutputFailed as error:
        sys.stderr.write(f"error: cannot write to standard output\n  why: {error}\n")
        _leave_at_once(1)
    except UnicodeEncodeError as error:
        sys.stderr.write(f"error: {error.object!a} is not UTF-8 text\n")
        _leave_at_once(2)
    except KeyboardInterrupt as error:
        _leave_at_once(getattr(error, "exit_code", 130))
    _end(code)


def _end(code: object) -> None:
    """Exit. Nothing is taken apart where nobody can tell: that costs a command a fifth of its time.

    Threads that still run, and what Spark or child processes began, get the usual end.
    """
    threading = sys.modules.get("threading")
    is_alone = threading is None or threading.active_count() == 1
    if is_alone and isinstance(code, int) and not _WITH_AN_END_OF_THEIR_OWN & sys.modules.keys():
        import atexit

        atexit._run_exitfuncs()  # noqa: SLF001 - it has no other name
        _leave_at_once(code)
    sys.exit(code)  # type: ignore[arg-type]


def _leave_at_once(code: int) -> None:
    from ottla.cli.failure import leave_at_once

    leave_at_once(code)


def command_line(arguments: list[str]) -> None:
    """Run what was typed. Raises SystemExit, and what only the process itself can tell."""
    if not arguments:
        sys.stdout.write(first_words())
        return
    if arguments[0] == "__complete":
        from ottla.cli.completion import complete

        complete(arguments[1:], COMMANDS)
        return
    # Imports allocate much and drop little: collecting on the way costs a fifth of a start.
    gc.disable()
    try:
        chosen = _parse(arguments)
    finally:
        gc.enable()
    from ottla.cli.failure import say_as

    say_as(getattr(chosen, "output", None))
    chosen.command(chosen)


def _parse(arguments: list[str]) -> "Namespace":
    """Import the command that was typed, and return its arguments. Exits when they are wrong."""
    from importlib import import_module

    from ottla.cli.arguments import Parser

    parser = Parser(prog="ottla", description="A Kafka-compatible streaming log.")
    parser.add_argument("-V", "--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    typed = arguments[0]
    if typed not in COMMANDS and not typed.startswith("-"):
        parser.error(_unknown(typed))
    if typed in ("-h", "--help"):
        from ottla.cli.about import ABOUT

        for name, about in ABOUT.items():
            commands.add_parser(name, help=about)
    else:
        for name in (typed,) if typed in COMMANDS else COMMANDS:
            import_module(COMMANDS[name]).register(commands)
    if typed == "cat":
        from ottla.cli.cat import spread

        arguments = [typed, *spread(arguments[1:])]
    chosen, unknown = parser.parse_known_args(_join_places(_in_our_names(arguments)))
    if unknown:
        chosen.parser.refuse(unknown)
    return chosen


def _in_our_names(arguments: list[str]) -> list[str]:
    """Return ``topic describe --topic orders`` as ``topic describe orders``, and the like."""
    if not any(each.startswith("--") for each in arguments):
        return arguments
    from ottla.cli.kafka_names import translated

    return translated(arguments)


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
    from ottla.cli.near import did_you_mean

    hint = did_you_mean(typed, COMMANDS) or f"there are {', '.join(COMMANDS)}"
    return f"no command {typed}; {hint}"
