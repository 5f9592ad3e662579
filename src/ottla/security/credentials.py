"""The SCRAM credentials of all users, as a lookup.

Owns what an unknown user is served instead: a salt that is made of a secret of the cluster and of
the name, so that it is the same at each try, on each node and after each restart. Number of
iterations and length of the salt are those that most credentials of the mechanism have.
Source: RFC 5802, section 9 (enumeration of users).
"""

import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.security.scram import HASHES, ITERATIONS_MIN, ScramCredential

SALT_BYTES = 26
"""What Kafka's own tools make."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class FirstUser:
    """A user that a new cluster begins with."""

    name: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = ITERATIONS_MIN


class ScramCredentials:
    """Credentials by mechanism and user name. Filled by whoever follows the metadata."""

    def __init__(self) -> None:
        self._by_mechanism: dict[str, dict[str, ScramCredential]] = {name: {} for name in HASHES}
        self._shapes: dict[str, tuple[int, int]] = {}
        """Use: length of the salt and iterations that are the commonest, by mechanism; a cache."""

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._by_mechanism.values()))

    def of(self, mechanism: str) -> Mapping[str, ScramCredential]:
        """Return those of one mechanism by user name; none for a mechanism that there is not."""
        return self._by_mechanism.get(mechanism, {})

    def set(self, mechanism: str, name: str, credential: ScramCredential) -> None:
        """Take a credential in. The mechanism is a key of HASHES."""
        self._by_mechanism[mechanism][name] = credential
        self._shapes.pop(mechanism, None)

    def remove(self, mechanism: str, name: str) -> None:
        """Forget a credential. Harmless when there is none."""
        self._by_mechanism[mechanism].pop(name, None)
        self._shapes.pop(mechanism, None)

    def find(self, mechanism: str, name: str, secret: bytes, no_key: bytes) -> ScramCredential:
        """Return a user's credential, or a made-up one that no proof fits.

        ``secret``: the cluster's; ``no_key``: random bytes that nobody knows.
        """
        known = self._by_mechanism[mechanism].get(name)
        hash_name = HASHES[mechanism]
        made = hmac.digest(secret, f"{mechanism}|{name}".encode(), hash_name)
        if known is not None:
            return known
        salt_bytes, iterations = self._shape(mechanism)
        salt = (made * (salt_bytes // len(made) + 1))[:salt_bytes]
        key = hmac.digest(no_key, made, hash_name)
        return ScramCredential(salt, key, key, iterations)

    def _shape(self, mechanism: str) -> tuple[int, int]:
        shape = self._shapes.get(mechanism)
        if shape is None:
            counted = Counter(
                (len(one.salt), one.iterations) for one in self._by_mechanism[mechanism].values()
            )
            commonest = counted.most_common(1)
            shape = commonest[0][0] if commonest else (SALT_BYTES, ITERATIONS_MIN)
            self._shapes[mechanism] = shape
        return shape
