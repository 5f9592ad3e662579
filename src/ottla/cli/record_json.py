"""Records as JSON lines, and back: what ``consume -o jsonl`` prints, ``produce --jsonl`` reads.

Owns how bytes look in JSON. Whatever a record holds comes back as it was:

    bytes   = null | "text" | {"base64": "..."}      the latter when they are no UTF-8
    headers = [["name", bytes], ...]                 in their order; a name may come twice

A person may write more: headers as an object, and any other JSON as a value, which is sent as its
text, to the letter: numbers keep their digits. Knows no cluster.
"""

import json
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from typing import NamedTuple, NoReturn

from ottla.ids import INT32_MAX, INT64_MAX, TopicPartition
from ottla.records.record import Record
from ottla.records.rows import FoundRow

Headers = tuple[tuple[str, bytes | None], ...]

BASE64 = "base64"
KEYS = {"key", "value", "headers", "partition", "timestamp", "topic", "offset"}
"""topic and offset are what ``record_json`` adds; they are not obeyed."""


class GivenRecord(NamedTuple):
    """What one line says."""

    has_key: bool
    """Whether it names a key, be it null."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def record_row(
    partition: TopicPartition, record: Record, meant: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the record as JSON's values.

    ``meant``: what replaces fields, or comes behind them.
    """
    shown: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_json(record.key),
        "value": bytes_json(record.value),
        "headers": headers_json(record.headers),
    }
    return shown if meant is None else shown | dict(meant)


def record_json(
    partition: TopicPartition, record: Record, meant: Mapping[str, object] | None = None
) -> bytes:
    """Return ``record_row`` as one line of JSON, without its end."""
    shown = record_row(partition, record, meant)
    # Half of a surrogate pair, which JSON may hold by an escape, has no UTF-8.
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "backslashreplace")


def rows_json(partition: TopicPartition, rows: Sequence[FoundRow]) -> list[bytes]:
    """Return records as ``record_json`` does, many in half of the time."""
    head = f'{{"topic": {encode_basestring(partition.topic)}, "partition": {partition.partition}, '
    lines = []
    for offset, timestamp, key, value, headers in rows:
        of_headers = json.dumps(headers_json(headers), ensure_ascii=False) if headers else "[]"
        text = (
            f'{head}"offset": {offset}, "timestamp": {timestamp}, "key": {_bytes_text(key)},'
            f' "value": {_bytes_text(value)}, "headers": {of_headers}}}'
        )
        lines.append(text.encode("utf-8", "backslashreplace"))
    return lines


def _bytes_text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return json.dumps(bytes_json(data))


def bytes_json(data: bytes | None) -> str | dict[str, str] | None:
    """Return ``data`` as JSON has it: text, or base64 where it is no text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {BASE64: b64encode(data).decode("ascii")}


def headers_json(headers: Headers) -> list[list[str | dict[str, str] | None]]:
    """Return the headers as pairs."""
    return [[name, bytes_json(value)] for name, value in headers]


def read_record_json(line: bytes) -> GivenRecord:
    """Return what a line says. Raises ValueError with the reason."""
    try:
        text = line.decode("utf-8-sig")
        found = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - input, not a type of ours
    unknown = found.keys() - KEYS
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}; known are {sorted(KEYS)}")
    key, value, headers = found.get("key"), found.get("value"), found.get("headers")
    texts: dict[str, str] = {}
    if headers or not (_is_plain(key) and _is_plain(value)):
        texts = dict(_members(text))
    return GivenRecord(
        "key" in found,
        _bytes(key, texts.get("key", "")),
        _bytes(value, texts.get("value", "")),
        _headers(headers, texts.get("headers", "")),
        _number(found, "partition", 0, INT32_MAX),
        _number(found, "timestamp", -1, INT64_MAX),
    )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str)


def _skip(text: str, at: int) -> int:
    """Return the position of the next character at or after ``at`` that is no white space."""
    while text[at] in " \t\r\n":
        at += 1
    return at


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each member of an object, which is known to be good JSON."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, begin)
        yield name, text[begin:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _elements(text: str) -> Iterator[str]:
    """Yield the text of each element of an array, which is known to be good JSON."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        begin = at
        _, at = _DECODER.raw_decode(text, begin)
        yield text[begin:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _number(found: dict[str, object], name: str, least: int, most: int) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _headers(found: object, text: str) -> Headers:
    """Return the headers that ``found`` stands for, which was read from ``text``."""
    if found is None or found in ([], {}):
        return ()
    if isinstance(found, dict):
        texts = dict(_members(text))
        return tuple((_name(name), _bytes(value, texts[name])) for name, value in found.items())
    if not isinstance(found, list):
        raise ValueError(_HEADERS)  # noqa: TRY004 - the same
    pairs: list[tuple[str, bytes | None]] = []
    for each, pair in zip(found, _elements(text), strict=True):
        if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
            raise ValueError(_HEADERS)
        _, value = _elements(pair)
        pairs.append((_name(each[0]), _bytes(each[1], value)))
    return tuple(pairs)


_HEADERS = 'headers must be pairs, [["name", "value"], ...], or an object'


def _name(text: str) -> str:
    _encoded(text)
    return text


def _bytes(value: object, text: str) -> bytes | None:
    """Return the bytes that ``value`` stands for, which was read from ``text``."""
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, dict) and value.keys() == {BASE64} and isinstance(value[BASE64], str):
        from base64 import b64decode

        try:
            return b64decode(value[BASE64], validate=True)
        except (NotBase64, ValueError) as error:
            raise ValueError(f"not base64: {error}") from error
    return _encoded(text)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair is no text: {error}") from error
