"""What is to go wrong with which requests: rules, and the decision which of them strike. Pure.

A rule names an API and may name a topic, a partition, a client id and a group; it then strikes the
first matching request, or from the nth on so many, or each with a probability. Knows no bytes and
does nothing: ``intercept`` asks for each request and acts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple

from ottla.env.rng import Rng, SeededRng
from ottla.errors import ErrorCode

_MILLION = 1_000_000
_CODES = frozenset(code.value for code in ErrorCode)


class Action(Enum):
    """What is done to a request."""

    ERROR = "error"
    DELAY = "delay"
    DROP = "drop"
    RESTART = "restart"
    """The broker ends and starts again."""
    THROTTLE = "throttle"
    """The answer tells the client to wait, and its connection is not served meanwhile."""
    CORRUPT = "corrupt"
    """The records that a Fetch returns are damaged."""
    FENCE = "fence"
    """Another producer takes over the transactional id that the request names, before it."""


class Facts(NamedTuple):
    """What is known of one request."""

    api_key: int
    client_id: str
    groups: frozenset[str]
    """The groups that it names; of FindCoordinator also transactional ids."""
    places: frozenset[tuple[str, int | None]]
    """The topics that it names, each with None, and the partitions."""
    transactional_ids: frozenset[str] = frozenset()
    """Those in whose transaction it does something."""


_FIELDS: tuple[tuple[tuple[str, ...], Callable[[object], bool], str], ...] = (
    (("nth", "times"), lambda it: isinstance(it, int) and it >= 1, "1 or more"),
    (
        ("rate",),
        lambda it: isinstance(it, (int, float)) and 0 <= it <= 1,
        "a probability, from 0 to 1",
    ),
    (
        ("topic", "client_id", "group", "transactional_id"),
        lambda it: isinstance(it, str),
        "a text",
    ),
    (("seed",), lambda it: isinstance(it, int), "a whole number"),
    (("partition",), lambda it: isinstance(it, int) and it >= 0, "a number from 0 on"),
    (("after", "kill"), lambda it: isinstance(it, bool), "true or false"),  # "no" would be a yes.
)
"""What fields may be when they are not None: they come from JSON."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault. ``None`` stands for any."""

    action: Action
    api_key: int | None
    code: int = 0
    """Of an ERROR: the number of the error code."""
    seconds: float = 0.0
    """Of a DELAY, of a THROTTLE; of a RESTART: how long nobody is there."""
    kill: bool = False
    """Of a RESTART: without good order."""
    after: bool = False
    """Whether the work is done before the answer is spoilt or the connection dropped."""
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    nth: int = 1
    """The first of the matching requests that is struck."""
    times: int | None = 1
    """How many are struck from there on; None: all."""
    rate: float | None = None
    """The probability with which each of those is struck; None: certain."""
    seed: int | None = None
    """Makes ``rate`` choose the same each time; None: by chance."""

    def __post_init__(self) -> None:
        """Raise ValueError for a fault that means nothing: a test would wait for it in vain."""
        for names, is_right, expected in _FIELDS:
            for name in names:
                value: object = getattr(self, name)
                if value is not None and not is_right(value):
                    raise ValueError(f"{name}={value!r}: expected {expected}")
        is_span = self.action in (Action.DELAY, Action.THROTTLE)
        if is_span and not 0 < self.seconds < inf:
            raise ValueError(f"a {self.action.value} of {self.seconds} s: expected more than 0")
        if self.action is Action.ERROR and (self.code not in _CODES or self.code == 0):
            raise ValueError(f"{self.code} is no error code of Kafka's")

    def matches(self, facts: Facts) -> bool:
        """Whether the rule is about this request."""
        if self.api_key is not None and self.api_key != facts.api_key:
            return False
        if self.client_id is not None and self.client_id != facts.client_id:
            return False
        if self.group is not None and self.group not in facts.groups:
            return False
        if self.action is Action.FENCE and not facts.transactional_ids:
            return False
        if self.transactional_id not in (None, *facts.transactional_ids):
            return False
        if self.topic is not None:
            return (self.topic, self.partition) in facts.places
        if self.partition is not None:
            return any(partition == self.partition for _, partition in facts.places)
        return True

    @property
    def is_about_places(self) -> bool:
        """Whether it names a topic or a partition."""
        return self.topic is not None or self.partition is not None


@dataclass(slots=True)
class _Count:
    """How often a rule was met."""

    rng: Rng
    matched: int = 0
    struck: int = 0


@dataclass(slots=True)
class Rules:
    """The rules in force, in the order in which they were made."""

    rng: Rng
    _rules: dict[int, Rule] = field(default_factory=dict)
    _counts: dict[int, _Count] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, rule: Rule) -> int:
        """Put a rule in force; return its number."""
        number = len(self._counts)
        self._rules[number] = rule
        rng = self.rng if rule.seed is None else SeededRng(rule.seed)
        self._counts[number] = _Count(rng)
        return number

    def remove(self, number: int) -> int:
        """Put a rule out of force; return how often it struck. Harmless when it is out."""
        self._rules.pop(number, None)
        return self._counts[number].struck

    def struck(self, number: int) -> int:
        """Return how often a rule struck so far."""
        return self._counts[number].struck

    def concern(self, api_key: int) -> bool:
        """Whether some rule may strike requests of this API."""
        return any(rule.api_key in (None, api_key) for rule in self._rules.values())

    def look_for_places(self, api_key: int) -> bool:
        """Whether some rule for this API wants to know its topics."""
        return any(
            rule.api_key in (None, api_key) and rule.is_about_places
            for rule in self._rules.values()
        )

    def have_corrupting(self, facts: Facts) -> bool:
        """Whether the records that answer this request may be damaged."""
        return any(
            rule.action is Action.CORRUPT and rule.matches(facts) for rule in self._rules.values()
        )

    def strike(self, facts: Facts, *, records: bool = False) -> list[Rule]:
        """Return the rules that strike this request, and count it.

        ``records``: those that damage the records of its answer, which is there; else the others.
        """
        struck = []
        for number, rule in self._rules.items():
            if (rule.action is Action.CORRUPT) is not records or not rule.matches(facts):
                continue
            count = self._counts[number]
            count.matched += 1
            if count.matched < rule.nth:
                continue
            if rule.times is not None and count.struck >= rule.times:
                continue
            if rule.rate is not None and count.rng.random_below(_MILLION) >= rule.rate * _MILLION:
                continue
            count.struck += 1
            struck.append(rule)
        return struck
