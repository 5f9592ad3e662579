"""Rows on standard output: table, json, jsonl, yaml or tsv.

Owns how values look in each. A person's terminal gets a table, a pipe gets TSV, unless told.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Self, TextIO

from ottla.cli.terminal import width

Value = str | int | float | bool | None | Sequence["Value"] | Mapping[str, "Value"]
Row = Mapping[str, Value]


class Format(StrEnum):
    """The formats of -o."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    TSV = "tsv"


FORMATS = tuple(each.value for each in Format)
FIRST_COLUMN_MIN = 12
"""With less room for it, a table is no better than lines of name and value."""
_IDS = ("id", "epoch", "partition", "leader", "coordinator", "port")
"""Names of columns that end so hold numbers that are names: without separators."""


def chosen(output: str | None) -> Format:
    """Return the format that -o asks for, or the one that suits standard output."""
    if output is not None:
        return Format(output)
    return Format.TABLE if sys.stdout.isatty() else Format.TSV


def write_rows(
    rows: Sequence[Row], columns: Sequence[str], format_: Format, *, header: bool = True
) -> None:
    """Print rows. ``columns`` are what table and TSV show, in order; the others show every key.

    A table leaves out notes where there are none.
    ``header``: whether TSV begins with the names of the columns.
    """
    clear_progress()
    match format_:
        case Format.JSON:
            text = json_text(rows, indent=2) + "\n"
        case Format.JSONL:
            text = "".join(json_text(row) + "\n" for row in rows)
        case Format.YAML:
            text = yaml_text(rows) if rows else "[]\n"
        case Format.TSV:
            text = "".join(tsv_text(row, columns) for row in rows)
            if header:
                text = "\t".join(columns) + "\n" + text
        case _:
            if rows and not any(row.get("note") for row in rows):
                columns = [each for each in columns if each != "note"]
            is_fitted = rows and sys.stdout.isatty()
            text = fitted(rows, columns, width()) if is_fitted else table(rows, columns)
    sys.stdout.write(text)


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` as it does nothing to a terminal: what is not printable is escaped.

    Names that anybody may choose (of groups, transactions, users) could else change a title, move
    the cursor or hide a line. ``keep``: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else repr(each)[1:-1] for each in text
    )


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return ``value`` as JSON that does nothing to a terminal either."""
    return json_printable(json.dumps(value, indent=indent, ensure_ascii=False))


def json_printable(text: str) -> str:
    """Return JSON of the same meaning that does nothing to a terminal."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text
    ).replace("\x7f", "\\u007f")


def tsv_text(row: Row, columns: Sequence[str]) -> str:
    """Return a row as a line of TSV, with its end."""
    return "\t".join(_tsv(row.get(each)) for each in columns) + "\n"


def yaml_text(rows: Sequence[Row]) -> str:
    """Return rows as a list of YAML."""
    return _yaml_list(rows, 0)


class RowWriter:
    """Rows one at a time, however many there are; kinds of rows may follow each other.

    A context manager: JSON needs an end.
    """

    def __init__(self, format_: Format, *, header: bool = True) -> None:
        self._format = format_
        self._has_header = header
        self._columns: Sequence[str] | None = None
        self._count = 0

    @property
    def is_table(self) -> bool:
        """Whether a person reads: ``line`` suits better than ``write``."""
        return self._format is Format.TABLE

    @property
    def is_flat(self) -> bool:
        """Whether rows are lines without anything nested in them."""
        return self._format is Format.TSV

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._format is Format.JSON:
            sys.stdout.write("\n]\n" if self._count else "[]\n")

    def line(self, text: str, *, indent: str | None = None) -> None:
        """Print a line of text. ``indent``: of further lines, where no word is to be cut."""
        clear_progress()
        sys.stdout.write(_for_terminal(printable(text), sys.stdout, indent) + "\n")

    def write(self, row: Row, columns: Sequence[str]) -> None:
        """Print a row; ``columns`` as in ``write_rows``."""
        match self._format:
            case Format.JSON:
                sys.stdout.write(",\n" if self._count else "[\n")
                sys.stdout.write(json_text(row))
            case Format.TABLE:
                self.line("  ".join(f"{each} {_tsv(row.get(each))}" for each in columns))
            case _:
                is_other_kind = columns != self._columns
                self._columns = columns
                header = self._has_header and is_other_kind
                write_rows([row], columns, self._format, header=header)
        self._count += 1


def write_object(value: Row, format_: Format) -> None:
    """Print one object as JSON, JSONL or YAML."""
    match format_:
        case Format.JSON:
            text = json_text(value, indent=2) + "\n"
        case Format.YAML:
            text = _yaml_mapping(value, 0)
        case _:
            text = json_text(value) + "\n"
    sys.stdout.write(text)


def table(rows: Sequence[Row], columns: Sequence[str], *, gap: int = 2, room: int = 0) -> str:
    """Return aligned columns under upper-case names; numbers to the right.

    ``gap``: blanks between columns. ``room``: of the first column; a longer text in it has a line
    of its own, above the rest of its row. 0: as much as its longest text takes.
    """
    if not rows:
        return ""
    texts = [[_cell(each, row.get(each)) for each in columns] for row in rows]
    heads = [each.upper().replace("_", " ") for each in columns]
    is_long = [room > 0 and cells(line[0]) > room for line in texts]
    above = [line[0] if long else "" for line, long in zip(texts, is_long, strict=True)]
    texts = [["", *line[1:]] if long else line for line, long in zip(texts, is_long, strict=True)]
    widths = [max(map(cells, column)) for column in zip(heads, *texts, strict=True)]
    is_number = [_is_number([row.get(each) for row in rows]) for each in columns]
    lines = []
    for head, line in zip(("", *above), (heads, *texts), strict=True):
        lines += [head] if head else []
        lines.append((" " * gap).join(map(_pad, line, widths, is_number)).rstrip())
    return "\n".join(lines) + "\n"


def fitted(rows: Sequence[Row], columns: Sequence[str], width: int) -> str:
    """Return a table that fits, or lines of name and value where none does; its head is bold."""
    longest = max(cells(_cell(columns[0], row.get(columns[0]))) for row in rows)
    over = 0
    for gap in (2, 1):
        text = table(rows, columns, gap=gap)
        over = max(map(cells, text.splitlines())) - width
        if over <= 0:
            return _with_bold_head(text)
    room = longest - over
    if len(columns) > 1 and room >= max(FIRST_COLUMN_MIN, len(columns[0])):
        return _with_bold_head(table(rows, columns, gap=1, room=room))
    return blocks(rows, columns)


def fits(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether a table of these is no wider than the terminal, if there is one."""
    lines = table(rows, columns).splitlines()
    return not sys.stdout.isatty() or max(map(cells, lines), default=0) <= width()


def _with_bold_head(text: str) -> str:
    head, _, rest = text.partition("\n")
    return f"{bold(head)}\n{rest}"


def _is_number(values: Sequence[Value]) -> bool:
    kinds = {type(each) for each in values} - {type(None)}
    return kinds == {int}


def blocks(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return each row as lines of name and value: what a terminal gets that is too narrow."""
    heads = [each.upper().replace("_", " ") for each in columns]
    room = max(map(len, heads), default=0)
    texts: list[str] = []
    for row in rows:
        lines = (
            f"{bold(head.ljust(room))}  {_cell(each, row.get(each))}"
            for head, each in zip(heads, columns, strict=True)
        )
        texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for each wide character."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(each) in _WITHOUT_WIDTH else 2 if east_asian_width(each) in "WF" else 1
        for each in text
    )


_WITHOUT_WIDTH = ("Mn", "Me", "Cf")
"""Unicode's categories of what stands on, or joins, other characters."""


def bold(text: str) -> str:
    """Return ``text`` in bold if standard output is a terminal that shows it (and no NO_COLOR)."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not _is_dumb():
        return f"\x1b[1m{text}\x1b[0m"
    return text


def answer(text: str) -> None:
    """Print a line that is the answer, on standard output: whatever names are in it."""
    clear_progress()
    sys.stdout.write(_for_terminal(printable(text, keep="\n"), sys.stdout, "  ") + "\n")


def note(text: str, *, indent: str | None = "  ") -> None:
    """Print a note for people on standard error; on a terminal no word of it is cut in two.

    ``indent``: of the further lines that this takes. None: it is for copying, and stays a line.
    """
    clear_progress()
    print(_for_terminal(printable(text, keep="\n"), sys.stderr, indent), file=sys.stderr)


def _for_terminal(text: str, stream: TextIO, indent: str | None) -> str:
    """Return ``text`` as ``stream`` shows it; ``indent`` as in ``note``."""
    return wrapped(text, indent) if indent is not None and stream.isatty() else text


def wrapped(text: str, indent: str = "  ") -> str:
    """Return a text with its long lines broken between words, for this terminal."""
    room = width()
    if cells(text) <= room:
        return text
    from textwrap import wrap

    lines: list[str] = []
    for line in text.split("\n"):
        if cells(line) <= room:
            lines.append(line)
            continue
        lines += wrap(
            line, room - 1, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False, drop_whitespace=True,
        )  # fmt: skip
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """Return ``1 record``, ``1,200 records``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


_progress_shown = False


def progress(text: str) -> None:
    """Show where a command is, on a terminal only; the next one, or nothing, takes its place."""
    global _progress_shown  # noqa: PLW0603 - one terminal
    if sys.stderr.isatty() and not _is_dumb():
        sys.stderr.write(f"\r\x1b[K{_cut(printable(text), width() - 1)}")
        sys.stderr.flush()
        _progress_shown = bool(text)


def clear_progress() -> None:
    """Take progress off the line that something else is about to be written on."""
    if _progress_shown:
        progress("")


def utc_text(timestamp_ms: int) -> str:
    """Return milliseconds since 1970 as ISO 8601 has them."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # Beyond the year 9999.
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_text(milliseconds: int) -> str:
    """Return a duration in two units at most: ``3m12s``, ``2d4h``, ``850ms``."""
    from ottla.config.human import duration_text

    for unit_ms, finer_ms in _COARSER:
        if milliseconds >= unit_ms:
            return duration_text(milliseconds - milliseconds % finer_ms)
    return duration_text(milliseconds)


_COARSER = ((86_400_000, 3_600_000), (3_600_000, 60_000), (60_000, 1000), (1000, 100))
"""From this age on (ms), what is finer (ms) is left out."""


def _is_dumb() -> bool:
    return os.environ.get("TERM", "") == "dumb"


def _pad(text: str, width: int, is_number: bool) -> str:
    room = " " * (width - cells(text))
    return room + text if is_number else text + room


def _cut(text: str, width: int) -> str:
    """Return as much of a text as fits."""
    text = text[:width]
    while cells(text) > width:
        text = text[:-1]
    return text


def _cell(name: str, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if name.endswith(_IDS) else f"{value:,}"
    return _tsv(value)


def _tsv(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{_tsv(key)}={_tsv(each)}" for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_tsv(each) for each in value)
    return printable(str(value).replace("\\", "\\\\"))


def _yaml_list(values: Sequence[Value], depth: int) -> str:
    lines: list[str] = []
    for value in values:
        if isinstance(value, Mapping) and value:
            body = _yaml_mapping(value, depth + 1)
            lines.append("  " * depth + "- " + body.lstrip())
        else:
            lines.append(f"{'  ' * depth}- {_yaml_scalar(value)}\n")
    return "".join(lines)


def _yaml_mapping(value: Mapping[str, Value], depth: int) -> str:
    lines: list[str] = []
    indent = "  " * depth
    for key, each in value.items():
        name = key if _is_plain_key(key) else _yaml_scalar(key)
        if isinstance(each, Mapping) and each:
            lines.append(f"{indent}{name}:\n{_yaml_mapping(each, depth + 1)}")
        elif isinstance(each, Sequence) and not isinstance(each, str) and each:
            lines.append(f"{indent}{name}:\n{_yaml_list(each, depth + 1)}")
        else:
            lines.append(f"{indent}{name}: {_yaml_scalar(each)}\n")
    return "".join(lines)


def _is_plain_key(key: str) -> bool:
    """Whether YAML takes a bare key for this text, and for nothing else."""
    bare = key.replace(".", "_").replace("-", "_")
    return bare.isascii() and bare.isidentifier() and key.lower() not in _YAML_WORDS


_YAML_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off"))


def _yaml_scalar(value: Value) -> str:
    # JSON's spelling of a scalar or an empty collection is YAML's as well, but for characters that
    # it escapes as two halves.
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(each if each.isprintable() else _yaml_escape(each) for each in text)


def _yaml_escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= _BMP_MAX else f"\\U{code:08x}"


_BMP_MAX = 0xFFFF
