"""The ``ottla topic`` commands about what lies in topics; each is imported when it is typed."""

from argparse import ArgumentTypeError

from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_output_option,
    later,
    not_empty,
    whole,
)
from ottla.cli.consent import add_consent_options
from ottla.cli.output import FORMATS
from ottla.cli.second_options import add_second_options

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def register(verbs: Commands) -> None:
    """Declare the commands."""
    _declare_size(verbs)
    _declare_count(verbs)
    _declare_trim(verbs)
    _declare_copy(verbs)
    _declare_diff(verbs)
    _declare_move(verbs)
    _declare_elect(verbs)


def _declare_size(verbs: Commands) -> None:
    about = "Tell how many bytes topics take, the largest first; of one topic each replica."
    parser = add_command(verbs, "size", about, later("ottla.cli.topic_size", "size"))
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="these; else all")
    parser.add_argument("--replicas", action="store_true", help="a row for each replica")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def _declare_count(verbs: Commands) -> None:
    about = "Count the records that can be read, by reading them: offsets alone do not tell."
    parser = add_command(verbs, "count", about, later("ottla.cli.topic_count", "count"))
    parser.add_argument("topic", metavar="TOPIC[:N,N]", help="all partitions, or these")
    parser.add_argument(
        "--from",
        type=not_empty,
        dest="start",
        default="earliest",
        metavar="PLACE",
        help="begin at an offset, -10, -5m or a time; else at the earliest",
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def _declare_trim(verbs: Commands) -> None:
    about = "Delete the oldest records of a topic: those before a place."
    parser = add_command(verbs, "trim", about, later("ottla.cli.topic_trim", "trim"))
    parser.add_argument("topic", metavar="TOPIC[:N,N]", help="all partitions, or these")
    parser.add_argument(
        "--to",
        type=not_empty,
        dest="place",
        required=True,
        metavar="PLACE",
        help="the first that stays: an offset, -10, -5m or a time; latest: none stays",
    )
    add_output_option(parser, *FORMATS)
    add_consent_options(parser)
    add_client_options(parser)


def _declare_copy(verbs: Commands) -> None:
    about = (
        "Copy a topic's records, to another topic or cluster: keys, values, headers, times and"
        " partitions as they are. What was copied is not copied again: a copy that was interrupted"
        " goes on, and a finished one takes what is new."
    )
    parser = add_command(verbs, "copy", about, later("ottla.cli.topic_copy", "copy"))
    parser.add_argument("first", metavar="FROM")
    parser.add_argument(
        "second", type=not_empty, metavar="TO", nargs="?", help="else the same name; may be new"
    )
    parser.add_argument(
        "--from",
        type=not_empty,
        dest="place",
        metavar="PLACE",
        help="begin at an offset, -10, -5m or a time; else at the earliest",
    )
    parser.add_argument(
        "--append", action="store_true", help="behind records that are in TO already"
    )
    parser.add_argument(
        "-g",
        "--group",
        dest="groups",
        action="append",
        default=[],
        metavar="GROUP",
        help="commit its offsets for the copy, too; repeatable",
    )
    parser.add_argument(
        "--codec", choices=CODECS, default="none", metavar="CODEC", help=", ".join(CODECS)
    )
    parser.add_argument("--dry-run", action="store_true", help="check only, and copy nothing")
    add_output_option(parser, *FORMATS)
    add_second_options(parser)
    add_client_options(parser)


def _declare_diff(verbs: Commands) -> None:
    about = "Tell whether two topics hold the same records, with a digest per partition; 1 if not."
    parser = add_command(verbs, "diff", about, later("ottla.cli.topic_diff", "diff"))
    parser.add_argument("first", metavar="FIRST")
    parser.add_argument(
        "second", type=not_empty, metavar="SECOND", nargs="?", help="else the same name elsewhere"
    )
    add_output_option(parser, *FORMATS)
    add_second_options(parser)
    add_client_options(parser)


def _declare_move(verbs: Commands) -> None:
    about = (
        "Move a topic's replicas to other brokers or to another directory of one; with neither,"
        " list the moves between brokers that are under way."
    )
    parser = add_command(verbs, "move", about, later("ottla.cli.topic_move", "move"))
    parser.add_argument("topic", metavar="TOPIC[:N,N]", nargs="?", help="all partitions, or these")
    parser.add_argument(
        "--brokers",
        type=_brokers,
        metavar="N,N",
        help="have the replicas there; the first is the preferred leader",
    )
    parser.add_argument("--log-dir", metavar="DIR", help="have them in this directory of a broker")
    parser.add_argument("--broker", type=whole, metavar="N", help="whose --log-dir; if several")
    parser.add_argument("--cancel", action="store_true", help="take back a move under way")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def _declare_elect(verbs: Commands) -> None:
    about = "Let the preferred replica lead each partition; with --unclean any that is there."
    parser = add_command(verbs, "elect", about, later("ottla.cli.topic_move", "elect"))
    parser.add_argument("topic", metavar="TOPIC[:N,N]", help="all partitions, or these")
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="where nobody leads: also a replica that has lost records",
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def _brokers(text: str) -> list[int]:
    """Return the numbers of brokers, for argparse's ``type``."""
    numbers = text.split(",")
    if not all(each.isascii() and each.isdigit() for each in numbers):
        raise ArgumentTypeError(f"{text!r} is no list of brokers, as 1,2,3")
    return [int(each) for each in numbers]
