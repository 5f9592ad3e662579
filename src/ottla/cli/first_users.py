"""``--add-scram``: who may log in to a new cluster, in the words of Kafka's own storage tool.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=alice,password-file=/run/secrets/alice,iterations=8192]

Other users of the machine see a command line: ``password-file`` keeps the password off it.
"""

import re
from pathlib import Path

from ottla.cli.failure import Exit, Failure
from ottla.security.credentials import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, FirstUser

_FORM = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELDS = ("name", "password", "password-file", "iterations")
_EXPECTED = "expected MECHANISM=[name=NAME,password=PASSWORD] or [name=NAME,password-file=FILE]"


def read_first_user(text: str) -> FirstUser:
    """Return the user that ``text`` names. Raises Failure.

    The failure does not show the text, which holds a password.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise _unusable(_EXPECTED)
    if form["mechanism"] not in HASHES:
        raise _unusable(f"the mechanism is none of {', '.join(HASHES)}")
    fields: dict[str, str] = {}
    for part in form["fields"].split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in _FIELDS:
            raise _unusable(f"{_EXPECTED}; beside them only iterations=NUMBER")
        fields[name.strip()] = value
    password = _password(fields)
    if not fields.get("name") or not password:
        raise _unusable(_EXPECTED)
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    is_number = iterations.isascii() and iterations.isdigit() and len(iterations) < 10
    if not (is_number and ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX):
        raise _unusable(f"iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return FirstUser(fields["name"], form["mechanism"], password, int(iterations))


def _password(fields: dict[str, str]) -> str:
    path = fields.get("password-file")
    if path is None:
        return fields.get("password", "")
    if "password" in fields:
        raise _unusable("password and password-file exclude each other")
    try:
        return Path(path).read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise _unusable(f"cannot read {path}: {why}") from error


def _unusable(why: str) -> Failure:
    return Failure("--add-scram cannot be understood", why=why, code=Exit.USAGE)
