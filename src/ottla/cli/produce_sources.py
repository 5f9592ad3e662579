"""Where ``ottla produce`` gets its records: lines of standard input, files, a template, nothing.

Owns what a line, a file or a template becomes. A source yields records as they come; whoever sends
them decides when. Knows no cluster.
"""

import asyncio
import re
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.cli.failure import Exit, Failure
from ottla.cli.input_stream import cannot_read, input_stream, parts_of
from ottla.cli.output import note
from ottla.cli.record_format import compile_input
from ottla.cli.record_json import Headers, read_record_json
from ottla.env.clock import Clock

LINE_MAX_BYTES = 1 << 30
WORTH_A_PAUSE_SECONDS = 0.002
RANDOM_BELOW = 1_000_000
TOKENS = "iTru%"


class Line(NamedTuple):
    """A record to be sent. ``where`` says which line names its topic or partition."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    topic: str | None = None
    """None: the one of the command line."""
    where: str = ""


class Given(NamedTuple):
    """What the options say about every record."""

    topic: str | None
    key: bytes | None
    headers: Headers
    partition: int | None


@contextmanager
def source(options: Namespace, given: Given, clock: Clock) -> Iterator[AsyncIterator[Line]]:
    """Give the records that the options ask for. Raises Failure, while they are read, too."""
    ways = {
        "--tombstone": options.tombstone,
        "--file": options.files,
        "--template": options.template is not None,
        "--jsonl": options.jsonl,
        "-f": options.format is not None,
    }
    chosen = [way for way, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise Failure(f"{' and '.join(chosen)} exclude each other", code=Exit.USAGE)
    if options.tombstone:
        if given.key is None:
            fix = "ottla produce TOPIC -k KEY --tombstone"
            raise Failure("--tombstone needs a key", fix=fix, code=Exit.USAGE)
        yield _once(Line(given.key, None, given.headers, given.partition))
    elif options.files:
        yield _files(options.files, given)
    elif options.template is not None:
        _check_template(options.template, options.key or "")
        yield _generated(options.template, given, clock)
    else:
        read = _reader(given, options.format, jsonl=options.jsonl, empty_is_null=options.null)
        welcome(options)
        with input_stream(None) as number:
            yield _lines(parts_of(number, b"\n", LINE_MAX_BYTES), read)


def welcome(options: Namespace) -> None:
    """Tell a person who types what to do."""
    if sys.stdin.isatty() and not options.quiet:
        note("one record per line; Ctrl-D ends")


def paced(
    lines: AsyncIterator[Line], count: int | None, rate: float | None, clock: Clock
) -> AsyncIterator[Line]:
    """Return at most ``count`` records, ``rate`` of them a second; None: as they come."""
    return lines if count is None and rate is None else _paced(lines, count, rate, clock)


async def _paced(
    lines: AsyncIterator[Line], count: int | None, rate: float | None, clock: Clock
) -> AsyncIterator[Line]:
    start = clock.monotonic()
    number = 0
    async for line in lines:
        if rate is not None:
            ahead = start + number / rate - clock.monotonic()
            if ahead > WORTH_A_PAUSE_SECONDS:
                await asyncio.sleep(ahead)
        yield line
        number += 1
        if number == count:
            return


async def _once(line: Line) -> AsyncIterator[Line]:
    yield line


async def _files(paths: list[str], given: Given) -> AsyncIterator[Line]:
    """Yield the whole of each file as a value."""
    for each in paths:
        yield Line(given.key, _whole(Path(each)), given.headers, given.partition)


def _whole(path: Path) -> bytes:
    """Return what a file holds. Raises Failure."""
    try:
        with path.open("rb") as file:
            data = file.read(LINE_MAX_BYTES + 1)
    except OSError as error:
        raise cannot_read(error, str(path)) from error
    if len(data) > LINE_MAX_BYTES:
        raise Failure(f"{path} is no record: it has more than {LINE_MAX_BYTES} bytes")
    return data


def _check_template(*texts: str) -> None:
    for token in _TOKEN.findall("".join(texts)):
        if token not in TOKENS:
            why = "%i counts, %T is the time in ms, %r a number below a million, %u a UUID, %% is %"
            raise Failure(f"%{token} means nothing in a template", why=why, code=Exit.USAGE)


_TOKEN = re.compile(r"%(.)", re.DOTALL)


async def _generated(template: str, given: Given, clock: Clock) -> AsyncIterator[Line]:
    """Yield records that a template describes, without end. So may be the key."""
    from ottla.env.rng import SystemRng

    rng = SystemRng()
    number = 0
    tokens: dict[str, Callable[[], str]] = {
        "i": lambda: str(number),
        "T": lambda: str(clock.wall_ms()),
        "r": lambda: str(rng.random_below(RANDOM_BELOW)),
        "u": lambda: _uuid(rng.random_bytes(16)),
        "%": lambda: "%",
    }

    def expanded(text: str) -> bytes:
        return _TOKEN.sub(lambda found: tokens[found[1]](), text).encode("utf-8", "surrogateescape")

    key = None if given.key is None else given.key.decode("utf-8", "surrogateescape")
    while True:
        value = expanded(template)
        made = None if key is None else expanded(key)
        yield Line(made, value, given.headers, given.partition)
        number += 1


def _uuid(data: bytes) -> str:
    from uuid import UUID

    return str(UUID(bytes=data, version=4))


async def _lines(parts: AsyncIterator[bytes], read: Callable[[bytes], Line]) -> AsyncIterator[Line]:
    number = 0
    async for raw in parts:
        number += 1
        try:
            line = read(raw.removesuffix(b"\r"))
        except ValueError as error:
            raise Failure(f"line {number}: {error}", code=Exit.USAGE) from error
        if line.topic is not None or line.partition is not None:  # Else nothing can be wrong.
            line = line._replace(where=f"line {number}: ")
        yield line


def _reader(
    given: Given, format_: str | None, *, jsonl: bool, empty_is_null: bool
) -> Callable[[bytes], Line]:
    if jsonl:
        return lambda raw: _json_line(raw, given)
    plain = Line(given.key, b"", given.headers, given.partition)
    if format_ is None:
        if empty_is_null:
            return lambda raw: plain._replace(value=raw or None)
        return lambda raw: plain._replace(value=raw)
    try:
        split = compile_input(format_)
    except ValueError as error:
        raise Failure(f"-f {format_!r}: {error}", code=Exit.USAGE) from error

    def read(raw: bytes) -> Line:
        key, value, headers, partition, topic, timestamp_ms = split(raw)
        if given.topic is not None and topic not in (None, given.topic):
            raise ValueError(f"the line is for {topic}")
        if empty_is_null:
            key = key or None
        return Line(
            given.key if key is None else key,
            (value or None) if empty_is_null else value,
            given.headers + headers,
            given.partition if partition is None else partition,
            timestamp_ms,
            topic,
        )

    return read


def _json_line(raw: bytes, given: Given) -> Line:
    found = read_record_json(raw)
    return Line(
        found.key if found.has_key else given.key,
        found.value,
        given.headers + found.headers,
        given.partition if found.partition is None else found.partition,
        found.timestamp_ms,
    )
