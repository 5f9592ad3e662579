r"""Records to text and back, by formats like ``'%k\t%v\n'``.

Owns the percent tokens, which are kcat's where kcat has them: %t topic, %p partition, %o offset, %k
key, %s or %v value, %T timestamp in ms, %h headers as name=value,..., %K and %S lengths, %%.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from ottla.ids import INT32_MAX, INT64_MAX, TopicPartition
from ottla.records.rows import FoundRow

NULL = b"NULL"
Headers = tuple[tuple[str, bytes | None], ...]
Column = Callable[[Sequence[FoundRow]], Iterable[bytes | int]]
ShowRows = Callable[[TopicPartition, Sequence[FoundRow]], list[bytes]]
"""Returns each record as it is printed."""


def compile_output(text: str) -> ShowRows:
    """Return a function that prints records by the format. Raises ValueError.

    Many at a time: nothing is done for one record but what the format asks for.
    """
    pieces = _split(text)
    template = b""
    for literal, token in pieces:
        template += literal.replace(b"%", b"%%")
        if token:
            if token not in _COLUMNS and token not in _PLACES:
                raise ValueError(f"%{token} is not one of %t %p %o %k %v %s %T %h %K %S %%")
            template += b"%d" if token in _NUMBERS else b"%b"
    tokens = [token for _, token in pieces if token]
    if not tokens:
        fixed = template % ()
        return lambda _, rows: [fixed] * len(rows)

    def show(partition: TopicPartition, rows: Sequence[FoundRow]) -> list[bytes]:
        columns = [
            repeat(_PLACES[token](partition), len(rows))
            if token in _PLACES
            else _COLUMNS[token](rows)
            for token in tokens
        ]
        return list(map(template.__mod__, zip(*columns, strict=True)))

    return show


class Fields(NamedTuple):
    """What a format finds in a line; None and empty: it does not ask for it."""

    key: bytes | None
    value: bytes
    headers: Headers = ()
    partition: int | None = None
    topic: str | None = None
    timestamp_ms: int | None = None


def compile_input(text: str) -> Callable[[bytes], Fields]:
    """Return a function that splits a line into its fields by the format. Raises ValueError.

    The format has %v (or %s), perhaps %k %h %p %t %T, and between two tokens a separator. A
    trailing newline in the format stands for the end of the line.
    """
    pieces = _split(text.removesuffix("\\n"))
    tokens = [_SAME.get(token, token) for _, token in pieces if token]
    if "v" not in tokens or len({*tokens}) < len(tokens) or {*tokens} - {*"kvhptT"}:
        raise ValueError("an input format has one %v and at most one of each of %k %h %p %t %T")
    literals = [literal for literal, _ in pieces]
    literals += [b""] * (len(tokens) + 1 - len(literals))
    if not all(literals[1 : len(tokens)]):
        both = " and ".join(f"%{each}" for each in tokens[:2])
        raise ValueError(f"an input format needs a separator between {both}")

    def split(line: bytes) -> Fields:
        fields: dict[str, bytes] = {}
        if not line.startswith(literals[0]):
            raise ValueError(f"the line does not begin with {_quoted(literals[0])}")
        rest = line[len(literals[0]) :]
        for token, end in zip(tokens, literals[1:], strict=True):
            field, found, rest = rest.partition(end) if end else (rest, b"", b"")
            if end and not found:
                raise ValueError(f"the line has no {_quoted(end)}")
            fields[token] = field
        if len(fields) <= _KEY_AND_VALUE and fields.keys() <= {"k", "v"}:
            return Fields(fields.get("k"), fields["v"])
        return _typed(fields)

    return split


def key_separator(text: str) -> bytes | None:
    """Return what stands between key and value, if that is all that an input format says."""
    match _split(text.removesuffix("\\n")):
        case [(b"", "k"), (separator, "v" | "s")] if separator:
            return separator
    return None


_KEY_AND_VALUE = 2


def _typed(fields: dict[str, bytes]) -> Fields:
    """Return fields of which some are no bytes. Raises ValueError."""
    partition, time, topic = fields.get("p"), fields.get("T"), fields.get("t")
    return Fields(
        fields.get("k"),
        fields["v"],
        headers_of(fields.get("h", b"")),
        None if partition is None else _whole(partition, "%p", INT32_MAX),
        None if topic is None else topic.decode("utf-8", "surrogateescape"),
        None if time is None else _whole(time, "%T", INT64_MAX),
    )


def _whole(text: bytes, token: str, most: int) -> int:
    if not text.isdigit() or len(text) > len(str(most)) or int(text) > most:
        raise ValueError(f"{token} is {_quoted(text)}, not a whole number up to {most}")
    return int(text)


def headers_of(text: bytes) -> Headers:
    """Return the headers that ``name=value,...`` says, as %h prints them: NULL is null.

    Raises ValueError.
    """
    headers: list[tuple[str, bytes | None]] = []
    for each in text.split(b",") if text else ():
        name, equals, value = each.partition(b"=")
        try:
            decoded = name.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the name of a header, {name!r}, is not UTF-8") from error
        headers.append((decoded, None if not equals or value == NULL else value))
    return tuple(headers)


def headers_text(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return ``name=value,...``, as kcat prints headers."""
    return b",".join(
        name.encode() + b"=" + (NULL if value is None else value) for name, value in headers
    )


def unescape(text: str) -> bytes:
    r"""Return the bytes of a format's literal: ``\n``, ``\t``, ``\r``, ``\0``, ``\xNN``, ``\\``."""
    result = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character != "\\" or not following:
            result += character.encode()
            position += 1
        elif following == "x" and _is_hex(text[position + 2 : position + 4]):
            result.append(int(text[position + 2 : position + 4], 16))
            position += 4
        else:
            result += _ESCAPES.get(following, following.encode())
            position += 2
    return bytes(result)


def _quoted(literal: bytes) -> str:
    return repr(literal.decode("utf-8", "backslashreplace"))


_SAME = {"s": "v"}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0"}

_COLUMNS: dict[str, Column] = {
    "o": lambda rows: [row[0] for row in rows],
    "T": lambda rows: [row[1] for row in rows],
    "k": lambda rows: [row[2] or b"" for row in rows],
    "v": lambda rows: [row[3] or b"" for row in rows],
    "s": lambda rows: [row[3] or b"" for row in rows],
    "h": lambda rows: [headers_text(row[4]) for row in rows],
    "K": lambda rows: [-1 if row[2] is None else len(row[2]) for row in rows],
    "S": lambda rows: [-1 if row[3] is None else len(row[3]) for row in rows],
}
_PLACES: dict[str, Callable[[TopicPartition], bytes | int]] = {
    "t": lambda partition: partition.topic.encode(),
    "p": lambda partition: partition.partition,
}
_NUMBERS = "opTKS"


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(each in "0123456789abcdefABCDEF" for each in text)


def _split(text: str) -> list[tuple[bytes, str]]:
    """Return (literal, token behind it) pairs; the last token may be empty."""
    pieces: list[tuple[bytes, str]] = []
    literal = ""
    position = 0
    while position < len(text):
        if text[position] != "%":
            literal += text[position]
            position += 1
            continue
        token = text[position + 1 : position + 2]
        position += 2
        if token in ("%", ""):
            literal += "%"
        else:
            pieces.append((unescape(literal), token))
            literal = ""
    if literal:
        pieces.append((unescape(literal), ""))
    return pieces
