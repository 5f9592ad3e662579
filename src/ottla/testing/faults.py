"""The face of faults: ``broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)``.

    with broker.faults.delay("Fetch", "2s", topic="orders"), broker.faults.fsync_error():
        ...

Named scenarios (``rolling_restart``, ``leader_moves``, ...) are several faults, drawn from a seed.

A fault is in force from the call on, until it has struck so often as it should, until ``heal``, or
to the end of its ``with``. One that never struck is told by ``unmatched``, and with it the plugin
warns at the end of the test: a test whose fault meets nothing tests nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, TypedDict, Unpack

from ottla.env.rng import SeededRng, SystemRng
from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.apis import ApiKey
from ottla.testing import scenarios
from ottla.testing.cluster import seconds_of
from ottla.testing.requests import api_name

SPAN_SECONDS_MAX = 3600.0
"""A test that waits longer has forgotten a unit."""
TIMES_MAX = 1_000
"""How often a scenario may strike; each time is a rule that is looked at for each request."""


class UnmatchedFault(UserWarning):
    """A fault was planned, and nothing met it."""


class NoSuchFault(OttlaError, ValueError):
    """A fault names an API or an error that there is not."""


class Where(TypedDict, total=False):
    """Which requests a fault strikes; what is left out stands for any."""

    topic: str
    partition: int
    client_id: str
    group: str
    transactional_id: str
    nth: int
    """The first of the matching requests that is struck; 1."""
    times: int | None
    """How many are struck from there on; 1; None: all."""
    rate: float
    """The probability with which each is struck."""
    seed: int
    """With which ``rate`` chooses the same in every run."""


class Ask(Protocol):
    """Asks the broker to do something; blocks; returns what it answers."""

    def __call__(self, do: str, **details: object) -> object:
        """Raise BrokerFailed unless it runs."""


class Fault:
    """A fault, or a scenario of several, in force. A context manager, which heals it."""

    def __init__(self, ask: Ask, numbers: Sequence[int], what: str) -> None:
        self._ask = ask
        self._numbers = numbers
        self._struck: int | None = None
        self.what = what
        """What was planned, in words."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()

    @property
    def struck(self) -> int:
        """How often it struck so far."""
        return self._sum("struck") if self._struck is None else self._struck

    def heal(self) -> None:
        """End it. Harmless when ended."""
        if self._struck is None:
            self._struck = self._sum("heal")

    def _sum(self, do: str) -> int:
        total = 0
        for number in self._numbers:
            found = self._ask(do, number=number)
            assert isinstance(found, int), "the server counts"
            total += found
        return total


class Faults:
    """What may go wrong at a broker."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._planned: list[Fault] = []

    def error(
        self, api: str | None, code: str | int, *, after: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Answer requests of ``api`` (``"Produce"``; None: all) with an error, by name or number.

        ``after``: the work is done all the same. A request that names several partitions is refused
        as a whole.
        """
        number = code if isinstance(code, int) else _code(code)
        return self._plan(f"error {code} to {api}", "error", api, where, code=number, after=after)

    def delay(self, api: str | None, span: str | float, **where: Unpack[Where]) -> Fault:
        """Serve requests ``"2s"`` later, and what follows them on their connections."""
        seconds = seconds_of(span)
        return self._plan(f"delay of {span} for {api}", "delay", api, where, seconds=seconds)

    def drop(self, api: str | None, *, after: bool = False, **where: Unpack[Where]) -> Fault:
        """Close the connection without an answer; ``after``: when the work is done."""
        return self._plan(f"drop of {api}", "drop", api, where, after=after)

    def throttle(self, api: str | None, span: str | float, **where: Unpack[Where]) -> Fault:
        """Tell the client in the answer to wait ``span``, and serve its connection no sooner.

        As a quota does that is used up. The request itself is served.
        """
        seconds = seconds_of(span)
        return self._plan(f"throttle of {span} for {api}", "throttle", api, where, seconds=seconds)

    def corrupt_batch(self, **where: Unpack[Where]) -> Fault:
        """Damage the first batch of each partition in a Fetch's answer; what is stored is right.

        Answers without records do not count. A client that checks no checksum (librdkafka without
        ``check.crcs``) does not notice, or reads something else.
        """
        return self._plan("a corrupt batch", "corrupt", "Fetch", where)

    def disk_full(self) -> Fault:
        """Let every write fail for want of room, until it is healed."""
        return self._keep("a full disk", self._ask("disk_full"))

    def fsync_error(self, *, nth: int = 1) -> Fault:
        """Let the ``nth`` fsync from now fail with an I/O error, once."""
        question = {"nth": _positive(nth, "nth")}
        return self._keep("an fsync that fails", self._ask("fsync_error", **question))

    def rolling_restart(
        self, *, times: int = 3, away: str | float = "20ms", seed: int | None = None
    ) -> Fault:
        """Restart the broker ``times`` times while the application works, half of them kills.

        A restart comes behind some requests; ``away``: how long nobody answers then. What was
        durable stays. As each scenario: ``seed`` None is drawn, and stands in ``what``.
        """
        seed = _seed(seed)
        plans = scenarios.rolling_restart(
            SeededRng(seed), times=_positive(times, "times"), away_seconds=_span(away)
        )
        return self._keep(f"rolling_restart(times={times}, seed={seed})", *self._rules(plans))

    def leader_moves(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int = 3,
        seed: int | None = None,
    ) -> Fault:
        """Have the leader be elsewhere ``times`` times, as a client sees that.

        Produces and fetches get NOT_LEADER_OR_FOLLOWER for some requests, and metadata
        LEADER_NOT_AVAILABLE; then this broker leads again.
        """
        seed = _seed(seed)
        plans = scenarios.leader_moves(
            SeededRng(seed), times=_positive(times, "times"), topic=topic, partition=partition
        )
        said = f"leader_moves(topic={topic!r}, times={times}, seed={seed})"
        return self._keep(said, *self._rules(plans))

    def zombie_producer(
        self, transactional_id: str | None = None, *, within: int = 3, seed: int | None = None
    ) -> Fault:
        """Let another producer take over a transactional id, behind the application's back.

        It comes before one of the first ``within`` requests of a transaction: from there on the
        application's producer is the zombie, and must be fenced. None: of whoever is met first.
        """
        seed = _seed(seed)
        plans = scenarios.zombie_producer(
            SeededRng(seed), transactional_id=transactional_id, within=_positive(within, "within")
        )
        said = f"zombie_producer({transactional_id!r}, within={within}, seed={seed})"
        return self._keep(said, *self._rules(plans))

    def slow_disk(self, *, up_to: str | float = "50ms", seed: int | None = None) -> Fault:
        """Let every fsync take longer, by up to so much."""
        seed = _seed(seed)
        pauses = scenarios.slow_disk(SeededRng(seed), up_to_seconds=_span(up_to))
        said = f"slow_disk(up_to={up_to!r}, seed={seed})"
        return self._keep(said, self._ask("slow_disk", pauses=pauses))

    def told(self) -> list[str]:
        """Return a line for each fault that was planned: what, and how often it struck."""
        return [f"{fault.what}: struck {fault.struck} times" for fault in self._planned]

    def unmatched(self) -> list[Fault]:
        """Return the faults that have not struck so far."""
        return [fault for fault in self._planned if not fault.struck]

    def clear(self) -> list[Fault]:
        """Heal all faults; return those that never struck."""
        for fault in self._planned:
            fault.heal()
        unmatched = self.unmatched()
        self._planned.clear()
        return unmatched

    def forget(self) -> None:
        """Forget all faults: nobody is there to heal them."""
        self._planned.clear()

    def _plan(
        self, what: str, action: str, api: str | None, where: Where, **details: object
    ) -> Fault:
        unknown = where.keys() - Where.__annotations__.keys()
        if unknown:
            raise TypeError(f"a fault has no {', '.join(sorted(unknown))}")
        key = None if api is None else _key(api)
        rule = {"action": action, "api_key": key, **where, **details}
        said = "".join(f", {name} {value}" for name, value in where.items())
        return self._keep(what + said, self._ask("fault", rule=rule))

    def _rules(self, plans: Iterable[scenarios.Plan]) -> list[object]:
        return [self._ask("fault", rule=plan) for plan in plans]

    def _keep(self, what: str, *numbers: object) -> Fault:
        kept = [number for number in numbers if isinstance(number, int)]
        assert len(kept) == len(numbers), "the server numbers faults"
        fault = Fault(self._ask, kept, what)
        self._planned.append(fault)
        return fault


def _seed(given: int | None) -> int:
    return SystemRng().random_below(1 << 32) if given is None else _whole(given, "seed")


def _whole(number: object, name: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} must be a whole number: {number!r}")  # From the endpoint's JSON.
    return number


def _span(span: str | float) -> float:
    seconds = seconds_of(span)
    if not 0 <= seconds <= SPAN_SECONDS_MAX:
        raise ValueError(f"a span is between 0 and {SPAN_SECONDS_MAX:g} s: {span}")
    return seconds


def _positive(number: int, name: str) -> int:
    if not 1 <= _whole(number, name) <= TIMES_MAX:
        raise ValueError(f"{name} must be at least 1, and {TIMES_MAX} at most: {number}")
    return number


def _key(api: str) -> int:
    wanted = str(api).replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key.value
    raise NoSuchFault(f"no API {api}{_near(str(api), [api_name(key) for key in ApiKey])}")


def _code(name: str) -> int:
    name = str(name)  # From the endpoint's JSON it may be anything.
    if name.upper() in ErrorCode.__members__:
        return ErrorCode[name.upper()].value
    raise NoSuchFault(f"no error {name}{_near(name.upper(), list(ErrorCode.__members__))}")


def _near(word: str, words: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, words, 2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
