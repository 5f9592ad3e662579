"""The options of typed values: what ``value`` holds, and what it becomes.

The planner's side: no pyarrow. ``values`` does the work on the executors. Names and meanings of
``mode``, ``columnNameOfCorruptRecord`` and ``timeZone`` are those of Spark's JSON reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark.sql.types import StringType, StructType

from ottla.spark.connection import OptionError
from ottla.spark.ddl import parse_schema
from ottla.spark.option_table import CORRUPT_COLUMN, MODE, TIME_ZONE, VALUE_OPTIONS
from ottla.spark.option_table import VALUE_FORMAT as FORMAT
from ottla.spark.option_table import VALUE_SCHEMA as SCHEMA

CORRUPT_COLUMN_DEFAULT = "_corrupt_record"


class Mode(Enum):
    """What becomes of a value that is malformed."""

    PERMISSIVE = "permissive"
    """Its columns are null, as far as they cannot be read; the corrupt column has its text."""
    DROPMALFORMED = "dropmalformed"
    """Its row is left out."""
    FAILFAST = "failfast"
    """The query fails."""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Values that are JSON of one schema. Travels to the executors by pickle."""

    schema_json: str
    """Of ``StructType.json()``: the columns of ``value``, which is a struct."""
    mode: Mode
    corrupt_column: str
    time_zone: str
    """For times that do not say their own."""

    @property
    def schema(self) -> StructType:
        """The columns of ``value``."""
        return parse_schema(self.schema_json)


def value_columns(format_name: str, schema: str) -> StructType | None:
    """Return the struct that ``value`` becomes; None: it stays binary. Raises OptionError."""
    match format_name.strip().lower():
        case "raw":
            return None
        case "json":
            try:
                return parse_schema(schema)
            except ValueError as error:
                message = f"option {SCHEMA}: {error}"
                raise OptionError(message) from error
        case "avro":
            message = (
                f"option {FORMAT}: avro is not decoded here yet: read values raw, and use"
                " from_avro of Spark's Avro package"
            )
            raise OptionError(message)
        case other:
            message = f"option {FORMAT} is raw or json, not {other!r}"
            raise OptionError(message)


def parse_value_options(values: Mapping[str, str]) -> ValueOptions | None:
    """Return what the options say of values; None: they stay binary. Raises OptionError.

    ``values`` have names in lower case.
    """
    given = {name: values[name.lower()] for name in VALUE_OPTIONS if name.lower() in values}
    schema = value_columns(given.get(FORMAT, "raw"), given.get(SCHEMA, ""))
    if schema is None:
        for name in given.keys() - {FORMAT}:
            message = f"option {name} has a meaning with {FORMAT}=json only"
            raise OptionError(message)
        return None
    try:
        mode = Mode(given.get(MODE, "PERMISSIVE").strip().lower())
    except ValueError as error:
        names = ", ".join(each.name for each in Mode)
        message = f"option {MODE} is one of {names}, not {given[MODE]!r}"
        raise OptionError(message) from error
    corrupt = given.get(CORRUPT_COLUMN, CORRUPT_COLUMN_DEFAULT)
    if corrupt in schema.names and schema[corrupt].dataType != StringType():
        message = f"option {SCHEMA}: the column {corrupt} for malformed values must be a string"
        raise OptionError(message)
    return ValueOptions(schema.json(), mode, corrupt, _time_zone(given.get(TIME_ZONE, "UTC")))


def _time_zone(name: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"option {TIME_ZONE}: {name!r} is no time zone such as Europe/Berlin"
        raise OptionError(message) from error
    return name.strip()
