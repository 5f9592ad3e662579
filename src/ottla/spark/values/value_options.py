"""The options of typed values: what ``value`` holds, and what it becomes.

The planner's side: no pyarrow. ``json_values`` and ``avro_values`` do the work on the executors.
Names and meanings of ``mode``, ``columnNameOfCorruptRecord`` and ``timeZone`` are those of Spark's
JSON reader, those of ``avroSchema`` and ``mode`` those of ``from_avro``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.types import DataType, StringType, StructType

from ottla.errors import OttlaError
from ottla.spark import option_table as names
from ottla.spark.connection import OptionError, whole_number
from ottla.spark.option_values import parsed
from ottla.spark.values.ddl import parse_schema

if TYPE_CHECKING:
    from ottla.schemas.registry import SchemaRegistry
    from ottla.schemas.schema import Schema
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
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The settings of the registry that knows what each value was written with; empty: none."""
    subject: str = ""
    """Of which the schema is the newest there; empty: the schema was given."""

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
        is_free = self.mode is Mode.PERMISSIVE or bool(self.registry)
        return all_nullable(kind) if is_free else kind

    def earlier(self, is_wanted: Callable[[DataType], bool]) -> "AvroOptions | None":
        """Return the options with the newest schema of the subject whose type is wanted.

        For what was made before the subject got its newest schema. None: there is no such schema.
        Asks the registry. Raises OptionError.
        """
        if not self.subject:
            return None
        registry = _registry(self.registry)
        with _told():
            for version in sorted(registry.versions(self.subject), reverse=True):
                found = registry.version(self.subject, version).schema
                if _why_not(found) is not None:
                    continue
                options = replace(self, schema_json=found.text)
                with suppress(ValueError):  # the columns that are asked for came later
                    if is_wanted(options.schema):
                        return options
        return None


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
            return _avro_options(given, _default_subject(values))
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


def _default_subject(values: Mapping[str, str]) -> str:
    topics = {each.strip() for each in values.get(names.SUBSCRIBE, "").split(",")} - {""}
    return f"{topics.pop()}-value" if len(topics) == 1 else ""


def _avro_options(given: dict[str, str], subject: str) -> AvroOptions:
    registry = _registry_settings(given)
    text = given.get(names.AVRO_SCHEMA)
    subject = "" if text is not None or not registry else given.get(names.REGISTRY_SUBJECT, subject)
    if registry and text is None:
        text = _newest_schema(registry, subject)
    if text is None:
        message = f"option {names.AVRO_SCHEMA} is missing: the schema that values were written with"
        raise OptionError(message)
    header = _choice(given, names.AVRO_HEADER, Header.CONFLUENT if registry else Header.NONE)
    number = given.get(names.AVRO_SCHEMA_ID)
    if number is not None and header is Header.NONE:
        message = f"option {names.AVRO_SCHEMA_ID} has a meaning with {names.AVRO_HEADER} only"
        raise OptionError(message)
    schema_id = -1 if number is None else whole_number(names.AVRO_SCHEMA_ID, number, least=0)
    if schema_id > SCHEMA_ID_MAX:
        message = f"option {names.AVRO_SCHEMA_ID}: {schema_id} is above {SCHEMA_ID_MAX}"
        raise OptionError(message)
    mode = _mode(given, Mode.FAILFAST)
    options = AvroOptions(text, mode, header, schema_id, registry=registry, subject=subject)
    parsed(names.AVRO_SCHEMA, options.parse)
    columns = given.get(names.VALUE_SCHEMA)
    if columns is None:
        return options
    chosen = parsed(names.VALUE_SCHEMA, lambda: parse_schema(columns))
    options = replace(options, columns_json=chosen.json())
    parsed(names.VALUE_SCHEMA, options.parse)
    return options


def _registry_settings(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of the registry's client; none without one. Raises OptionError."""
    found = {name: given[name] for name in names.REGISTRY_OPTIONS if name in given}
    if names.REGISTRY_URL not in found:
        if found:
            message = f"option {next(iter(found))} has a meaning with {names.REGISTRY_URL} only"
            raise OptionError(message)
        return ()
    if names.AVRO_SCHEMA_ID in given:
        message = f"give {names.AVRO_SCHEMA_ID} or {names.REGISTRY_URL}, not both"
        raise OptionError(message)
    if given.get(names.AVRO_HEADER, "confluent").strip().lower() != "confluent":
        message = f"option {names.AVRO_HEADER}: a registry's values begin with a schema id"
        raise OptionError(message)
    found.pop(names.REGISTRY_SUBJECT, None)
    settings = tuple(sorted(found.items()))
    _registry(settings)
    return settings


def _newest_schema(settings: tuple[tuple[str, str], ...], subject: str) -> str:
    """Return the newest schema of ``subject``. Asks the registry. Raises OptionError."""
    if not subject:
        message = f"option {names.REGISTRY_SUBJECT} is missing: there are several topics"
        raise OptionError(message)
    with _told():
        found = _registry(settings).latest(subject).schema
    why_not = _why_not(found)
    if why_not is not None:
        message = f"option {names.REGISTRY_SUBJECT}: the schema of {subject} {why_not}"
        raise OptionError(message)
    return found.text


def _why_not(found: "Schema") -> str | None:
    """Return why values cannot become of this schema; None: they can."""
    from ottla.schemas.schema import AVRO

    if found.kind != AVRO:
        return f"is of {found.kind}, not of AVRO"
    if found.references:
        return f"refers to other schemas; give it whole, as {names.AVRO_SCHEMA}"
    return None


@contextmanager
def _told() -> Iterator[None]:
    """Have what a registry refuses told with the option."""
    from ottla.schemas.schema import RegistryError

    try:
        yield
    except RegistryError as error:
        message = f"option {names.REGISTRY_URL}: {error}"
        raise OptionError(message) from error


def _registry(settings: tuple[tuple[str, str], ...]) -> "SchemaRegistry":
    from ottla.client.library.failures import BadArgument
    from ottla.schemas.registry import SchemaRegistry

    try:
        return SchemaRegistry.from_config(dict(settings))
    except BadArgument as error:
        message = f"option {names.REGISTRY_URL}: {error}"
        raise OptionError(message) from error


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
