"""JSON values one by one, by the rules of Spark's JSON reader: for those that are not plain.

Microseconds each: ``json_values`` brings only what Arrow's reader refuses. A field that is not of
its type is null and makes the value malformed, while the others are read. Source: Spark's JSON
data source, with its defaults (partial results, NaN allowed).
"""

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import TypeVar
from zoneinfo import ZoneInfo

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
FLOATS = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "+INF": "inf",
    "-Infinity": "-inf",
    "-INF": "-inf",
}
BLANKS = " \t\r\n"
DAY = r"\d{4}-\d\d-\d\d"
ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_DATE = re.compile(rf"({DAY})(?:[T ].*)?", re.ASCII | re.DOTALL)
_ESCAPED = re.compile(r'["\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_MOMENT = re.compile(rf"{DAY}(?:[T ]\d\d(?::?\d\d(?::?\d\d(?:\.\d+)?)?)?{ZONE}?)?", re.ASCII)
"""Python reads more: days without dashes, weeks, any sign before the hour. Spark does not."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
DECIMALS = Context(prec=38, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Python's own context has 28 digits."""


class Number(str):
    """A number as it is spelled: some fields want its text."""

    __slots__ = ()


class Pairs(list[tuple[str, object]]):
    """An object's names and values as they stand: a name may come twice."""


class NotOfItsType(ValueError):
    """A field that cannot be read as what the schema says."""


Convert = Callable[[object], object]
Found = TypeVar("Found")


class JsonRows:
    """Reads values as structs of one schema."""

    def __init__(self, schema: StructType, time_zone: str) -> None:
        self._schema = schema
        self._zone = ZoneInfo(time_zone)
        self._decoder = json.JSONDecoder(
            parse_float=Number,
            parse_int=Number,
            parse_constant=Number,
            object_pairs_hook=Pairs,
            strict=True,
        )
        self._is_bad = False

    def read(self, values: Sequence[bytes | None]) -> tuple[list[object], list[int]]:
        """Return a dict for each value, None for a null, and the indexes of malformed ones."""
        rows: list[object] = []
        bad: list[int] = []
        for index, value in enumerate(values):
            self._is_bad = False
            rows.append(None if value is None else self._row(value.decode("utf-8", "replace")))
            if self._is_bad:
                bad.append(index)
        return rows, bad

    def _row(self, text: str) -> object:
        bare = text.lstrip(BLANKS)
        if not bare:
            return None
        try:
            found, _ = self._decoder.raw_decode(bare)  # What follows it, Spark does not look at.
        except (ValueError, RecursionError):
            found = NotOfItsType
        if not isinstance(found, Pairs):
            self._is_bad = True
            return {}
        return self._struct(found, self._schema)

    def _struct(self, found: Pairs, schema: StructType) -> dict[str, object]:
        """Return the fields; of a name that comes twice the last value that is of its type."""
        kinds = {field.name: field.dataType for field in schema.fields}
        row: dict[str, object] = dict.fromkeys(kinds)
        for name, value in found:
            if name not in kinds:
                continue
            try:
                row[name] = self._element(value, kinds[name])
            except (ValueError, ArithmeticError, RecursionError):
                self._is_bad = True
        return row

    def _element(self, found: object, kind: DataType) -> object:
        """Return an element; one that is not of its type takes the array, or the map, with it."""
        return None if found is None else self._value(found, kind)

    def _value(self, found: object, kind: DataType) -> object:
        match kind:
            case StructType():
                return self._struct(_only(found, Pairs), kind)
            case ArrayType():
                return [self._element(each, kind.elementType) for each in _only(found, list)]
            case MapType():
                return [
                    (_encodable(key), self._element(each, kind.valueType))
                    for key, each in _only(found, Pairs)
                ]
            case TimestampType():
                return self._timestamp(found)
            case DecimalType():
                return _decimal(found, kind)
            case _:
                return _CONVERT[type(kind)](found)

    def _timestamp(self, found: object) -> int:
        """Return microseconds since 1970: years beyond 9999 are fine, too."""
        if isinstance(found, Number):
            return _of_bits(int(found) * 1_000_000, 64)
        moment = _moment(found)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._zone)
        return (moment - EPOCH) // MICROSECOND


def _only(found: object, kind: type[Found]) -> Found:
    if type(found) is not kind:
        raise NotOfItsType
    return found


def _integer(found: object, bits: int) -> int:
    return _of_bits(int(_only(found, Number)), bits)


def _of_bits(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise NotOfItsType
    return number


def _float(found: object) -> float:
    if isinstance(found, Number) or (isinstance(found, str) and found in FLOATS):
        return float(FLOATS.get(found, found))
    raise NotOfItsType


def _decimal(found: object, kind: DecimalType) -> Decimal:
    if not isinstance(found, str) or "_" in found or found != found.strip():
        raise NotOfItsType
    unit = Decimal(1).scaleb(-kind.scale)
    number = Decimal(found).quantize(unit, ROUND_HALF_UP, DECIMALS)
    if not number.is_finite() or len(number.as_tuple().digits) > kind.precision:
        raise NotOfItsType
    return number


def _string(found: object) -> str:
    return _encodable(found if type(found) is str else dumps(found))


def _encodable(text: str) -> str:
    """Return ``text``, with a question mark for half of a surrogate pair, as Java encodes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def java_text(number: float) -> str:
    """Return the text that Java gives a double."""
    if not math.isfinite(number):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, "NaN")
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{Decimal(repr(number)):e}".lower().partition("e")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def dumps(found: object) -> str:
    """Return the JSON text of what was read, numbers that are no integers as Java spells them."""
    match found:
        case Number():
            return str(found) if found.lstrip("-").isdigit() else java_text(float(found))
        case Pairs():
            return "{" + ",".join(f"{_quoted(k)}:{dumps(v)}" for k, v in found) + "}"
        case list():
            return "[" + ",".join(map(dumps, found)) + "]"
        case str():
            return _quoted(found)
        case _:
            return json.dumps(found)


def _quoted(text: str) -> str:
    """Return a string as Spark's from_json spells it: all that UTF-16 has in one unit as it is."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    short = _SHORT.get(found[0])
    if short is not None:
        return short
    units = found[0].encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _moment(found: object) -> datetime:
    text = _only(found, str)
    if not _MOMENT.fullmatch(text):
        raise NotOfItsType
    return datetime.fromisoformat(text)


def _local_time(found: object) -> datetime:
    return _moment(found).replace(tzinfo=None)


def _day(found: object) -> date:
    """Return the day; of a time that follows it, Spark reads nothing."""
    day = _DATE.fullmatch(_only(found, str))
    if day is None:
        raise NotOfItsType
    return date.fromisoformat(day[1])


_CONVERT: dict[type[DataType], Convert] = {
    StringType: _string,
    BooleanType: partial(_only, kind=bool),
    **{kind: partial(_integer, bits=bits) for kind, bits in BITS.items()},
    FloatType: _float,
    DoubleType: _float,
    DateType: _day,
    TimestampNTZType: _local_time,
    BinaryType: lambda found: base64.b64decode(_only(found, str), validate=True),
}
