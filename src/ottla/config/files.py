"""From the text of a configuration file, and ``-D key=value``, to a broker's Config.

Owns the syntax of Java's properties and of TOML as far as options use it, and what happens to keys
that the table does not have. Knows no path: the caller reads the file. Called once, at start.
Source: the format description in java.util.Properties' documentation; TOML 1.0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.config.broker import BROKER_TABLE, NODE_ID
from ottla.config.config import Config, Layer
from ottla.config.human import plain
from ottla.config.option import InvalidConfig, Source
from ottla.config.unused import RENAMED, why_passed_over, why_refused

_WHITESPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Given(NamedTuple):
    """What a file or command line sets, and notes about what it sets in vain."""

    texts: dict[str, str]
    notes: list[str]


def broker_config(*texts: Mapping[str, str]) -> Config:
    """Return the broker's configuration; of several mappings the later wins.

    A node has its number from its start, said or not: Kafka must be told, so it tells it as set.
    """
    merged = {NODE_ID.key: str(NODE_ID.default)}
    for mapping in texts:
        merged.update(mapping)
    return Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, merged))


def sort_out(texts: Mapping[str, str]) -> Given:
    """Tell a broker's options apart: those of the table, and notes about those passed over.

    Raises InvalidConfig for a key that nobody knows (naming close ones) or that must not be
    ignored.
    """
    known: dict[str, str] = {}
    notes: list[str] = []
    for key, text in texts.items():
        name = RENAMED.get(key, key)
        if name in BROKER_TABLE:
            known[name] = text
        elif why := why_refused(key, text):
            raise InvalidConfig(key, None, f"{key} cannot be honoured: {why}")
        elif why := why_passed_over(key, text):
            notes.append(f"{key} is ignored: {why}")
        else:
            raise InvalidConfig(key, None, unknown_key(key))
    return Given(known, notes)


def unknown_key(key: str) -> str:
    """Return the sentence about an unknown broker option, with the names it may have meant."""
    near = BROKER_TABLE.nearest(key)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"Unknown broker config name: {key}{hint}"


def read_definitions(definitions: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of ``-D key=value`` texts, human sizes and durations made plain.

    Raises InvalidConfig for a text without ``=`` and for a value like 7x.
    """
    texts: dict[str, str] = {}
    for definition in definitions:
        key, equals, value = definition.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidConfig(key, None, f"{definition!r} is not of the form key=value")
        name = RENAMED.get(key, key)
        texts[key] = plain(BROKER_TABLE[name], value) if name in BROKER_TABLE else value
    return texts


def read_toml(text: str) -> dict[str, str]:
    """Return the keys and values of a TOML file: tables and dotted keys alike join with dots.

    Raises InvalidConfig when it is no TOML. ``max.connections`` beside ``max.connections.per.ip``
    needs quotes around one of them, as TOML has it.
    """
    import tomllib  # noqa: PLC0415 - 20 ms, and few configurations are TOML

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = ' (put quotes around a key that is also the beginning of another: "max.connections")'
        raise InvalidConfig(
            "", None, f"not TOML: {error}{hint if 'overwrite' in str(error) else ''}"
        ) from error
    return dict(_flatten(tree, ""))


def _flatten(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, ",".join(str(part) for part in value)
        elif isinstance(value, bool):
            yield prefix + key, "true" if value else "false"
        else:
            yield prefix + key, str(value)


def read_properties(text: str) -> dict[str, str]:
    r"""Return the keys and values of a Java properties file.

    Comments (``#``, ``!``), continued lines, ``=``, ``:`` or blanks as separator, and escapes as
    Java has them. Of equal keys the last wins. Raises InvalidConfig for a broken ``\uXXXX``.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split_property(line)
        properties[_unescape(key)] = _unescape(value).strip()
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_WHITESPACE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def _split_property(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _WHITESPACE:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_WHITESPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITESPACE)
    return line[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            parts.append(_unicode_escape(text[position : position + 4]))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)


def _unicode_escape(digits: str) -> str:
    try:
        if len(digits) == len("XXXX"):
            return chr(int(digits, 16))
    except ValueError:
        pass
    raise InvalidConfig(
        "", None, f"\\u must be followed by four hexadecimal digits, not {digits!r}"
    )
