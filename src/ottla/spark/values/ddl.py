"""Spark's schema strings, ``id bigint, tags array<string>``, read without the JVM that Spark asks.

For the planner's side, whose processes have no session. Knows every type that JSON can become.
Grammar (words in any case; a name may stand in backquotes; a comment is read over):

    schema = field , ...      |  struct< field , ... >  |  the JSON of StructType.json()
    field  = name [:] type [NOT NULL] [COMMENT 'text']
    type   = a simple one  |  decimal[(precision[, scale])]  |  array<type>  |  map<type, type>
             | struct<field, ...>

Whatever it says, columns are nullable, as those of Spark's own readers. Source: Spark SQL
reference, "Data Types".
"""

import json
import re
from collections.abc import Sequence

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}
DEPTH_MAX = 64
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*')|(\w+)|([<>(),:])|(\S))")


def parse_schema(text: str) -> StructType:
    """Return the columns that ``text`` names. Raises ValueError."""
    schema = _of_json(text) if text.lstrip().startswith("{") else _of_words(text)
    assert isinstance(schema, StructType), "fields, or a struct"
    names = [field.name.lower() for field in schema.fields]
    if not names or len(set(names)) != len(names):
        message = f"expected columns with different names, found {text!r}"
        raise ValueError(message)
    return schema


def _of_json(text: str) -> DataType:
    try:
        return _nullable(StructType.fromJson(json.loads(text)))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        message = f"expected the JSON of a StructType: {error}"
        raise ValueError(message) from error


def _of_words(text: str) -> DataType:
    parser = _Parser(text)
    schema = parser.type() if parser.next_is("struct", "<") else parser.fields("")
    parser.expect_end()
    return schema


def _nullable(kind: DataType) -> DataType:
    """Return the type without its NOT NULLs. Raises ValueError for one that JSON cannot become."""
    match kind:
        case StructType():
            _require_distinct(kind.names)
            return StructType([StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType():
            return _map(_nullable(kind.keyType), _nullable(kind.valueType))
        case DecimalType():
            return _decimal(kind.precision, kind.scale)
        case _ if type(kind) in SIMPLE.values():
            return kind
        case _:
            message = f"values cannot become {kind.simpleString()}"
            raise ValueError(message)


def _map(key: DataType, value: DataType) -> MapType:
    if key != StringType():
        message = f"a map's keys are strings, not {key.simpleString()}"
        raise ValueError(message)
    return MapType(key, value)


def _decimal(precision: int, scale: int) -> DecimalType:
    if not 0 < precision <= 38 or not 0 <= scale <= precision:
        message = f"decimal({precision}, {scale}) is impossible"
        raise ValueError(message)
    return DecimalType(precision, scale)


def _require_distinct(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        message = f"expected fields with different names, found {', '.join(names)}"
        raise ValueError(message)


class _Parser:
    """One pass over the tokens: (text, is it quoted)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._tokens = [
            (quoted.replace("``", "`"), True)
            if quoted
            else (string or word or sign or other, False)
            for quoted, string, word, sign, other in _TOKEN.findall(text)
        ]
        self._at = 0

    def next_is(self, *words: str) -> bool:
        """Tell whether these words come next, none of them quoted."""
        coming = self._tokens[self._at : self._at + len(words)]
        return [(word.lower(), quoted) for word, quoted in coming] == [(w, False) for w in words]

    def fields(self, end: str) -> StructType:
        """Read fields up to the sign ``end``, which stays, or the end of the text."""
        schema = StructType()
        while True:
            name, is_quoted = self._take("a column's name")
            if not is_quoted and not re.fullmatch(r"\w+", name):
                raise self._wrong("a column's name", name)
            self._skip(":")
            schema.add(name, self.type())
            if self.next_is("not", "null"):
                self._at += 2
            if self._skip("comment"):
                self._take("a comment")
            if not self._skip(","):
                break
        if end and not self.next_is(end):
            raise self._wrong(f"{end!r} or ','", self._here())
        return schema

    def type(self) -> DataType:
        """Read one type."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            message = f"types are nested more than {DEPTH_MAX} deep"
            raise ValueError(message)
        word = self._take("a type")[0].lower()
        kind = self._type(word)
        self._depth -= 1
        return kind

    def _type(self, word: str) -> DataType:
        if word in SIMPLE:
            return SIMPLE[word]()
        match word:
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "array":
                self._need("<")
                element = self.type()
                self._need(">")
                return ArrayType(element)
            case "map":
                self._need("<")
                key = self.type()
                self._need(",")
                value = self.type()
                self._need(">")
                return _map(key, value)
            case "struct":
                self._need("<")
                fields = self.fields(">")
                _require_distinct(fields.names)
                self._need(">")
                return fields
            case _:
                raise self._wrong("a type", word)

    def _decimal(self) -> DataType:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self._need(")")
        return _decimal(precision, scale)

    def _number(self) -> int:
        word, _ = self._take("a number")
        if not word.isascii() or not word.isdigit():
            raise self._wrong("a number", word)
        return int(word)

    def _take(self, wanted: str) -> tuple[str, bool]:
        if self._at == len(self._tokens):
            raise self._wrong(wanted, "the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, sign: str) -> bool:
        found = self.next_is(sign)
        self._at += found
        return found

    def _need(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._wrong(repr(sign), self._here())

    def _here(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else "the end"

    def expect_end(self) -> None:
        """Refuse what follows the schema."""
        if self._at < len(self._tokens):
            raise self._wrong("',' or the end", self._here())

    def _wrong(self, wanted: str, found: str) -> ValueError:
        return ValueError(f"expected {wanted}, found {found!r} in {self._text!r}")
