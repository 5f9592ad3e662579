"""The SCRAM credentials of all users, as a lookup, and the mechanisms that they are for.

The metadata of every node holds them, so this module hashes nothing until a client logs in.
Owns what an unknown user is served instead: a salt that is made of a secret of the cluster and of
the name, so that it is the same at each try, on each node and after each restart. Number of
iterations and length of the salt are those that most credentials of the mechanism have.
Source: RFC 5802, section 9 (enumeration of users).
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ottla.errors import OttlaError

SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""The hash of each mechanism there is."""
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""Kafka's bounds of what a credential may have been made with."""
SALT_BYTES = 26
"""What Kafka's own tools make."""
SECRET_BYTES = 32


class ScramCredential(NamedTuple):
    """What is kept of a password: enough to check a proof, not enough to make one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # The keys stay out of logs.
        return f"ScramCredential(salt={self.salt!r}, iterations={self.iterations})"


class FirstUser(NamedTuple):
    """A user that a cluster begins with."""

    name: str
    mechanism: str
    password: str
    iterations: int = ITERATIONS_MIN
    is_needed: bool = False
    """False: only a new cluster takes him in. True: every one does that does not know him yet, and
    where he is known his password must be this one."""

    def __repr__(self) -> str:
        # The password stays out of logs.
        return f"FirstUser({self.name!r}, {self.mechanism!r}, iterations={self.iterations})"


class PasswordDiffers(OttlaError):
    """A user that a start needs is known, by another password."""

    def __init__(self, user: str) -> None:
        super().__init__(f"the cluster knows the user {user} by another password")
        self.user = user


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
        import hmac  # noqa: PLC0415 - many a node lets all clients in

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
