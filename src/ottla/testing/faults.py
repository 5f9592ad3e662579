"""The face of faults: ``broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)``.

    with broker.faults.delay("Fetch", "2s", topic="orders"), broker.faults.fsync_error():
        ...

A fault is in force from the call on, until it has struck so often as it should, until ``heal``, or
to the end of its ``with``. One that never struck is told by ``unmatched``, and with it the plugin
warns at the end of the test: a test whose fault meets nothing tests nothing.
"""

from typing import Protocol, Self, TypedDict, Unpack

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.apis import ApiKey
from ottla.testing.cluster import seconds_of
from ottla.testing.requests import api_name


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
    nth: int
    """The first of the matching requests that is struck; 1."""
    times: int | None
    """How many are struck from there on; 1; None: all."""
    rate: float
    """The probability with which each is struck."""


class Ask(Protocol):
    """Asks the broker to do something; blocks; returns what it answers."""

    def __call__(self, do: str, **details: object) -> object:
        """Raise BrokerFailed unless it runs."""


class Fault:
    """One fault in force. A context manager, which heals it."""

    def __init__(self, ask: Ask, number: int, what: str) -> None:
        self._ask = ask
        self._number = number
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
        if self._struck is not None:
            return self._struck
        found = self._ask("struck", number=self._number)
        assert isinstance(found, int), "the server counts"
        return found

    def heal(self) -> None:
        """End it. Harmless when ended."""
        if self._struck is None:
            found = self._ask("heal", number=self._number)
            assert isinstance(found, int), "the server counts"
            self._struck = found


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

    def disk_full(self) -> Fault:
        """Let every write fail for want of room, until it is healed."""
        return self._keep("a full disk", self._ask("disk_full"))

    def fsync_error(self, *, nth: int = 1) -> Fault:
        """Let the ``nth`` fsync from now fail with an I/O error, once."""
        return self._keep("an fsync that fails", self._ask("fsync_error", nth=nth))

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

    def _keep(self, what: str, number: object) -> Fault:
        assert isinstance(number, int), "the server numbers faults"
        fault = Fault(self._ask, number, what)
        self._planned.append(fault)
        return fault


def _key(api: str) -> int:
    wanted = api.replace("_", "").lower()
    for key in ApiKey:
        if key.name.replace("_", "").lower() == wanted:
            return key.value
    raise NoSuchFault(f"no API {api}{_near(api, [api_name(key) for key in ApiKey])}")


def _code(name: str) -> int:
    if name.upper() in ErrorCode.__members__:
        return ErrorCode[name.upper()].value
    raise NoSuchFault(f"no error {name}{_near(name.upper(), list(ErrorCode.__members__))}")


def _near(word: str, words: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, words, 2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
