"""``ssl.principal.mapping.rules``: how the name in a client's certificate becomes a user's name.

Owns the syntax and what a rule does: ``DEFAULT`` takes the whole distinguished name;
``RULE:pattern/replacement/`` replaces what the pattern matches, if it matches the whole name, and a
final ``L`` or ``U`` makes it lower or upper case. The first rule that fits decides. Patterns and
replacements are Java's: what Python would understand in another way is put into its words, or
refused, because a name must not become another user's here than it was with Kafka.
Source: KIP-371; the answers of a live Kafka 4.3; Java's documentation of Pattern and Matcher.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

NAME_CHARACTERS_MAX = 1024
"""A longer distinguished name is refused: patterns may take long for it."""
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
_BETWEEN = re.compile(r"[\s,]*")
_NESTED = re.compile(r"\((?:\\.|[^()\\])*[*+}](?:\\.|[^()\\])*\)\s*[*+{]")
"""A repeated group that repeats something itself: it may take exponentially long to fail."""
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\d+)|\\(.)|([^$\\]+)|(.)", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<flags>\(\?[A-Za-z-]+[:)])|(?P<named>\(\?<(?=[A-Za-z]))|(?P<python>\(\?P)"
    r"|\\k<(?P<back>\w+)>|\\(?P<escaped>.)|(?P<count>\{\d+(?:,\d*)?\})"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<any>.)",
    re.DOTALL,
)
_IN_SET = re.compile(r"\\(?P<escaped>.)|(?P<sets>\[|&&|--)|(?P<any>.)", re.DOTALL)
_BOTH_KNOW = frozenset("dDwWsSbBAZtnrfaxu123456789")
"""Letters and digits that mean the same in both languages behind a backslash."""
_ANY = "[^\n\r\x85\u2028\u2029]"
"""Java's dot: nothing that ends a line."""


class NoRuleFits(Exception):
    """No rule makes a user's name of the distinguished name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    source: str
    """The pattern as it was written."""
    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""
    case: str
    """L, U or empty."""

    def apply(self, name: str) -> str | None:
        """Return the user's name; None when the rule does not fit."""
        if self.pattern.fullmatch(name) is None:
            return None
        made = "".join(self._replaced(name))
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made

    def _replaced(self, name: str) -> Iterator[str]:
        """Yield the pieces in which each match is replaced, as Java finds them one after another.

        ``re.sub`` looks for something longer where it has found nothing; Java goes on behind it.
        """
        copied, position = 0, 0
        while position <= len(name) and (match := self.pattern.search(name, position)) is not None:
            yield name[copied : match.start()]
            for part in self.replacement:
                yield (match[part] or "") if isinstance(part, int) else part
            copied = match.end()
            position = copied + (match.start() == copied)
        yield name[copied:]


@dataclass(frozen=True, slots=True)
class MappingRules:
    """All rules, in order."""

    rules: tuple[Rule | None, ...]
    """None stands for DEFAULT."""

    def slow_patterns(self) -> list[str]:
        """Return the patterns that a hostile name may keep busy for very long."""
        patterns = [rule.source for rule in self.rules if rule is not None]
        return [one for one in patterns if _NESTED.search(one)]

    def user_of(self, name: str) -> str:
        """Return the user's name for a distinguished name. Raises NoRuleFits."""
        if len(name) > NAME_CHARACTERS_MAX:
            raise NoRuleFits(f"its name has {len(name)} characters, over {NAME_CHARACTERS_MAX}")
        for rule in self.rules:
            made = name if rule is None else rule.apply(name)
            if made is not None:
                return made
        raise NoRuleFits(f"no rule of ssl.principal.mapping.rules fits {name[:200]!r}")


def read_mapping_rules(text: str) -> MappingRules:
    """Return the rules that ``text`` stands for. Raises ValueError with the reason."""
    rules: list[Rule | None] = []
    position = _skipped(text, 0)
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            why = "expected DEFAULT or RULE:pattern/replacement/[LU], with commas between"
            raise ValueError(f"{why}, at {text[position : position + 40]!r}")
        position = _skipped(text, match.end())
        rules.append(None if match[1] else _rule(match[2], match[3], match[4]))
    if not rules:
        raise ValueError("without a rule nobody could come in; DEFAULT takes the whole name")
    return MappingRules(tuple(rules))


def _skipped(text: str, position: int) -> int:
    """Return where the next rule begins: rules without a text are left out, as in Kafka."""
    match = _BETWEEN.match(text, position)
    return position if match is None else match.end()


def _rule(source: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(_in_python(source), re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {source!r} is wrong: {error}") from error
    return Rule(source, compiled, tuple(_replacement(replacement, compiled)), case)


def _in_python(source: str) -> str:
    """Return a pattern of Java as Python writes it. Raises ValueError for what it cannot."""
    matches_line_ends = re.match(r"\(\?i?si?\)", source) is not None
    made: list[str] = []
    for token in _TOKEN.finditer(source):
        kind, text = token.lastgroup, token[0]
        if kind == "escaped":
            text = _escaped(source, token["escaped"])
        elif kind == "set":
            text = f"[{_set(source, text[1:-1])}]"
        elif kind == "named":
            text = "(?P<"
        elif kind == "back":
            text = f"(?P={token['back']})"
        elif kind == "flags":
            _check_flags(source, text, is_first=token.start() == 0)
        elif kind == "python" or text == "{":
            raise _not_served(source, text)
        elif text == "." and not matches_line_ends:
            text = _ANY
        made.append(text)
    return "".join(made)


def _set(source: str, inside: str) -> str:
    made = []
    for token in _IN_SET.finditer(inside):
        if token.lastgroup == "sets":
            raise _not_served(source, "sets within sets")
        text = token[0]
        if token.lastgroup == "escaped":
            text = _escaped(source, token["escaped"])
        made.append(f"\\{text}" if text in "&~|" else text)
    return "".join(made)


def _check_flags(source: str, text: str, *, is_first: bool) -> None:
    served = ("(?i)", "(?s)", "(?is)", "(?si)") if is_first else ()
    if text not in (*served, "(?i:", "(?-i:"):
        raise _not_served(source, text)


def _escaped(source: str, letter: str) -> str:
    if letter == "z":
        return "\\Z"
    if letter.isascii() and letter.isalnum() and letter not in _BOTH_KNOW:
        raise _not_served(source, f"\\{letter}")
    return f"\\{letter}"


def _not_served(source: str, what: str) -> ValueError:
    return ValueError(f"the pattern {source!r} has {what}, which is not served")


def _replacement(text: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """Yield the parts. A group's number has as many digits as make the number of a group.

    Behind them, and if there is no such group, stands plain text. Raises ValueError where Java
    would fail for each name.
    """
    for name, digits, escaped, plain, other in _REFERENCE.findall(text):
        if name:
            if name not in pattern.groupindex:
                raise ValueError(f"the replacement {text!r} names no group of {pattern.pattern!r}")
            yield pattern.groupindex[name]
        elif digits:
            yield from _numbered(text, digits, pattern)
        elif other == "$":
            raise ValueError(f"the replacement {text!r} has a $ without a number; \\$ is a $")
        else:
            yield escaped or plain or other


def _numbered(text: str, digits: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    number, used = int(digits[0]), 1
    if number > pattern.groups:
        if not pattern.groups:
            raise ValueError(f"the replacement {text!r} names a group, and there is none")
        yield f"${digits}"
        return
    while used < len(digits) and number * 10 + int(digits[used]) <= pattern.groups:
        number, used = number * 10 + int(digits[used]), used + 1
    yield number
    yield digits[used:]
