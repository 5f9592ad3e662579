"""PLAIN, the broker's half: a name and a password as they are.

    message := [authorization id] NUL user name NUL password

Source: RFC 4616; the texts of refusals are those of Apache Kafka 4.3.
"""

import hmac
from collections.abc import Mapping

from ottla.ids import Principal
from ottla.security.exchange import NAME_LENGTH_MAX, AuthenticationRefused, Proved

PARTS = 3
_WRONG = "Authentication failed: Invalid username or password"
_NOBODY = b"\0"
"""What an unknown user's password is compared with: no password holds a NUL."""


class Plain:
    """One exchange, of one step."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """Take the passwords by user name."""
        self._passwords = passwords

    def step(self, token: bytes) -> Proved:
        """Check the one message. Raises AuthenticationRefused."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationRefused("Authentication failed: the token is not UTF-8") from None
        if len(parts) != PARTS:
            raise AuthenticationRefused(
                f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {min(len(parts), 4)}"
            )
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationRefused("Authentication failed: username not specified")
        if not password:
            raise AuthenticationRefused("Authentication failed: password not specified", name)
        expected = None if len(name) > NAME_LENGTH_MAX else self._passwords.get(name)
        known = _NOBODY if expected is None else expected.encode()
        if not hmac.compare_digest(known, password.encode()):
            raise AuthenticationRefused(_WRONG, name[:NAME_LENGTH_MAX])
        if authorization_id and authorization_id != name:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                name,
            )
        return Proved(Principal("User", name))
