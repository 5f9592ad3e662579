"""Counts what the members of a KIP-848 group ask for, as they come and go. Pure.

A join needs the topics that all members read, a heartbeat needs to know whether all members have
their targets. A look at all members each time made the joins of a large group quadratic; so each
member is counted once, when it changes. A decision about members as they will be passes its
``Change``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState

Key = TypeVar("Key", int, str)


class Change(NamedTuple):
    """Members that will be removed or replaced, and one as it will be."""

    going: Sequence[ConsumerMember] = ()
    coming: ConsumerMember | None = None


NO_CHANGE = Change()


class Turnover(NamedTuple):
    """Names that some member asks for only after a change, and names that none will."""

    gained: frozenset[str]
    lost: frozenset[str]

    def __bool__(self) -> bool:
        """Tell whether there are any names."""
        return bool(self.gained or self.lost)


class Tally:
    """How many members ask for each thing. *Invariant:* no counter has a count of 0."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        """For each topic, how many members subscribe to it by name."""
        self.regexes: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.classic = 0
        """The members that speak the classic protocol."""
        self.protocols: Counter[str] = Counter()
        """For each assignor of classic members, how many of them know it."""
        self.settled: Counter[int] = Counter()
        """For each epoch, how many members hold exactly their target of that epoch."""

    def replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Count a member as ``new`` instead of ``old``; None: it is new, or has gone."""
        if old is None or new is None or _asked(old) != _asked(new):
            self._count(old, -1)
            self._count(new, 1)
        if old is not None and old.state is MemberState.STABLE:
            _add(self.settled, (old.epoch,), -1)
        if new is not None and new.state is MemberState.STABLE:
            _add(self.settled, (new.epoch,), 1)

    def _count(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        _add(self.topics, member.topics, by)
        _add(self.regexes, _regexes(member), by)
        if member.assignor is not None:
            _add(self.assignors, (member.assignor,), by)
        if member.classic is not None:
            self.classic += by
            _add(self.protocols, {one.name for one in member.classic.protocols}, by)

    def topics_after(self, change: Change) -> Turnover:
        """Return the topics that are named only after ``change``, and those only before."""
        coming = () if change.coming is None else change.coming.topics
        return _turnover(self.topics, [one.topics for one in change.going], coming)

    def regexes_after(self, change: Change) -> Turnover:
        """Return the expressions that exist only after ``change``, and those only before."""
        coming = () if change.coming is None else _regexes(change.coming)
        return _turnover(self.regexes, [_regexes(one) for one in change.going], coming)

    def votes_after(self, change: Change, assignor: str) -> int:
        """Return how many members ask for an assignor after ``change``."""
        is_coming = change.coming is not None and change.coming.assignor == assignor
        gone = sum(one.assignor == assignor for one in change.going)
        return self.assignors[assignor] + is_coming - gone

    def check(self, members: Iterable[ConsumerMember]) -> None:
        """Assert that just these members are counted; for tests."""
        anew = Tally()
        for member in members:
            anew.replace(None, member)
        assert vars(self) == vars(anew), f"{vars(self)} is counted, there is {vars(anew)}"


def _asked(member: ConsumerMember) -> tuple[object, ...]:
    return member.topics, member.regex, member.assignor, member.classic


def _regexes(member: ConsumerMember) -> tuple[str, ...]:
    return (member.regex,) if member.regex else ()


def _add(counts: Counter[Key], keys: Iterable[Key], by: int) -> None:
    for key in keys:
        count = counts[key] + by
        if count:
            counts[key] = count
        else:
            del counts[key]


def _turnover(
    counts: Counter[str], going: Iterable[Iterable[str]], coming: Iterable[str]
) -> Turnover:
    moved = Counter(coming)
    for names in going:
        moved.subtract(names)
    return Turnover(
        frozenset(name for name, by in moved.items() if by > 0 and name not in counts),
        frozenset(name for name, by in moved.items() if by < 0 and counts[name] + by == 0),
    )
