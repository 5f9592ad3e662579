"""Reads the value of ``sasl.jaas.config``: a login module and its options, in Java's JAAS syntax.

    line := MODULE (required|requisite|...) {NAME = VALUE} ;

Owns that syntax as far as one line needs it. No error shows the line, which contains passwords.
Source: the documentation of javax.security.auth.login.Configuration.
"""

import re
from typing import NamedTuple

_LINE = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<rest>.*?);\s*",
    re.DOTALL | re.IGNORECASE,
)
_PAIR = re.compile(
    r"""\s*(?P<name>[\w.@+-]+)\s*=\s*(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\s";]+))""",
    re.DOTALL,
)


class JaasLine(NamedTuple):
    """A login module and its options."""

    module: str
    """The name of its class, without the package."""
    options: dict[str, str]

    def __repr__(self) -> str:
        # Passwords stay out of logs.
        return f"JaasLine(module={self.module!r})"


def read_jaas_line(text: str) -> JaasLine:
    """Return the login module of a line. Raises ValueError, which does not show the line."""
    line = _LINE.fullmatch(text)
    if line is None:
        raise ValueError('expected one line of the form ...LoginModule required name="value" ...;')
    options: dict[str, str] = {}
    rest, position = line["rest"], 0
    while rest[position:].strip():
        pair = _PAIR.match(rest, position)
        if pair is None:
            raise ValueError('after the module name="value" is expected, any number of times')
        quoted = pair["quoted"]
        options[pair["name"]] = pair["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = pair.end()
    return JaasLine(line["module"].rpartition(".")[2], options)
