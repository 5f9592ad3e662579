"""``ssl.principal.mapping.rules``: how the name in a client's certificate becomes a user's name.

Owns the syntax and what a rule does: ``DEFAULT`` takes the whole distinguished name;
``RULE:pattern/replacement/`` replaces what the pattern matches, if it matches the whole name, and a
final ``L`` or ``U`` makes it lower or upper case. The first rule that fits decides.
Source: KIP-371; the answers of a live Kafka 4.3.
"""

import re
from dataclasses import dataclass

NAME_CHARACTERS_MAX = 1024
"""A longer distinguished name is refused: patterns may take long for it."""
_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)")
_NESTED = re.compile(r"\((?:\\.|[^()\\])*[*+}](?:\\.|[^()\\])*\)\s*[*+{]")
"""A repeated group that repeats something itself: it may take exponentially long to fail."""
_REFERENCE = re.compile(r"\$(\d+)|\\(.)|([^$\\]+)|(.)", re.DOTALL)


class NoRuleFits(Exception):
    """No rule makes a user's name of the distinguished name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""
    case: str
    """L, U or empty."""

    def apply(self, name: str) -> str | None:
        """Return the user's name; None when the rule does not fit."""
        if self.pattern.fullmatch(name) is None:
            return None
        made = self.pattern.sub(self._replaced, name)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(
            (match[part] or "") if isinstance(part, int) else part for part in self.replacement
        )


@dataclass(frozen=True, slots=True)
class MappingRules:
    """All rules, in order."""

    rules: tuple[Rule | None, ...]
    """None stands for DEFAULT."""

    def slow_patterns(self) -> list[str]:
        """Return the patterns that a hostile name may keep busy for very long."""
        patterns = [rule.pattern.pattern for rule in self.rules if rule is not None]
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
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            why = "expected DEFAULT or RULE:pattern/replacement/[LU], with commas between"
            raise ValueError(f"{why}, at {text[position : position + 40]!r}")
        position = match.end()
        rules.append(None if match[1] else _rule(match[2], match[3], match[4]))
    if not rules:
        rules.append(None)
    return MappingRules(tuple(rules))


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is wrong: {error}") from error
    parts = _replacement(replacement.replace("\\/", "/"), compiled.groups)
    return Rule(compiled, parts, case)


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Return the parts; ``$9`` is plain text when the pattern has no ninth group, as in Kafka."""
    parts: list[str | int] = []
    for number, escaped, plain, other in _REFERENCE.findall(text):
        if number and int(number) <= groups:
            parts.append(int(number))
        else:
            parts.append(f"${number}" if number else escaped or plain or other)
    return tuple(parts)
