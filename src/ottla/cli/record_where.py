"""``consume --where``: which records are shown, by key, value, headers, numbers or a JSON path.

Owns the conditions' grammar and what each means; knows no cluster:

    condition = field [operator literal]          no operator: it is there, and is not null
    field     = key | value | header.NAME | offset | partition | timestamp
              | value PATH | key PATH             inside of what the bytes mean: JSON, if unsaid
    PATH      = (.name | ["any name"] | [index] | [*])...          [*]: any element
    operator  = = == != < <= > >= ~ !~ contains   ~ finds a regular expression
    literal   = null | true | number | "text" | 0x00ff (bytes) | anything else is text

A sieve goes first: most batches lack the bytes that a match must have, and are never taken apart;
and of others most records. It is exact, because it lets pass whatever could be spelled in another
way: JSON with escapes, numbers with an exponent.
"""

import json
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ottla.cli.near import did_you_mean
from ottla.records.rows import FoundRow

Decode = Callable[[bytes], object]
Test = Callable[[FoundRow], bool]
Sieve = Callable[[bytes], bool]
Pick = Callable[[Sequence[FoundRow]], list[FoundRow]]
Bytes = bytes | None

_MISSING = object()
_ORDERS: dict[str, Callable[..., bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|!~|=|<|>|~|contains(?=\s|$))\s*(.*)", re.DOTALL)
_STEP = re.compile(r'\.([^\s.\[\]=!<>~"]+)|\[([0-9]+|\*)\]|\[("(?:[^"\\]|\\.)*")\]')
_ROOTS = {"offset": 0, "timestamp": 1, "key": 2, "value": 3}
_NUMBERS = ("offset", "timestamp", "partition")
_EXPONENT = re.compile(rb"[0-9][eE][-+]?[0-9]")
_GRAMMAR = (
    "a condition is FIELD OPERATOR VALUE, e.g. 'key = 42', 'value.total > 100',"
    " 'header.trace ~ ^ab', 'value contains error'"
)


class Literal(NamedTuple):
    """What stands behind the operator."""

    text: str
    value: object
    """As JSON has it; the text where it is no JSON."""
    is_bare: bool
    """Not in quotes: ``12`` is the number, and the text, too."""

    def raw(self) -> Bytes:
        """Return the bytes that it stands for; None is null."""
        if self.is_bare and self.value is None:
            return None
        if self.is_bare and re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", self.text):
            return bytes.fromhex(self.text[2:])
        return os.fsencode(self.text if self.is_bare else str(self.value))


class Condition(NamedTuple):
    """One ``--where``."""

    test: Test
    sieves: Sequence[Sieve]
    """Whether bytes may hold a match: each must say so."""
    partitions: Callable[[int], bool] | None = None
    """Which partitions it allows; None: all."""
    pick: Pick | None = None
    """Returns those that may pass ``test``, many at a time."""


class Where:
    """All conditions of a command line; each must hold."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = conditions
        self._sieves = [sieve for each in conditions for sieve in each.sieves]
        self._partitions = [each.partitions for each in conditions if each.partitions]

    def may_hold(self, data: bytes) -> bool:
        """Whether a batch's decompressed records may hold a match; False is certain."""
        return all(sieve(data) for sieve in self._sieves)

    def allows(self, partition: int) -> bool:
        """Whether records of this partition may match."""
        return all(each(partition) for each in self._partitions)

    def matching(self, rows: Sequence[FoundRow]) -> list[FoundRow]:
        """Return the records that are wanted."""
        # What costs a look at bytes goes before all that takes JSON apart.
        for condition in self._conditions:
            if condition.pick is not None:
                rows = condition.pick(rows)
        for condition in self._conditions:
            rows = list(filter(condition.test, rows))
        return list(rows)


def compile_where(texts: Sequence[str], key: Decode | None, value: Decode | None) -> Where:
    """Return the conditions. Raises ValueError.

    ``key`` and ``value`` decode what paths look into; None: JSON.
    """
    return Where([_condition(text, key, value) for text in texts])


def json_of(data: bytes) -> object:
    """Return what ``data`` says as JSON. Raises ValueError."""
    text = data.decode().removeprefix("\ufeff")
    try:
        try:
            value, end = _JSON.raw_decode(text)
        except ValueError:
            value, end = None, -1
        # White space around it, and what is wrong, are the affair of the slower one.
        return value if end == len(text) else _JSON.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def _condition(text: str, key: Decode | None, value: Decode | None) -> Condition:
    name, steps, rest = _field(text)
    found = _OPERATOR.fullmatch(rest)
    if found is None and rest.strip():
        raise ValueError(f"{text!r}: {_GRAMMAR}")
    sign, literal = (found[1], _literal(found[2])) if found else ("", _literal("null"))
    sign = {"==": "=", "": "!=" if name != "header" else ""}.get(sign, sign)
    if found is not None and not found[2].strip():
        raise ValueError(f'{text!r}: a value is missing behind {found[1]}; an empty text is ""')
    try:
        if name in _NUMBERS:
            return _numbered(name, steps, sign, literal)
        if name == "header":
            return _of_header(steps, sign, literal)
        if not steps:
            return _of_bytes(_ROOTS[name], sign, literal)
        decode = key if name == "key" else value
        is_there = found is None
        return _of_path(_ROOTS[name], steps, sign, literal, decode, is_there=is_there)
    except (ValueError, re.error) as error:
        raise ValueError(f"{text!r}: {error}") from error


def _field(text: str) -> tuple[str, list[str | int | None], str]:
    """Return the field's first name, the steps behind it, and the rest of the condition."""
    word = re.match(r"\s*([a-z]+)", text)
    if word is None or word[1] not in {*_ROOTS, "header", "partition"}:
        known = "key, value, header.NAME, offset, partition, timestamp"
        hint = did_you_mean("" if word is None else word[1], (*_ROOTS, "header", "partition"))
        what = f"{text!r} begins with none of {known}"
        raise ValueError(f"{what}; {hint or _GRAMMAR}")
    position = word.end()
    steps: list[str | int | None] = []
    while step := _STEP.match(text, position):
        plain, index, quoted = step.groups()
        if plain is not None:
            steps.append(plain)
        elif quoted is not None:
            steps.append(str(json.loads(quoted)))
        else:
            steps.append(None if index == "*" else int(index))
        position = step.end()
    return word[1], steps, text[position:]


def _literal(text: str) -> Literal:
    text = text.strip()
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return Literal(text, value, is_bare=not text.startswith('"') or value == text)


# -- numbers of the record itself ------------------------------------------------------------------


def _numbered(name: str, steps: Sequence[object], sign: str, literal: Literal) -> Condition:
    if steps or type(literal.value) is not int or sign not in {*_ORDERS, "=", "!="}:
        raise ValueError(f"{name} is compared with whole numbers, by = != < <= > >=")
    compare = _ORDERS.get(sign) or (operator.eq if sign == "=" else operator.ne)
    wanted = literal.value
    if name == "partition":
        return Condition(lambda _: True, (), lambda partition: compare(partition, wanted))
    column = _ROOTS[name]
    return Condition(lambda row: compare(row[column], wanted), ())


# -- bytes -----------------------------------------------------------------------------------------


def _of_bytes(column: int, sign: str, literal: Literal) -> Condition:
    test = _bytes_test(sign, literal)
    pick: Pick | None = None
    needle = literal.raw()
    if sign == "=":
        pick = lambda rows: [row for row in rows if row[column] == needle]  # noqa: E731 - short
    elif sign == "contains" and needle:
        pick = _picker(column, lambda data: needle in data)
    sieves = _bytes_sieves(sign, literal)
    return Condition(lambda row: test(row[column]), sieves, pick=pick)  # type: ignore[arg-type]


def _picker(column: int, sieve: Sieve) -> Pick:
    """Return what picks records in which a key or value passes ``sieve``."""

    def pick(rows: Sequence[FoundRow]) -> list[FoundRow]:
        return [row for row in rows if row[column] is not None and sieve(row[column])]  # type: ignore[arg-type]

    return pick


def _of_header(steps: Sequence[str | int | None], sign: str, literal: Literal) -> Condition:
    if len(steps) != 1 or not isinstance(steps[0], str):
        raise ValueError('a header has one name: header.NAME or header["any name"]')
    name = steps[0]
    # A name that is no UTF-8 is read with marks in place of its bytes.
    held: Sieve = partial(_holds, needle=b"" if "\ufffd" in name else _utf8(name))
    if not sign:
        return Condition(lambda row: any(one == name for one, _ in row[4]), (held,))
    if sign in ("!=", "!~"):
        same = _bytes_test(sign[-1] if sign == "!~" else "=", literal)
        return Condition(lambda row: not any(one == name and same(v) for one, v in row[4]), ())
    test = _bytes_test(sign, literal)
    sieves = (held, *_bytes_sieves(sign, literal))
    return Condition(lambda row: any(one == name and test(v) for one, v in row[4]), sieves)


def _bytes_test(sign: str, literal: Literal) -> Callable[[Bytes], bool]:
    wanted = literal.raw()
    match sign:
        case "=":
            return lambda data: data == wanted
        case "!=":
            return lambda data: data != wanted
        case "~" | "!~":
            found = re.compile(os.fsencode(_text_of(literal)), re.DOTALL).search
            if sign == "~":
                return lambda data: data is not None and found(data) is not None
            return lambda data: data is None or found(data) is None
        case "contains":
            needle = wanted if wanted is not None else b"null"
            return lambda data: data is not None and needle in data
    return _bytes_order(_ORDERS[sign], literal)


def _bytes_order(compare: Callable[..., bool], literal: Literal) -> Callable[[Bytes], bool]:
    if literal.is_bare and _is_number(literal.value):

        def by_number(data: Bytes) -> bool:
            try:
                return data is not None and compare(float(data), literal.value)
            except ValueError:
                return False

        return by_number
    wanted = literal.raw()
    if wanted is None:
        raise ValueError("nothing is less or more than null")
    return lambda data: data is not None and compare(data, wanted)


def _bytes_sieves(sign: str, literal: Literal) -> tuple[Sieve, ...]:
    needle = literal.raw()
    if sign not in ("=", "contains") or not needle:
        return ()
    return (partial(_holds, needle=needle),)


# -- what the bytes decode to ----------------------------------------------------------------------


def _of_path(
    column: int,
    steps: Sequence[str | int | None],
    sign: str,
    literal: Literal,
    decode: Decode | None,
    *,
    is_there: bool,
) -> Condition:
    test = _value_test(sign, literal)
    is_negative = sign in ("!=", "!~") and not is_there
    sieves = () if is_negative or decode is not None else _path_sieves(steps, sign, literal)
    opened = decode or json_of

    def matches(row: FoundRow) -> bool:
        data: Bytes = row[column]  # type: ignore[assignment]
        if data is None:
            return is_negative
        try:
            values = _walk(opened(data), steps)
        except ValueError:
            return is_negative
        if is_negative:
            return not any(not test(each) for each in values)
        return any(test(each) for each in values)

    return Condition(matches, sieves, pick=_picker(column, sieves[0]) if sieves else None)


def _walk(value: object, steps: Sequence[str | int | None]) -> Iterator[object]:
    """Yield what lies at the end of a path: nothing, one value, or with ``[*]`` several."""
    for depth, step in enumerate(steps):
        if step is None:
            if isinstance(value, list):
                for each in value:
                    yield from _walk(each, steps[depth + 1 :])
            return
        if isinstance(step, str):
            value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
        else:
            is_in = isinstance(value, list) and step < len(value)
            value = value[step] if is_in else _MISSING  # type: ignore[index]
        if value is _MISSING:
            return
    yield value


def _value_test(sign: str, literal: Literal) -> Callable[[object], bool]:
    match sign:
        case "=":
            return lambda value: _is_equal(value, literal)
        case "!=":
            return lambda value: not _is_equal(value, literal)
        case "~" | "!~":
            found = re.compile(_text_of(literal), re.DOTALL).search
            if sign == "~":
                return lambda value: isinstance(value, str) and found(value) is not None
            return lambda value: not (isinstance(value, str) and found(value) is not None)
        case "contains":
            needle = _text_of(literal)
            return lambda value: isinstance(value, str) and needle in value
    compare, wanted = _ORDERS[sign], literal.value
    if _is_number(wanted):
        return lambda value: _is_number(value) and compare(value, wanted)
    if not isinstance(wanted, str):
        raise ValueError(f"nothing is less or more than {literal.text}")  # noqa: TRY004 - input
    return lambda value: isinstance(value, str) and compare(value, wanted)


def _is_equal(value: object, literal: Literal) -> bool:
    if isinstance(value, str):
        return literal.value is not None and value == _text_of(literal)
    if isinstance(value, bool) or isinstance(literal.value, bool):
        return value is literal.value
    return not isinstance(literal.value, str) and value == literal.value


def _path_sieves(
    steps: Sequence[str | int | None], sign: str, literal: Literal
) -> tuple[Sieve, ...]:
    names = [step for step in steps if isinstance(step, str) and step]
    sieves: list[Sieve] = [_speller(name) for name in names]
    if sign in ("=", "contains"):
        value = literal.value
        if sign == "contains" or isinstance(value, str):
            if text := _text_of(literal):
                sieves.append(_speller(text))
        elif _is_number(value) and re.fullmatch(r"-?(0|[1-9]\d*)", literal.text):
            sieves.append(_number_speller(literal.text.lstrip("-")))
    sieves.reverse()  # What is said of the value is rarer than the names on the way to it.
    return tuple(sieves)


def _holds(data: bytes, needle: bytes) -> bool:
    return needle in data


def _speller(text: str) -> Sieve:
    """Return what says whether JSON may hold this text, perhaps by escapes.

    Plain characters have no escape but that by number. A backslash alone is in every batch: as a
    length, as the distance of an offset.
    """
    needle = _utf8(text)
    escape = b"\\" if any(each in '"\\/' or each < " " for each in text) else b"\\u"
    return lambda data: needle in data or escape in data


def _number_speller(digits: str) -> Sieve:
    """Return what says whether JSON may hold this whole number, perhaps as 12e2 or in a text.

    Without an exponent its digits are there, also in 1200.0.
    """
    spells, search = _speller(digits), _EXPONENT.search
    return lambda data: spells(data) or search(data) is not None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_of(literal: Literal) -> str:
    return literal.text if literal.is_bare else str(literal.value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
