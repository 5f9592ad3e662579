"""Turns the text of a configuration file, and ``-D key=value``, into a broker's Config.

Owns the syntax of Java's properties and of TOML as far as options use it, and what happens to keys
that the table does not have. Reads no file: the caller does. Used once, at the start.
Source: the format description in java.util.Properties' documentation; TOML 1.0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.config.authorization import has_authorizer
from ottla.config.broker import ADVERTISED_LISTENERS, BROKER_TABLE, LISTENERS, NODE_ID
from ottla.config.config import Config, Layer
from ottla.config.human import plain
from ottla.config.option import InvalidConfig, Source
from ottla.config.security import ServedListener, served_listeners
from ottla.config.unused import NO_KRAFT, RENAMED, why_passed_over, why_refused

_CONTROLLER_NAMES = "controller.listener.names"
_WHITESPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Given(NamedTuple):
    """The options that a file or command line sets, and notes about keys that are ignored."""

    texts: dict[str, str]
    notes: list[str]


def broker_config(*texts: Mapping[str, str]) -> Config:
    """Return the broker's configuration; of several mappings the last one wins.

    ``node.id`` counts as set even when it is not: in Kafka it has to be set, and DescribeConfigs
    shows it so.
    """
    merged = {NODE_ID.key: str(NODE_ID.default)}
    for mapping in texts:
        merged.update(mapping)
    config = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, merged))
    listeners_of(config)
    has_authorizer(config)  # Raises what relies on one that is not there.
    return config


def listeners_of(config: Config) -> tuple[ServedListener, ...]:
    """Return what each listener serves. Raises InvalidConfig for what cannot be served."""
    return served_listeners(config, config[LISTENERS], config[ADVERTISED_LISTENERS])


def sort_out(texts: Mapping[str, str]) -> Given:
    """Return the texts whose keys are broker options, and a note about each key that is ignored.

    Raises InvalidConfig for a key that neither Ottla nor Kafka knows, naming similar ones, and for
    a key that must not be ignored (``ottla.config.unused``).
    """
    known: dict[str, str] = {}
    notes: list[str] = []
    controllers = texts.get(_CONTROLLER_NAMES, "")
    for key, given in texts.items():
        text = given
        if key in (LISTENERS.key, ADVERTISED_LISTENERS.key):
            text, dropped = without_controllers(key, given, controllers)
            notes += [f"{each} of {key} is ignored: {NO_KRAFT}" for each in dropped]
        name = RENAMED.get(key, key)
        if name in BROKER_TABLE:
            known[name] = text
        elif why := why_refused(key):
            raise InvalidConfig(key, None, f"{key} cannot be honoured: {why}")
        elif why := why_passed_over(key):
            notes.append(f"{key} is ignored: {why}")
        else:
            raise InvalidConfig(key, None, unknown_key(key))
    return Given(known, notes)


def without_controllers(key: str, listeners: str, names: str) -> tuple[str, list[str]]:
    """Return a list of listeners without those named in ``names`` (``A,B``), and those left out.

    Kafka's own files have one for the KRaft controller, where no client calls. Raises InvalidConfig
    when no other is there.
    """
    controllers = {name.strip().upper() for name in names.split(",") if name.strip()}
    rest: list[str] = []
    dropped: list[str] = []
    for each in listeners.split(","):
        name = each.partition("://")[0].strip().upper()
        (dropped if name in controllers else rest).append(each.strip())
    if dropped and not rest:
        why = (
            f"{key}: only a controller's listener is there ({_CONTROLLER_NAMES}), none for clients"
        )
        raise InvalidConfig(key, None, why)
    return ",".join(rest), dropped


def unknown_key(key: str) -> str:
    """Return the message about an unknown broker option, with up to three similar names."""
    near = BROKER_TABLE.nearest(key)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"Unknown broker config name: {key}{hint}"


def read_definitions(definitions: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of ``-D key=value`` texts; ``7d`` and ``1GiB`` become integers.

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
    """Return the keys and values of a TOML file; nested tables and dotted keys are joined by dots.

    Raises InvalidConfig when the text is not TOML. A file with ``max.connections`` and
    ``max.connections.per.ip`` needs quotes around one of them, by TOML's rules.
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
