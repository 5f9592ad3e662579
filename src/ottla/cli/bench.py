"""``ottla bench``: how fast a cluster takes and gives records, and how long one takes.

Declares the commands; ``bench_run`` measures.
"""

from argparse import ArgumentTypeError

from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    at_least_one,
    later,
)
from ottla.cli.output import FORMATS
from ottla.config.human import parse_duration_ms, parse_size_bytes

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORD_BYTES_MAX = 1 << 20


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "Measure a cluster: how fast it takes and gives records, and how long one takes."
    verbs = add_group(commands, "bench", about)
    about = "Write batches that were made beforehand, as fast as they are taken."
    _add(verbs, "produce", about)
    about = "Write for the time given, then measure how fast all of it is read."
    _add(verbs, "consume", about)
    about = "Write one record after the other; measure until it is acknowledged, and until read."
    _add(verbs, "latency", about)


def _add(verbs: Commands, name: str, about: str) -> Parser:
    about += " In a topic of its own, which is deleted at the end."
    parser = add_command(verbs, name, about, later("ottla.cli.bench_run", name))
    parser.add_argument("--for", dest="duration", type=_duration, default=5.0, metavar="TIME",
                        help="how long; 5s")  # fmt: skip
    parser.add_argument(
        "--size", type=_size, default=1024, metavar="BYTES", help="of a record's value; 1KiB"
    )
    if name != "latency":
        parser.add_argument(
            "--batch", type=_size, default=1 << 16, metavar="BYTES", help="of records; 64KiB"
        )
        parser.add_argument(
            "--in-flight", type=at_least_one, default=5, metavar="N", help="requests; 5"
        )
        parser.add_argument("--codec", choices=CODECS, default="none", help="none")
    parser.add_argument("--partitions", type=at_least_one, default=1, metavar="N", help="1")
    parser.add_argument("--replicas", type=at_least_one, default=1, metavar="N", help="1")
    parser.add_argument("--acks", choices=("all", "1"), default="all", help="all")
    parser.add_argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="of the topic"
    )
    parser.add_argument(
        "--against",
        metavar="HOST:PORT",
        help="the same of another cluster, and how many times as much; settings are the first's",
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)
    return parser


def _duration(text: str) -> float:
    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no duration, as 5s or 1m") from error
    if milliseconds <= 0:
        raise ArgumentTypeError(f"{text!r} is no time to measure in")
    return milliseconds / 1000


def _size(text: str) -> int:
    try:
        is_plain = text.isascii() and text.isdigit()
        size = int(text) if is_plain else parse_size_bytes(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no size, as 100 or 64KiB") from error
    if not 1 <= size <= RECORD_BYTES_MAX:
        raise ArgumentTypeError(f"{text!r} is not from 1 to {RECORD_BYTES_MAX} bytes")
    return size
