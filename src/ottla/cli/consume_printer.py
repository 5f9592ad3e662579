"""What ``ottla consume`` does with fetched batches: which records it prints, and in which form.

Owns the count of records, the ends of partitions, damaged batches, ``--where``'s progress. Knows
no cluster.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import cast

from ottla.cli.failure import Exit, Failure
from ottla.cli.output import (
    Format,
    Row,
    clear_progress,
    json_printable,
    json_text,
    note,
    printable,
    progress,
    tsv_text,
    yaml_text,
)
from ottla.cli.record_decoders import Decoders
from ottla.cli.record_format import compile_output
from ottla.cli.record_json import record_json, record_row, rows_json
from ottla.client.asyncio.fetcher import FetchedBatches
from ottla.client.wire.reading import OnCorrupt, read_rows
from ottla.env.clock import Clock
from ottla.errors import KafkaError
from ottla.ids import TopicPartition
from ottla.records.batch import TimestampType
from ottla.records.record import Record
from ottla.records.rows import FoundRow

TYPE_CHECKING = False  # what most do without costs them nothing
if TYPE_CHECKING:
    from ottla.cli.record_where import Where

Show = Callable[[TopicPartition, TimestampType, Sequence[FoundRow]], list[bytes]]
"""Returns each record as it is printed."""
PROGRESS_SECONDS = 0.5
TAB = "\t"
_JOINERS = "\u200c\u200d"
"""Text in Persian, in scripts of India, and many emoji have these; they move no cursor."""


class Search:
    """``--where``: what was looked at, and how much of it was found."""

    def __init__(self, where: "Where", clock: Clock) -> None:
        self.where = where
        self.found = 0
        self.total: int | None = None
        """Offsets to be read; None: there is no end to them."""
        self._read = 0
        self._clock = clock
        self._shown = clock.monotonic()

    def count(self, offsets: int) -> None:
        """Count offsets as read, and show how far it is."""
        self._read += offsets
        now = self._clock.monotonic()
        if now - self._shown >= PROGRESS_SECONDS:
            self._shown = now
            progress(self._text())

    def finish(self) -> None:
        """Say what was found, on standard error; also when Ctrl-C ended the reading."""
        progress("")
        note(self._text())

    def _text(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        return f"read {self._read:,}{of}, found {self.found:,}"


class Printer:
    """Prints records up to a count and up to the ends of partitions.

    A partition with a damaged batch is printed up to it, the others to their ends.
    """

    def __init__(
        self,
        show: Show,
        count: int | None,
        *,
        form: Format | None,
        header: bytes = b"",
        skips_corrupt: bool = False,
        search: Search | None = None,
    ) -> None:
        self.printed = 0
        self.damage: Failure | None = None
        """The first damaged batch that was not skipped."""
        self.is_stopped = False
        """Whether the partition of the last batches is read no further, because of damage."""
        self.next_offset = 0
        """Behind what was printed last, in that partition."""
        self.search = search
        self._skips_corrupt = skips_corrupt
        self._show = show
        self._left = count
        self._form = form
        self._as_list = form is Format.JSON
        self._out = sys.stdout.buffer
        self._out.write(b"[" if self._as_list else header)

    def finish(self) -> None:
        """Close what was opened. Called however the reading ended."""
        if self._as_list:
            self._out.write(b"\n]\n" if self.printed else b"]\n")
        elif self._form is Format.YAML and not self.printed:
            self._out.write(b"[]\n")
        self._out.flush()
        if self.search is not None:
            self.search.finish()

    def print_batches(self, batches: FetchedBatches, end: int | None) -> bool:
        """Print batches up to ``end`` (None: all); False when the count is reached.

        ``next_offset`` then says where the partition goes on.
        """
        self.next_offset = batches.next_offset if end is None else min(batches.next_offset, end)
        goes_on = self._print(batches, end)
        self._out.flush()
        if self.search is not None:
            self.search.count(max(0, self.next_offset - batches.offset))
        return goes_on

    def _print(self, batches: FetchedBatches, end: int | None) -> bool:
        self.is_stopped = False
        where = None if self.search is None else self.search.where
        if where is not None and not where.allows(batches.partition.partition):
            return True
        found = read_rows(
            batches.records,
            batches.offset,
            batches.aborted,
            on_corrupt=self._on_corrupt(batches, end),
            may_hold=None if where is None else where.may_hold,
        )
        try:
            for header, rows in found:
                if end is not None and rows[-1][0] >= end:
                    rows = [row for row in rows if row[0] < end]  # noqa: PLW2901 - the same rows
                wanted = rows if where is None else where.matching(rows)
                is_last = self._left is not None and self.printed + len(wanted) >= self._left
                if is_last and self._left is not None:
                    wanted = wanted[: self._left - self.printed]
                self._print_rows(batches.partition, wanted, header.timestamp_type)
                if is_last:
                    self.next_offset = wanted[-1][0] + 1
                    return False
        except KafkaError as error:
            is_stuck = batches.next_offset <= batches.offset
            if not self.is_stopped and is_stuck:
                self._stop(batches.partition, batches.offset, error)
        return True

    def _print_rows(
        self, partition: TopicPartition, rows: Sequence[FoundRow], kind: TimestampType
    ) -> None:
        if not rows:
            return
        if self._as_list:
            self._out.write(b",\n" if self.printed else b"\n")
        lines = self._show(partition, kind, rows)
        clear_progress()
        self._out.write((b",\n" if self._as_list else b"").join(lines))
        self.printed += len(rows)
        if self.search is not None:
            self.search.found += len(rows)

    def _on_corrupt(self, batches: FetchedBatches, end: int | None) -> OnCorrupt:
        def on_corrupt(offset: int, error: KafkaError) -> None:
            if end is not None and offset >= end:
                return
            if not self._skips_corrupt:
                self._stop(batches.partition, offset, error)
                raise error
            note(f"skipped a damaged batch of {batches.partition}: {error.why or error.code.text}")

        return on_corrupt

    def _stop(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        """Read a partition no further: no record behind ``offset`` is known to be right."""
        self.is_stopped = True
        self.next_offset = offset
        failure = Failure(
            f"{partition} is damaged at offset {offset}",
            why=error.why or error.code.text,
            fix="--skip-corrupt goes on behind it; `ottla log verify` on its broker tells more",
        )
        if self.damage is None:
            self.damage = failure
        else:
            note(str(failure))


def header_of(form: Format | None, decoders: Decoders) -> bytes:
    """Return the names of TSV's columns; nothing before other forms."""
    return f"{TAB.join(_columns(decoders))}\n".encode() if form is Format.TSV else b""


def show_of(
    format_: str | None, form: Format | None, decoders: Decoders, *, names_topics: bool
) -> Show:
    """Return how a record is printed; on a terminal what bytes do there is escaped.

    Raises Failure.
    """
    is_seen = sys.stdout.isatty()
    shown = _seen_rows if is_seen else _as_they_are
    if form is not None and format_ is not None:
        raise Failure("-o and -f exclude each other", code=Exit.USAGE)
    if form in (Format.TSV, Format.YAML):
        return _one_by_one(_row_text(form, decoders))
    if form in (Format.JSON, Format.JSONL):
        end = b"\n" if form is Format.JSONL else b""
        harmless = _harmless if is_seen else bytes
        if decoders:
            return _one_by_one(
                lambda each, record: (
                    harmless(record_json(each, record, decoders.show(record).json())) + end
                )
            )
        return lambda each, _, rows: [harmless(line) + end for line in rows_json(each, rows)]
    if form is Format.TABLE or (format_ is None and is_seen):
        return _one_by_one(_ForPeople(decoders, names_topics=names_topics).line)
    try:
        plain = compile_output("%v\\n" if format_ is None else format_)
    except ValueError as error:
        raise Failure(f"-f {format_!r}: {error}", code=Exit.USAGE) from error
    if decoders:
        return lambda each, kind, rows: plain(
            each, shown([_row(decoders.texts(record)) for record in _records(rows, kind)])
        )
    return lambda each, _, rows: plain(each, shown(rows))


def _columns(decoders: Decoders) -> tuple[str, ...]:
    fields = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return (*fields, "undecoded") if decoders else fields


def _row_text(form: Format, decoders: Decoders) -> Callable[[TopicPartition, Record], bytes]:
    columns = _columns(decoders)

    def text(partition: TopicPartition, record: Record) -> bytes:
        meant = decoders.show(record).json() if decoders else None
        row = cast("Row", record_row(partition, record, meant))
        shown = tsv_text(row, columns) if form is Format.TSV else yaml_text([row])
        return shown.encode("utf-8", "backslashreplace")

    return text


def _one_by_one(line: Callable[[TopicPartition, Record], bytes]) -> Show:
    return lambda each, kind, rows: [line(each, record) for record in _records(rows, kind)]


def _records(rows: Sequence[FoundRow], kind: TimestampType) -> Iterator[Record]:
    for offset, timestamp, key, value, headers in rows:
        yield Record(offset, timestamp, kind, key, value, headers)


def _row(record: Record) -> FoundRow:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def _as_they_are(rows: Sequence[FoundRow]) -> Sequence[FoundRow]:
    return rows


def _seen_rows(rows: Sequence[FoundRow]) -> Sequence[FoundRow]:
    return [
        (
            offset,
            timestamp,
            _seen(key),
            _seen(value),
            tuple((printable(name), _seen(data)) for name, data in headers),
        )
        for offset, timestamp, key, value, headers in rows
    ]


def _seen(data: bytes | None) -> bytes | None:
    """Return ``data`` as it does nothing to a terminal; its lines stay lines."""
    if data is None or (data.isascii() and data.decode().isprintable()):
        return data
    return printable(data.decode("utf-8", "backslashreplace"), keep="\t\n" + _JOINERS).encode()


def _harmless(line: bytes) -> bytes:
    return json_printable(line.decode()).encode()


class _ForPeople:
    """A record as a line on a terminal."""

    def __init__(self, decoders: Decoders, *, names_topics: bool) -> None:
        self._decoders = decoders
        self._names_topics = names_topics

    def line(self, partition: TopicPartition, record: Record) -> bytes:
        """Return the line."""
        shown = self._decoders.show(record)
        time = ""
        if record.timestamp >= 0:
            moment = datetime.fromtimestamp(record.timestamp / 1000).astimezone()
            time = f"{moment:%Y-%m-%d %H:%M:%S}.{record.timestamp % 1000:03d}  "
        topic = f"{partition.topic}:" if self._names_topics else ""
        key = "" if record.key is None else f"k={_text(shown.key)}  "
        value = "(null)" if record.value is None else _text(shown.value)
        faults = "".join(f"  ({each} is {why})" for each, why in shown.faults.items())
        place = f"{topic}{partition.partition}:{record.offset}"
        return f"{time}{place}  {key}{value}{printable(faults)}\n".encode()


def _text(value: object) -> str:
    """Return text that does nothing to a terminal; what is no text is marked."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return f"{value!r} (not UTF-8)"
    return printable(value, keep="\t" + _JOINERS) if isinstance(value, str) else json_text(value)
