"""The options of typed values: what ``value`` holds, and what it becomes.

The planner's side: no pyarrow. ``json_values`` and ``avro_values`` do the work on the executors.
Names and meanings of ``mode``, ``columnNameOfCorruptRecord`` and ``timeZone`` are those of Spark's
JSON reader, those of ``avroSchema`` and ``mode`` those of ``from_avro``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.types import DataType, StringType, StructType

from ottla.errors import OttlaError
from ottla.spark import option_table as names
from ottla.spark.connection import OptionError, whole_number
from ottla.spark.option_values import parsed
from ottla.spark.values.ddl import parse_schema

if TYPE_CHECKING:
    from ottla.spark.values.avro_schema import AvroType

CORRUPT_COLUMN_DEFAULT = "_corrupt_record"
SCHEMA_ID_MAX = 0x7FFFFFFF

Choice = TypeVar("Choice", bound=Enum)


class Mode(Enum):
    """What becomes of a value that is malformed."""

    PERMISSIVE = "permissive"
    """Columns that cannot be read are null, and the corrupt column has the value's text."""
    DROPMALFORMED = "dropmalformed"
    """The row is left out."""
    FAILFAST = "failfast"
    """The query fails."""


class Header(Enum):
    """What stands before an Avro datum."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero and the number of the schema in a registry, in four bytes."""


class MalformedValue(OttlaError):
    """A value that is not what its schema says, and the mode is FAILFAST."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """Values that are JSON of one schema. Travels to the executors by pickle."""

    schema_json: str
    """The columns of ``value``, which is a struct, as ``StructType.json()``."""
    mode: Mode
    corrupt_column: str
    time_zone: str
    """The time zone of times that do not say their own."""

    @property
    def schema(self) -> StructType:
        """The columns of ``value``."""
        return parse_schema(self.schema_json)


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Values that are Avro of one schema. Travels to the executors by pickle."""

    schema_json: str
    """The schema that values were written with, in Avro's JSON."""
    mode: Mode
    header: Header
    schema_id: int
    """The one that values must have in their header; -1: any."""
    columns_json: str = ""
    """The fields to have, as ``StructType.json()``; empty: all."""

    def parse(self) -> "AvroType":
        """Return what values are. Raises ValueError."""
        from ottla.spark.values.avro_schema import parse_avro_schema, select_fields

        found = parse_avro_schema(self.schema_json)
        if self.columns_json:
            return select_fields(found, parse_schema(self.columns_json))
        return found

    @property
    def schema(self) -> DataType:
        """The type of ``value``; what is permitted to be malformed may be null everywhere."""
        from ottla.spark.values.avro_schema import all_nullable

        kind = self.parse().kind
        return all_nullable(kind) if self.mode is Mode.PERMISSIVE else kind


ValueOptions = JsonOptions | AvroOptions


def parse_value_options(values: Mapping[str, str]) -> ValueOptions | None:
    """Return what the options say of values; None: they stay binary. Raises OptionError.

    ``values`` have names in lower case.
    """
    given = {name: values[name.lower()] for name in names.VALUE_OPTIONS if name.lower() in values}
    match given.pop(names.VALUE_FORMAT, "raw").strip().lower():
        case "raw":
            _refuse_others(given, ())
            return None
        case "json":
            _refuse_others(given, names.JSON_OPTIONS)
            return _json_options(given)
        case "avro":
            _refuse_others(given, names.AVRO_OPTIONS)
            return _avro_options(given)
        case other:
            message = f"option {names.VALUE_FORMAT} is raw, json or avro, not {other!r}"
            raise OptionError(message)


def _refuse_others(given: Mapping[str, str], meant: Collection[str]) -> None:
    for name in given:
        if name not in meant:
            formats = {"json": names.JSON_OPTIONS, "avro": names.AVRO_OPTIONS}
            having = " or ".join(each for each, options in formats.items() if name in options)
            message = f"option {name} has a meaning with {names.VALUE_FORMAT}={having} only"
            raise OptionError(message)


def _json_options(given: Mapping[str, str]) -> JsonOptions:
    schema = parsed(names.VALUE_SCHEMA, lambda: parse_schema(given.get(names.VALUE_SCHEMA, "")))
    corrupt = given.get(names.CORRUPT_COLUMN, CORRUPT_COLUMN_DEFAULT)
    if corrupt in schema.names and schema[corrupt].dataType != StringType():
        message = (
            f"option {names.VALUE_SCHEMA}: the column {corrupt} for malformed values must be a"
            " string"
        )
        raise OptionError(message)
    zone = _time_zone(given.get(names.TIME_ZONE, "UTC"))
    return JsonOptions(schema.json(), _mode(given, Mode.PERMISSIVE), corrupt, zone)


def _avro_options(given: Mapping[str, str]) -> AvroOptions:
    text = given.get(names.AVRO_SCHEMA)
    if text is None:
        message = f"option {names.AVRO_SCHEMA} is missing: the schema that values were written with"
        raise OptionError(message)
    header = _choice(given, names.AVRO_HEADER, Header.NONE)
    number = given.get(names.AVRO_SCHEMA_ID)
    if number is not None and header is Header.NONE:
        message = f"option {names.AVRO_SCHEMA_ID} has a meaning with {names.AVRO_HEADER} only"
        raise OptionError(message)
    schema_id = -1 if number is None else whole_number(names.AVRO_SCHEMA_ID, number, least=0)
    if schema_id > SCHEMA_ID_MAX:
        message = f"option {names.AVRO_SCHEMA_ID}: {schema_id} is above {SCHEMA_ID_MAX}"
        raise OptionError(message)
    options = AvroOptions(text, _mode(given, Mode.FAILFAST), header, schema_id)
    parsed(names.AVRO_SCHEMA, options.parse)
    columns = given.get(names.VALUE_SCHEMA)
    if columns is None:
        return options
    chosen = parsed(names.VALUE_SCHEMA, lambda: parse_schema(columns))
    options = replace(options, columns_json=chosen.json())
    parsed(names.VALUE_SCHEMA, options.parse)
    return options


def _mode(given: Mapping[str, str], default: Mode) -> Mode:
    return _choice(given, names.MODE, default)


def _choice(given: Mapping[str, str], name: str, default: Choice) -> Choice:
    kinds = type(default)
    try:
        return kinds(given.get(name, str(default.value)).strip().lower())
    except ValueError as error:
        found = ", ".join(each.name for each in kinds)
        message = f"option {name} is one of {found}, not {given[name]!r}"
        raise OptionError(message) from error


def _time_zone(name: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"option {names.TIME_ZONE}: {name!r} is no time zone such as Europe/Berlin"
        raise OptionError(message) from error
    return name.strip()
