r"""Regular expressions over topic names, in time linear in the name: no expression explodes.

    expression = branch { "|" branch }
    branch     = { atom [ "*" | "+" | "?" | "{m}" | "{m,}" | "{m,n}" ] [ "?" ] }
    atom       = character | "." | "^" | "$" | class | "(" expression ")" | "(?:" expression ")"
               | "\" escape

A subset of RE2, the syntax of Kafka: no flags, named groups or Unicode classes. The expression
becomes a machine without memory (Thompson); a name is held against all its states at once, and
the sets of states that were met are kept, so that most characters cost a look-up. The whole name
has to match. Others have their turns amid a name, too. Texts of refusals are RE2's. Pure.
Source: reliability row 27; RE2's syntax page.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.sliced import Steps, at_once

PATTERN_LENGTH_MAX = 4096
STATES_MAX = 2000
"""The largest machine of an expression: the steps that one character of a name can cost."""
NESTING_MAX = 50
REPEAT_MAX = 1000
SETS_KEPT_MAX = 2000
WORK_MAX = 500_000
"""States that one pattern may look at without a look-up: some tenths of a second."""
PAUSE_WORK = 4_000
"""After so many of them others have a turn: 1 ms or so."""
PAUSE_CHARACTERS = 8_192
"""After so many characters of names as well, each of which may cost a look-up only."""
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGIT = frozenset("0123456789")
_SPACE = frozenset(" \t\n\r\f")
_CLASSES = {"w": _WORD, "d": _DIGIT, "s": _SPACE}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

Accepts = Callable[[str], bool]


class InvalidPattern(ValueError):
    """The expression cannot be read; ``str()`` is RE2's word for it."""


class _Step(NamedTuple):
    """A state that takes a character, or (``accepts`` None) goes on at once to all of ``to``."""

    accepts: Accepts | None
    to: tuple[int, ...]
    is_start: bool = False
    """Only at the start of the name (^)."""
    is_end: bool = False
    """Only at the end of the name ($)."""


class _Part(NamedTuple):
    """A node of the tree: its kind, and its parts."""

    kind: str
    """``char``, ``start``, ``end``, ``join``, ``either`` or ``repeat``."""
    parts: tuple["_Part", ...] = ()
    accepts: Accepts | None = None
    least: int = 0
    most: int | None = None


class TopicPattern:
    """An expression that can be held against names."""

    def __init__(self, pattern: str) -> None:
        """Build the machine. Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        try:
            tree = _Parser(pattern).parse()
            self._steps: list[_Step] = []
            self._accepting = self._add(_Step(None, ()))
            self._first = self._build(tree, self._accepting)
        except InvalidPattern as error:
            raise _refusal(pattern, str(error)) from error
        self._pattern = pattern
        self._start = self._closure((self._first,), at_start=True, at_end=False)
        self._known: dict[frozenset[int], int] = {}
        """Use: sets of states that were met, by number; the lists below go by that number."""
        self._sets: list[frozenset[int]] = []
        self._moves: list[dict[str, int]] = []
        self._finals: list[dict[str, bool]] = []
        """Use: whether the name matches if it ends with this character."""
        self._work = 0
        """Use: states looked at that no look-up saved; what a hostile expression may cost."""
        self._pause_at = PAUSE_WORK

    def matches(self, name: str) -> bool:
        """Tell whether the whole of ``name`` matches; raises as ``select``."""
        return bool(at_once(self.select([name])))

    def select(self, names: Sequence[str]) -> Steps[list[str]]:
        """Return the names that match as a whole, in their order.

        Raises KafkaError (INVALID_REGULAR_EXPRESSION) once this has cost too much over all names.
        """
        found: list[str] = []
        characters = 0
        for name in names:
            if (yield from self._is_match(name)):
                found.append(name)
            characters += len(name) + 1
            if characters >= PAUSE_CHARACTERS:
                characters = 0
                yield None
        yield None  # A caller may run many short ones in a row.
        return found

    def _is_match(self, name: str) -> Steps[bool]:
        if not name:
            empty = self._closure((self._first,), at_start=True, at_end=True)
            return self._accepting in empty
        at = self._keep(self._start)
        for begin in range(0, len(name) - 1, PAUSE_CHARACTERS):
            for character in name[begin : min(begin + PAUSE_CHARACTERS, len(name) - 1)]:
                found = self._moves[at].get(character)
                if found is None:
                    found = self._move(at, character)
                    if self._work >= self._pause_at:
                        self._pause_at = self._work + PAUSE_WORK
                        yield None
                at = found
            if begin:
                yield None
        return self._ends(at, name[-1])

    def _keep(self, states: frozenset[int]) -> int:
        """Return the number of a set of states; if there are too many, all are forgotten."""
        number = self._known.get(states)
        if number is None:
            if len(self._sets) >= SETS_KEPT_MAX:
                self._sets, self._moves, self._finals = [], [], []
                self._known.clear()
            number = self._known[states] = len(self._sets)
            self._sets.append(states)
            self._moves.append({})
            self._finals.append({})
        return number

    def _move(self, at: int, character: str) -> int:
        moves = self._moves[at]
        moved = self._keep(self._reached(at, character, at_end=False))
        moves[character] = moved  # Harmless if the table has been forgotten meanwhile.
        return moved

    def _ends(self, at: int, character: str) -> bool:
        is_end = self._finals[at].get(character)
        if is_end is None:
            is_end = self._accepting in self._reached(at, character, at_end=True)
            self._finals[at][character] = is_end
        return is_end

    def _reached(self, at: int, character: str, *, at_end: bool) -> frozenset[int]:
        states = self._sets[at]
        reached: list[int] = []
        for state in states:
            step = self._steps[state]
            if step.accepts is not None and step.accepts(character):
                reached += step.to
        moved = self._closure(tuple(reached), at_start=False, at_end=at_end)
        self._work += len(states) + len(moved)
        if self._work > WORK_MAX:
            raise _refusal(self._pattern, "expression too costly for the topics there are")
        return moved

    def _closure(self, states: tuple[int, ...], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """Return the states with those that they go on to without a character."""
        found: set[int] = set()
        left = list(states)
        while left:
            state = left.pop()
            if state in found:
                continue
            step = self._steps[state]
            if (step.is_start and not at_start) or (step.is_end and not at_end):
                continue
            found.add(state)
            if step.accepts is None:
                left += step.to
        return frozenset(found)

    # From the tree to the machine; each piece goes on to ``then``.

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= STATES_MAX:
            raise InvalidPattern("expression too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def _build(self, part: _Part, then: int) -> int:
        if part.kind == "char":
            return self._add(_Step(part.accepts, (then,)))
        if part.kind == "start":
            return self._add(_Step(None, (then,), is_start=True))
        if part.kind == "end":
            return self._add(_Step(None, (then,), is_end=True))
        if part.kind == "join":
            for one in reversed(part.parts):
                then = self._build(one, then)
            return then
        if part.kind == "either":
            return self._add(_Step(None, tuple(self._build(one, then) for one in part.parts)))
        return self._repeat(part, then)

    def _repeat(self, part: _Part, then: int) -> int:
        (inner,) = part.parts
        if part.most is None:
            loop = self._add(_Step(None, ()))
            self._steps[loop] = _Step(None, (self._build(inner, loop), then))
            then = loop
        else:
            for _ in range(part.most - part.least):
                then = self._add(_Step(None, (self._build(inner, then), then)))
        for _ in range(part.least):
            then = self._build(inner, then)
        return then


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidPattern("expression too large")
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> _Part:
        tree = self._either()
        if self._at < len(self._pattern):
            raise InvalidPattern("unexpected )")
        return tree

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _skip(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self._at)
        if is_there:
            self._at += len(text)
        return is_there

    def _either(self) -> _Part:
        branches = [self._join()]
        while self._skip("|"):
            branches.append(self._join())
        return branches[0] if len(branches) == 1 else _Part("either", tuple(branches))

    def _join(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Part("join", tuple(parts))

    def _repeated(self, atom: _Part) -> _Part:
        bounds = self._bounds()
        if bounds is None:
            return atom
        self._skip("?")  # It makes no difference here which of the matches is found.
        if self._peek() in ("*", "+", "?") or self._bounds() is not None:
            raise InvalidPattern("invalid nested repetition operator")
        return _Part("repeat", (atom,), least=bounds[0], most=bounds[1])

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(operator):
                return bounds
        end = self._pattern.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        first, comma, second = self._pattern[self._at + 1 : end].partition(",")
        if not _is_number(first) or (second and not _is_number(second)):
            return None  # Then the brace stands for itself.
        least = int(first)
        most = (int(second) if second else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise InvalidPattern("invalid repeat count")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Part:
        character = self._take()
        if character in ("*", "+", "?"):
            raise InvalidPattern("missing argument to repetition operator")
        if character == "(":
            return self._group()
        if character == "[":
            return _Part("char", accepts=self._class())
        if character == ".":
            return _Part("char", accepts=lambda one: one != "\n")
        if character == "^":
            return _Part("start")
        if character == "$":
            return _Part("end")
        if character == "\\":
            return self._escape()
        return _Part("char", accepts=character.__eq__)

    def _group(self) -> _Part:
        if self._peek() == "?" and not self._skip("?:"):
            raise InvalidPattern("invalid or unsupported Perl syntax")
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise InvalidPattern("expression nests too deeply")
        inner = self._either()
        if not self._skip(")"):
            raise InvalidPattern("missing closing )")
        self._depth -= 1
        return inner

    def _escape(self) -> _Part:
        character = self._take()
        if character in ("A", "z"):
            return _Part("start" if character == "A" else "end")
        members, is_negated = self._escaped(character)
        return _Part("char", accepts=lambda one: (one in members) is not is_negated)

    def _escaped(self, character: str) -> tuple[frozenset[str], bool]:
        if not character:
            raise InvalidPattern("trailing backslash at end of expression")
        if character.lower() in _CLASSES:
            return _CLASSES[character.lower()], character.isupper()
        if character in _CONTROL:
            return frozenset(_CONTROL[character]), False
        if character.isalnum() or character == "_" or not character.isascii():
            raise InvalidPattern("invalid escape sequence")
        return frozenset(character), False

    def _class(self) -> Accepts:
        is_negated = self._skip("^")
        members: set[str] = set()
        ranges: list[tuple[str, str]] = []
        excluded: list[frozenset[str]] = []
        is_first = True
        while self._peek() != "]" or is_first:
            is_first = False
            if self._peek() == "[" and self._pattern.startswith("[:", self._at):
                raise InvalidPattern("invalid character class range")
            low = self._class_member(members, excluded)
            if low is None:
                continue
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._class_member(set(), [])
                if high is None or high < low:
                    raise InvalidPattern("invalid character class range")
                ranges.append((low, high))
            else:
                members.add(low)
        self._at += 1
        return _class_of(frozenset(members), ranges, excluded, is_negated=is_negated)

    def _class_member(self, members: set[str], excluded: list[frozenset[str]]) -> str | None:
        """Take one member of a class: a character, or (None) a class that was added."""
        character = self._take()
        if not character:
            raise InvalidPattern("missing closing ]")
        if character != "\\":
            return character
        found, is_negated = self._escaped(self._take())
        if len(found) == 1 and not is_negated:
            return next(iter(found))
        if is_negated:
            excluded.append(found)
        else:
            members |= found
        return None


def _refusal(pattern: str, why: str) -> KafkaError:
    why = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}."
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, why)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _class_of(
    members: frozenset[str],
    ranges: list[tuple[str, str]],
    excluded: list[frozenset[str]],
    *,
    is_negated: bool,
) -> Accepts:
    starts, ends = _merged(ranges)

    def accepts(one: str) -> bool:
        at = bisect_right(starts, one)
        is_in = (
            one in members
            or (at > 0 and one <= ends[at - 1])
            or any(one not in others for others in excluded)
        )
        return is_in is not is_negated

    return accepts


def _merged(ranges: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return where ranges begin and end, in order and none within another.

    However many an expression names, a character is looked for in a few steps.
    """
    starts: list[str] = []
    ends: list[str] = []
    for low, high in sorted(ranges):
        if ends and low <= ends[-1]:
            ends[-1] = max(ends[-1], high)
        else:
            starts.append(low)
            ends.append(high)
    return starts, ends
