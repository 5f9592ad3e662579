r"""What ``ottla cat`` prints of a record: formats, JSON and packed numbers, byte for byte kcat's.

Owns kcat's own ways of reading a format, which are not those of ``record_format``: ``\101`` is
decimal, ``\x`` takes as many digits as there are, a zero byte ends a literal. Does no I/O.
Source: kcat 1.7.1, as it behaves.
"""

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from ottla.ids import TopicPartition
from ottla.records.batch import TimestampType
from ottla.records.record import Record

NULL = b"NULL"
FORMAT_MAX_BYTES = 63
"""As much kcat keeps of a format that it makes from -K and -D."""

Part = Callable[[TopicPartition, Record], bytes]
Show = Callable[[TopicPartition, Record], bytes]
BrokerOf = Callable[[TopicPartition], int]
Unpack = Callable[[bytes], bytes]


class Look(NamedTuple):
    """What the options say about the look of a record."""

    null: bytes = b""
    """What stands for a key or value that is null or empty."""
    unpack_key: Unpack | None = None
    unpack_value: Unpack | None = None


def parse_delimiter(text: bytes) -> bytes:
    r"""Return what -D or -K means: ``\n``, ``\t`` and ``\xNN``, nothing else. Raises ValueError."""
    while (at := text.find(b"\\n")) >= 0:
        text = text[:at] + b"\n" + text[at + 2 :]
    while (at := text.find(b"\\t")) >= 0:
        text = text[:at] + b"\t" + text[at + 2 :]
    while (at := text.find(b"\\x")) >= 0:
        digits = re.match(rb"[0-9a-fA-F]+", text[at + 2 :])
        if digits is None:
            raise ValueError(f"{text!r}: \\x is followed by no hexadecimal number")
        end = at + 2 + digits.end()
        text = text[:at] + bytes([int(digits[0], 16) & 0xFF]) + text[end:]
    return text.partition(b"\0")[0]


def default_format(delimiter: bytes, key_delimiter: bytes | None) -> bytes:
    """Return the format that -K and -D stand for."""
    if key_delimiter is None:
        return (b"%s" + delimiter)[:FORMAT_MAX_BYTES]
    return (b"%k" + key_delimiter + b"%s" + delimiter)[:FORMAT_MAX_BYTES]


def compile_format(text: bytes, look: Look) -> Show:
    """Return a function that prints a record by a format. Raises ValueError."""
    parts: list[Part] = []
    printers = _printers(look)
    for literal, token in split_format(text):
        if token:
            parts.append(printers[token])
        elif literal:
            parts.append(_literal(literal))

    def show(partition: TopicPartition, record: Record) -> bytes:
        return b"".join([part(partition, record) for part in parts])

    return show


def first_literal(text: bytes) -> bytes:
    """Return what a format begins with before its first token: -J prints it behind a record."""
    pieces = split_format(text)
    return pieces[0][0] if pieces else b""


def split_format(text: bytes) -> list[tuple[bytes, str]]:
    """Return the format's pieces: a literal, or a token of one letter. Raises ValueError."""
    pieces: list[tuple[bytes, str]] = []
    while text:
        literal, percent, rest = text.partition(b"%")
        if literal:
            pieces.append((_unescape(literal), ""))
        if not percent:
            break
        letter = rest[:1].decode("latin-1")
        text = rest[1:]
        if letter == "%":
            pieces.append((b"%", ""))
        elif letter in _TOKENS and letter:
            pieces.append((b"", letter))
        else:
            raise ValueError(f"%{letter} is not one of {' '.join('%' + each for each in _TOKENS)}")
    return pieces


_TOKENS = "okKsSRtpTh"
_LETTERS = {"t": b"\t", "n": b"\n", "r": b"\r"}


def _unescape(text: bytes) -> bytes:
    result = bytearray()
    at = 0
    while at < len(text):
        if text[at : at + 1] != b"\\" or at + 1 >= len(text):
            result += text[at : at + 1]
            at += 1
            continue
        letter = text[at + 1 : at + 2].decode("latin-1")
        at += 2
        if letter in _LETTERS:
            result += _LETTERS[letter]
            continue
        if letter == "x":
            at += 1
        digits = _number(text[at - 1 :], is_hex=letter == "x")
        if digits is None:
            result += text[at - 1 : at]
        else:
            result.append(digits[0] & 0xFF)
            at += digits[1] - 1
    return bytes(result).partition(b"\0")[0]


def _number(text: bytes, *, is_hex: bool) -> tuple[int, int] | None:
    """Return the number that ``text`` begins with and its length; None if with no digit."""
    if not text[:1].isdigit():
        return None
    if is_hex:
        pattern, base = rb"(0[xX](?=[0-9a-fA-F]))?[0-9a-fA-F]+", 16
    elif re.match(rb"0[xX][0-9a-fA-F]", text):
        pattern, base = rb"0[xX][0-9a-fA-F]+", 16
    elif text[:1] == b"0":
        pattern, base = rb"[0-7]+", 8
    else:
        pattern, base = rb"[0-9]+", 10
    found = re.match(pattern, text)
    assert found is not None
    return int(found[0], base), found.end()


def _literal(data: bytes) -> Part:
    return lambda *_: data


def _printers(look: Look) -> dict[str, Part]:
    null, unpack_key, unpack_value = look

    def key(_: TopicPartition, record: Record) -> bytes:
        data = record.key
        if not data:
            return null
        return data if unpack_key is None else unpack_key(data)

    def value(_: TopicPartition, record: Record) -> bytes:
        data = record.value
        if not data:
            return null
        return data if unpack_value is None else unpack_value(data)

    return {**_PRINTERS, "k": key, "s": value}


_PRINTERS: dict[str, Part] = {
    "o": lambda _, record: b"%d" % record.offset,
    "K": lambda _, record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda _, record: b"%d" % (-1 if record.value is None else len(record.value)),
    "R": lambda _, record: struct.pack(">i", -1 if record.value is None else len(record.value)),
    "t": lambda partition, _: partition.topic.encode(),
    "p": lambda partition, _: b"%d" % partition.partition,
    "T": lambda _, record: b"%d" % record.timestamp,
    "h": lambda _, record: _headers(record),
}


def _headers(record: Record) -> bytes:
    """Return ``name=value,...``; a zero byte ends a name or value."""
    return b",".join(
        _c_text(name.encode("utf-8", "surrogateescape"))
        + b"="
        + (NULL if value is None else _c_text(value))
        for name, value in record.headers
    )


def _c_text(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


def compile_json(delimiter: bytes, broker_of: BrokerOf, look: Look) -> Show:
    """Return a function that prints a record as -J does, with ``delimiter`` behind it."""
    heads: dict[TopicPartition, tuple[bytes, bytes]] = {}
    unpack_key, unpack_value = look.unpack_key, look.unpack_value

    def head_of(partition: TopicPartition) -> tuple[bytes, bytes]:
        topic = json_string(partition.topic.encode())
        start = b'{"topic":%b,"partition":%d,"offset":' % (topic, partition.partition)
        return start, b',"broker":%d' % broker_of(partition)

    def show(partition: TopicPartition, record: Record) -> bytes:
        head = heads.get(partition)
        if head is None:
            head = heads[partition] = head_of(partition)
        kind = _TYPES.get(record.timestamp_type)
        time = b"" if kind is None else b',"tstype":"%b","ts":%d' % (kind, record.timestamp)
        headers = _json_headers(record) if record.headers else b""
        key = _json_bytes(record.key, unpack_key)
        value = _json_bytes(record.value, unpack_value)
        return b'%b%d%b%b%b,"key":%b,"payload":%b}%b' % (
            head[0],
            record.offset,
            time,
            head[1],
            headers,
            key,
            value,
            delimiter,
        )

    return show


_TYPES = {TimestampType.CREATE_TIME: b"create", TimestampType.LOG_APPEND_TIME: b"logappend"}


def _json_headers(record: Record) -> bytes:
    texts: list[bytes] = []
    for name, value in record.headers:
        texts.append(json_string(_c_text(name.encode("utf-8", "surrogateescape"))))
        texts.append(_json_bytes(value, None))
    return b',"headers":[%b]' % b",".join(texts)


def _json_bytes(data: bytes | None, unpack: Unpack | None) -> bytes:
    if data is None:
        return b"null"
    return json_string(data) if unpack is None else json_string(unpack(data))


def json_string(data: bytes) -> bytes:
    """Return bytes as a JSON string: what is no UTF-8 stays as it is."""
    if _SPECIAL.search(data) is None:
        return b'"%b"' % data
    return b'"%b"' % _SPECIAL.sub(_escaped, data)


_SPECIAL = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = {
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\r": b"\\r",
    b"\n": b"\\n",
    b"\f": b"\\f",
    b"\b": b"\\b",
    b"\t": b"\\t",
}


def _escaped(found: re.Match[bytes]) -> bytes:
    known = _ESCAPES.get(found[0])
    return b"\\u%04X" % found[0][0] if known is None else known


def compile_unpack(text: str) -> Unpack:
    """Return a function that prints packed numbers (-s). It raises ValueError, as this does.

    Unlike kcat, which reads all as big-endian, ``<`` means what its help says.
    """
    for letter in text:
        if letter not in " <>cs$" and letter not in _NUMBERS:
            raise ValueError(f"{letter!r} is not one of < > b B h H i I q Q c s $ and space")
    if not text:
        raise ValueError("the format is empty")

    def unpack(data: bytes) -> bytes:
        texts: list[bytes] = []
        order, at = ">", 0
        for letter in text:
            if letter in "<>":
                order = letter
                continue
            shown, taken = _unpack_one(order, letter, data[at:])
            texts.append(shown)
            at += taken
        return b"".join(texts)

    return unpack


_NUMBERS = "bBhHiIqQ"


def _unpack_one(order: str, letter: str, data: bytes) -> tuple[bytes, int]:
    """Return what a letter prints, and how many bytes it takes. Raises ValueError."""
    if letter in _NUMBERS:
        size = struct.calcsize(order + letter)
        if len(data) < size:
            raise ValueError(f"{len(data)} bytes remain, too few for {letter}")
        return b"%d" % struct.unpack_from(order + letter, data)[0], size
    if letter == "c":
        return data[:1], 1
    if letter == "s":
        return _c_text(data), len(data)
    if letter == "$" and data:
        raise ValueError(f"{len(data)} bytes remain behind the end")
    return (b" " if letter == " " else b""), 0
