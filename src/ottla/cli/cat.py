"""``ottla cat``: kcat's options, and kcat's bytes on standard output, for scripts that have them.

Owns how the options are read, as getopt does (``-Ce``, ``-K:``, ``-o -10``), and which of
librdkafka's settings are obeyed. Errors are Ottla's: words on standard error, and its exit codes.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.cli.arguments import DEFAULT_TIMEOUT, Commands, add_command, at_least_one, not_empty
from ottla.cli.cat_options import say
from ottla.cli.failure import Exit, Failure, leave

_MODES = (
    ("C", "consume: records to standard output"),
    ("P", "produce: lines of standard input, or whole FILEs, become records"),
    ("L", "list brokers, topics and partitions"),
    ("Q", "query offsets: -t TOPIC:PARTITION:TIMESTAMP, in ms, -1 the end, -2 the start"),
)
_FLAGS = (
    ("e", "-C: end when all has been read, instead of waiting for more"),
    ("J", "-C, -L, -Q: JSON"),
    ("O", "without effect, as in kcat"),
    ("Z", "-P: empty keys and values are null; -C: what is null or empty prints as NULL"),
    ("u", "-C: write each record at once"),
    ("l", "-P: records from one FILE's lines, not the whole of it"),
    ("T", "-P: what is sent goes to standard output, too"),
    ("q", "no notes"),
    ("v", "without effect"),
    ("E", "-C: go on behind a record that -s cannot read"),
)
_VALUES = (
    ("p", "N", "this partition"),
    ("D", "TEXT", r"between records; \n"),
    ("K", "TEXT", r"between key and value; \t, \n and \xNN are known"),
    ("k", "KEY", "-P: for records without one"),
    ("z", "CODEC", "-P: gzip, snappy, lz4 or zstd"),
    ("f", "FORMAT", r"-C: %%s %%S %%R %%k %%K %%T %%h %%t %%p %%o, \n \t \xNN"),
    ("G", "GROUP", "consume as a member of it; behind it topics, or ^PATTERNs"),
    ("F", "FILE", "settings; else $KCAT_CONFIG, ~/.config/kcat.conf"),
    ("d", "WORDS", "without effect"),
)
_LETTERS = "".join(letter for letter, _ in (*_MODES, *_FLAGS)) + "h"
_WITH_VALUE = "".join(letter for letter, _, _ in _VALUES) + "ctobmHsrX"


def register(commands: Commands) -> None:
    """Declare the command."""
    about = "Do what kcat does, with kcat's options and output."
    parser = add_command(commands, "cat", about, cat)
    modes = parser.add_argument_group("what to do", "else -C on a terminal, -P in a pipe")
    for letter, text in _MODES:
        modes.add_argument(
            f"-{letter}", dest="modes", action="append_const", const=letter, help=text
        )
    for letter, text in _FLAGS:
        parser.add_argument(f"-{letter}", dest=f"flag_{letter}", action="store_true", help=text)
    for letter, value, text in _VALUES:
        parser.add_argument(f"-{letter}", dest=f"value_{letter}", metavar=value, help=text)
    for letter, value, text in (
        ("t", "TOPIC", "the topic; with -Q several, each TOPIC:PARTITION:TIMESTAMP"),
        ("o", "PLACE", "beginning, end, N, -N from the end, s@MS and e@MS: from and to a time"),
        ("H", "NAME=VALUE", "-P: a header; NAME alone: null"),
        ("s", "HOW", "-C: packed numbers in key=, value= or both, such as '>iq'"),
        ("X", "KEY=VALUE", "a client setting, of librdkafka's or Kafka's name"),
    ):
        parser.add_argument(
            f"-{letter}",
            dest=f"list_{letter}",
            action="append",
            default=[],
            metavar=value,
            help=text,
        )
    parser.add_argument(
        "-c", dest="count", type=at_least_one, metavar="N", help="end after so many"
    )
    parser.add_argument(
        "-b", dest="bootstrap", type=not_empty, metavar="HOST:PORT,...", help="the cluster"
    )
    parser.add_argument("-m", dest="seconds", metavar="SECONDS", help="how long to try to connect")
    parser.add_argument(
        "--timeout", metavar="TIME", help=f"the same, as of other commands; {DEFAULT_TIMEOUT}"
    )
    parser.add_argument("-r", dest="registry", metavar="URL", help="refused: -s takes no avro")
    parser.add_argument("files", metavar="FILE|TOPIC", nargs="*", help="-P: files; -G: topics")


def spread(arguments: list[str]) -> list[str]:
    """Return the words with each option apart, its value glued to it, as argparse takes anything.

    Called before they are parsed. Exits when an option is unknown or lacks its value.
    """
    options: list[str] = []
    files: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            files += rest
        elif word == "--timeout":
            options += [word, next(rest, "")]
        elif word.startswith("--"):
            options.append(word)
        elif not word.startswith("-") or word == "-":
            files.append(word)
        else:
            options += _spread_one(word, rest)
    return [*options, *(["--", *files] if files else [])]


def _spread_one(word: str, rest: Iterator[str]) -> list[str]:
    found: list[str] = []
    for at, letter in enumerate(word[1:], 2):
        if letter in _WITH_VALUE:
            value = word[at:] or next(rest, None)
            if value is None:
                leave(Failure(f"-{letter} needs a value", fix="ottla cat --help", code=Exit.USAGE))
            return [*found, f"-{letter}={value}"]
        if letter not in _LETTERS:
            what = f"unknown option -{letter}" + (f" in {word}" if len(word) > 2 else "")
            leave(Failure(what, fix="ottla cat --help", code=Exit.USAGE))
        found.append(f"-{letter}")
    return found


def cat(options: Namespace) -> None:
    """Do what kcat does."""
    try:
        _prepare(options)
        mode = _mode(options)
        if mode == "P":
            from ottla.cli.cat_produce import produce

            produce(options)
        elif mode in ("L", "Q"):
            from ottla.cli.cat_list import list_metadata, query

            (list_metadata if mode == "L" else query)(options)
        elif mode == "G":
            from ottla.cli.cat_group import consume_as_member

            consume_as_member(options)
        else:
            from ottla.cli.cat_consume import consume

            consume(options)
    except Failure as failure:
        leave(failure)


def _mode(options: Namespace) -> str:
    modes = sorted({*(options.modes or ()), *("G" if options.value_G else "")})
    if len(modes) > 1:
        named = " and ".join(f"-{each}" for each in modes)
        raise Failure(f"{named} exclude each other", code=Exit.USAGE)
    mode = modes[0] if modes else ""
    if not mode:
        mode = "C" if sys.stdin.isatty() else "P"
        what = "Consumer" if mode == "C" else "Producer"
        say(options, f"Auto-selecting {what} mode (use -P or -C to override)")
    if mode in "CP" and not options.list_t:
        raise Failure("-t TOPIC is missing", fix="ottla cat --help", code=Exit.USAGE)
    if options.files and mode not in "PG":
        what = f"{options.files[0]}: files are for -P, and topics for -G"
        raise Failure(what, code=Exit.USAGE)
    return mode


def _prepare(options: Namespace) -> None:
    """Make of the options those of a client, and keep librdkafka's settings of this command."""
    if options.timeout is None:
        options.timeout = f"{options.seconds}s" if options.seconds else DEFAULT_TIMEOUT
    options.profile = None
    options.output = None
    options.command_config = _config_file(options.value_F)
    options.settings, options.of_records = sort_settings(options, options.list_X)


def sort_settings(options: Namespace, given: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the settings of a client, and those that say how records are read and written.

    What librdkafka knows and Ottla does not is noted. Raises Failure.
    """
    from ottla.client.wire.settings import KNOWN

    settings: list[str] = []
    of_records: dict[str, str] = {}
    for each in given:
        key, equals, value = each.removeprefix("topic.").partition("=")
        if not equals:
            raise Failure(f"-X {each!r} is not of the form KEY=VALUE", code=Exit.USAGE)
        if key in _OF_RECORDS:
            of_records[_OF_RECORDS[key]] = value
        elif key == "transactional.id":
            what = "-X transactional.id: ottla cat sends no transactions"
            raise Failure(what, fix="leave it out, or use kcat", code=Exit.USAGE)
        elif key in KNOWN:
            settings.append(f"{key}={value}")
        else:
            say(options, f"{key} means nothing here")
    return settings, of_records


_OF_RECORDS = {
    "acks": "acks",
    "request.required.acks": "acks",
    "compression.codec": "codec",
    "compression.type": "codec",
    "partitioner": "partitioner",
    "isolation.level": "isolation",
    "auto.offset.reset": "reset",
    "linger.ms": "linger",
    "queue.buffering.max.ms": "linger",
}


def _config_file(named: str | None) -> str | None:
    if named is not None:
        return None if named in ("-", "none") else named
    if told := os.environ.get("KCAT_CONFIG"):
        return told
    home = os.environ.get("HOME")
    path = Path(home, ".config", "kcat.conf") if home else None
    return str(path) if path is not None and path.is_file() else None
