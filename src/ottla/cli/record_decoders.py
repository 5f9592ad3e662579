"""``consume --decode``: what the bytes of keys and values mean to a person or a script.

Owns the decoders' names. What cannot be decoded is shown as it is, and marked: never hidden.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.cli.near import did_you_mean
from ottla.cli.output import json_text
from ottla.records.record import Record

Decode = Callable[[bytes], object]
NUMBERS = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float": "f",
    "double": "d",
}
"""Big-endian, as Kafka's serializers have them; with ``le`` behind the name little-endian."""
OF_A_REGISTRY = ("avro", "protobuf", "json-schema")
OF_A_FILE = ("avro", "protobuf")
"""With the schema's file behind them, these need no registry."""
NAMES = ("json", "msgpack", *OF_A_REGISTRY, "hex", "base64", "text", *NUMBERS)


class Shown(NamedTuple):
    """A record with what its bytes mean."""

    key: object
    value: object
    faults: dict[str, str]
    """Why ``key`` or ``value`` could not be decoded; they are then the bytes."""

    def json(self) -> dict[str, object]:
        """Return the fields that JSON shows otherwise because of it: ``undecoded`` says why not."""
        fields = {"key": self.key, "value": self.value}
        told: dict[str, object] = {
            name: each for name, each in fields.items() if not isinstance(each, bytes)
        }
        return told | {"undecoded": self.faults} if self.faults else told


class Decoders:
    """What ``--decode`` says: of keys, of values; None: shown as they are."""

    def __init__(self, texts: Sequence[str], registry: str | None = None) -> None:
        """Read ``HOW`` (of values), ``key=HOW`` and ``value=HOW``. Raises ValueError, Failure.

        ``registry``: a schema registry's URL.
        """
        self.key: Decode | None = None
        self.value: Decode | None = None
        self.names: dict[str, str] = {}
        self.fault_count = 0
        for text in texts:
            field, equals, how = text.partition("=")
            if not equals:
                field, how = "value", text
            if field not in ("key", "value"):
                raise ValueError(f"--decode {text}: expected HOW, key=HOW or value=HOW")
            self.names[field] = how
            setattr(self, field, _decoder(how, field, registry))

    def __bool__(self) -> bool:
        return bool(self.names)

    def show(self, record: Record) -> Shown:
        """Return what a record means."""
        faults: dict[str, str] = {}
        key = self._one("key", self.key, record.key, faults)
        value = self._one("value", self.value, record.value, faults)
        self.fault_count += len(faults)
        return Shown(key, value, faults)

    def texts(self, record: Record) -> Record:
        """Return the record with key and value as the text of what they mean."""
        shown = self.show(record)
        return record._replace(
            key=_text(record.key, shown.key), value=_text(record.value, shown.value)
        )

    def _one(
        self, field: str, decode: Decode | None, data: bytes | None, faults: dict[str, str]
    ) -> object:
        if decode is None or data is None:
            return data
        try:
            return decode(data)
        except ValueError as error:
            faults[field] = f"not {self.names[field].partition(':')[0]}: {error}"
            return data


def _text(data: bytes | None, meant: object) -> bytes | None:
    """Return what ``data`` means as one line of text; as it is where nothing is known of it."""
    if data is None or isinstance(meant, bytes):
        return data
    text = meant if isinstance(meant, str) else json_text(meant)
    return text.encode("utf-8", "backslashreplace")


def _decoder(how: str, field: str, registry: str | None) -> Decode:
    for name, order in ((how, ">"), (how.removesuffix("le"), "<")):
        if name in NUMBERS:
            return _number(order + NUMBERS[name])
    kind, colon, place = how.partition(":")
    if colon and kind in OF_A_FILE:
        from ottla.cli.record_schema_files import file_decoder

        decode_file = file_decoder(kind, place)
        return lambda data: _as_json(decode_file(data))
    if how in OF_A_REGISTRY:
        from ottla.cli.record_schemas import registry_decoder

        decode = registry_decoder(how, registry, field)
        return lambda data: _as_json(decode(data))
    match how:
        case "json":
            from ottla.cli.record_where import json_of

            return json_of
        case "msgpack":
            return _message_pack()
        case "hex":
            return bytes.hex
        case "base64":
            from base64 import b64encode

            return lambda data: b64encode(data).decode("ascii")
        case "text":
            return bytes.decode
    hint = did_you_mean(how, NAMES) or f"there are {', '.join(NAMES)}"
    raise ValueError(f"--decode {how!r} is not one of them; {hint}")


def _number(layout: str) -> Decode:
    from struct import Struct

    struct = Struct(layout)

    def decode(data: bytes) -> object:
        if len(data) != struct.size:
            raise ValueError(f"{len(data)} bytes, not {struct.size}")
        number: int | float = struct.unpack(data)[0]
        if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            return str(number)
        return number

    return decode


def _message_pack() -> Decode:
    from importlib import import_module

    try:
        unpack = import_module("msgpack").unpackb
    except ImportError as error:
        raise ValueError("msgpack is missing: pip install 'ottla[msgpack]'") from error

    def decode(data: bytes) -> object:
        try:
            return _as_json(unpack(data, strict_map_key=False))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error) or type(error).__name__) from error

    return decode


def _as_json(value: object) -> object:
    """Return a decoded value as JSON can have it: bytes as base64, keys as text."""
    from ottla.cli.record_json import bytes_json

    match value:
        case bytes():
            return bytes_json(value)
        case dict():
            return {
                each if isinstance(each, str) else json_text(_as_json(each)): _as_json(one)
                for each, one in value.items()
            }
        case list() | tuple():
            return [_as_json(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)
