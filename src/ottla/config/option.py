"""What an option is: key, type, default, bounds, where it may be set, and a sentence about it.

Owns the types of the option tables, and how a text becomes a value. Knows no particular option, no
file format and no command line. Parsing, DescribeConfigs, the command line and the reference page
all use one table, so an option is described once.
Source: Kafka's ConfigDef. The error texts are those of Apache Kafka 4.3, because people search for
them.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, IntEnum
from typing import Generic, NamedTuple, TypeVar

from ottla.errors import OttlaError

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class InvalidConfig(OttlaError):
    """A key or a value that cannot be used. ``str()`` is Kafka's message for it."""

    def __init__(self, key: str, value: str | None, why: str) -> None:
        self.key = key
        self.value = value
        self.why = why
        super().__init__(
            why if value is None else f"Invalid value {value} for configuration {key}: {why}"
        )


class Scope(Enum):
    """Whether a broker option can change while the node runs; or: an option of a topic or group."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    TOPIC = "topic"
    GROUP = "group"


class Source(IntEnum):
    """Where a value was set; the numbers are those of DescribeConfigs' ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ValueType(Generic[T_co]):
    """A type of values: Kafka's name, its number in DescribeConfigs, and how a text is read."""

    __slots__ = ("code", "name", "read")

    def __init__(self, name: str, code: int, read: Callable[[str], T_co]) -> None:
        self.name = name
        self.code = code
        self.read = read
        """Takes the stripped text; raises ValueError with Kafka's reason."""


class Refusal(NamedTuple):
    """Why a validator refuses a value, and which part of it is wrong (None: all of it)."""

    why: str
    part: str | None = None


class Validator(Generic[T_contra]):
    """A bound on a value: ``check`` returns None for a valid one; ``text`` stands in the docs."""

    __slots__ = ("check", "text")

    def __init__(self, text: str, check: Callable[[T_contra], Refusal | None]) -> None:
        self.text = text
        self.check = check


class Option(Generic[T_co]):
    """One option; immutable. ``config[OPTION]`` has the type of its default."""

    __slots__ = (
        "default", "deviates", "doc", "falls_back_on", "follows", "internal", "key", "scope",
        "sensitive", "type", "unit", "validator",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - a row of the tables has so many columns
        self,
        key: str,
        type: ValueType[T_co],
        default: T_co,
        doc: str,
        scope: Scope = Scope.READ_ONLY,
        validator: Validator[T_co] | None = None,
        unit: str = "",
        *,
        sensitive: bool = False,
        internal: bool = False,
        follows: tuple["Follows", ...] = (),
        falls_back_on: "Option[object] | None" = None,
        deviates: str = "",
    ) -> None:
        self.key = key
        self.type = type
        self.default = default
        self.doc = doc
        self.scope = scope
        self.validator = validator
        self.unit = unit
        """``ms``, ``s``, ``minutes``, ``hours``, ``bytes``, or "" when the value has no unit."""
        self.sensitive = sensitive
        """True: the value is never shown."""
        self.internal = internal
        """True: accepted, but neither listed nor documented (Kafka's word for such options)."""
        self.follows = follows
        """The broker options that give a topic or group option its default, strongest first."""
        self.falls_back_on = falls_back_on
        """The broker option that counts when this one is not set; None: there is none."""
        self.deviates = deviates
        """Why the default is not Kafka's; "" when it is."""

    @property
    def dynamic(self) -> bool:
        """True when the value may change while the node runs."""
        return self.scope is not Scope.READ_ONLY

    def parse(self, text: str) -> T_co:
        """Return the value that ``text`` stands for. Raises InvalidConfig."""
        try:
            value = self.type.read(text.strip())
        except ValueError as error:
            shown = "[hidden]" if self.sensitive else text
            raise InvalidConfig(self.key, shown, str(error)) from error
        if self.validator is not None:
            refusal = self.validator.check(value)
            if refusal is not None:
                shown = refusal.part if refusal.part is not None else value_text(value)
                raise InvalidConfig(self.key, shown, refusal.why)
        return value


class Follows(NamedTuple):
    """A broker option whose value, times ``factor``, is the default of a topic or group option."""

    option: Option[object]
    factor: int = 1


class Table:
    """The options of one kind of configuration (a broker's, a topic's, a group's), in order."""

    def __init__(
        self,
        what: str,
        sections: Iterable[tuple[str, Iterable[Option[object]]]],
        of_key: Callable[[str], Option[object] | None] = lambda _: None,
    ) -> None:
        """Take ``of_key``, which makes the option of a key that names what it is about.

        Such options may be set; they are not among those of the table, and no page shows them.
        """
        self._of_key = of_key
        self.what = what
        """``broker``, ``topic`` or ``group``: stands in Kafka's message about an unknown name."""
        self.sections = tuple((title, tuple(options)) for title, options in sections)
        self._by_key = {option.key: option for _, part in self.sections for option in part}
        if len(self._by_key) != sum(len(part) for _, part in self.sections):
            raise ValueError(f"a key stands twice in the {what} table")

    def __iter__(self) -> Iterator[Option[object]]:
        return iter(self._by_key.values())

    def __contains__(self, key: object) -> bool:
        return key in self._by_key or (isinstance(key, str) and self._of_key(key) is not None)

    def __getitem__(self, key: str) -> Option[object]:
        """Return the option with this key. Raises InvalidConfig when there is none."""
        try:
            return self._by_key[key]
        except KeyError:
            option = self._of_key(key)
        if option is None:
            raise InvalidConfig(key, None, self._unknown(key))
        return option

    def made_of(self, key: str) -> Option[object] | None:
        """Return the option that ``key`` makes; None when it is one of the table, or none."""
        return None if key in self._by_key else self._of_key(key)

    def nearest(self, key: str, count: int = 3) -> list[str]:
        """Return up to ``count`` keys that look like ``key``, the closest first."""
        from difflib import get_close_matches  # noqa: PLC0415 - 12 ms, and only after a mistake

        public = [name for name, option in self._by_key.items() if not option.internal]
        return get_close_matches(key, public, count, 0.7)

    def _unknown(self, key: str) -> str:
        return f"Unknown {self.what} config name: {key}"


def value_text(value: object) -> str:
    """Return a value as DescribeConfigs writes it, in Kafka's form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is tuple:  # Another kind of tuple has a text of its own.
        return ",".join(str(part) for part in value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E")
    return "" if value is None else str(value)


def _read_integer(text: str, name: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # int() accepts more than Java: 1_000, digits of other scripts.
    if digits.isascii() and digits.isdigit() and len(digits) <= 32:
        value = int(text)
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    raise ValueError(f"Not a number of type {name}")


def _read_int(text: str) -> int:
    return _read_integer(text, "INT", 32)


def _read_short(text: str) -> int:
    return _read_integer(text, "SHORT", 16)


def _read_long(text: str) -> int:
    return _read_integer(text, "LONG", 64)


def _read_double(text: str) -> float:
    try:
        if "_" in text:
            raise ValueError(text)
        return float(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _read_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise ValueError("Expected value to be either true or false")


def _read_list(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",")) if text else ()
    if "" in parts:
        raise ValueError("values must not be empty")
    return tuple(dict.fromkeys(parts))  # Kafka keeps the first of equal parts


BOOLEAN = ValueType("BOOLEAN", 1, _read_boolean)
STRING = ValueType("STRING", 2, str)
INT = ValueType("INT", 3, _read_int)
SHORT = ValueType("SHORT", 4, _read_short)
LONG = ValueType("LONG", 5, _read_long)
DOUBLE = ValueType("DOUBLE", 6, _read_double)
LIST = ValueType("LIST", 7, _read_list)


def at_least(limit: int) -> Validator[float | None]:
    """Return a validator for numbers >= ``limit``."""

    def check(value: float | None) -> Refusal | None:
        if value is None or value >= limit:
            return None
        return Refusal(f"Value must be at least {limit}")

    return Validator(f"[{limit},...]", check)


def between(lowest: int, highest: int) -> Validator[float | None]:
    """Return a validator for numbers in ``[lowest, highest]``, both included."""

    def check(value: float | None) -> Refusal | None:
        if value is None or lowest <= value <= highest:
            return None
        if value < lowest:
            return Refusal(f"Value must be at least {lowest}")
        return Refusal(f"Value must be no more than {highest}")

    return Validator(f"[{lowest},...,{highest}]", check)


def one_of(*names: str, is_case_sensitive: bool = True) -> Validator[str]:
    """Return a validator for one of ``names``, which are lower case if case does not count."""
    listed = ", ".join(names)
    hint = "" if is_case_sensitive else " (case insensitive)"

    def check(value: str) -> Refusal | None:
        known = value if is_case_sensitive else value.lower()
        return None if known in names else Refusal(f"String must be one of{hint}: {listed}")

    return Validator(f"[{listed}]", check)


def each_of(*names: str) -> Validator[tuple[str, ...]]:
    """Return a validator for lists whose every part is one of ``names``."""
    listed = ", ".join(names)

    def check(value: tuple[str, ...]) -> Refusal | None:
        for part in value:
            if part not in names:
                return Refusal(f"String must be one of: {listed}", part)
        return None

    return Validator(f"[{listed}]", check)
