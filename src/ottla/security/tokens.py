"""Judges bearer tokens: signed JSON Web Tokens, by the public keys of their issuer.

Owns which algorithms and keys are taken, and which claims a token needs. The key says which
algorithms it is for, never the token: ``none`` and the symmetric ones are not among them. A token
names no key of its own, and starts no fetch of an address in it. Knows no connection and no clock.
The only user of PyJWT and cryptography (extra ``oauth``). No refusal contains a token.
Source: RFC 7515, 7517, 7518, 7519, 8725; the judgement of a live Kafka 4.3.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Literal, NamedTuple, cast, overload

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from ottla.config.oauth import TokenRules
from ottla.errors import OttlaError
from ottla.security.exchange import NAME_LENGTH_MAX

TOKEN_LENGTH_MAX = 64 * 1024
"""A longer token is refused unread; honest ones have one or two thousand bytes."""
HEADER_LENGTH_MAX = 8 * 1024
KEY_ID_LENGTH_MAX = 256
KEYS_MAX = 100
"""How many keys of a set are kept."""
VALUES_MAX = 20_000
"""How many values, or so, are read of a key set; one key has some ten. 300,000 in a megabyte would
take the loop 0.1 s."""
RSA_BITS = range(2048, 8192 + 1)
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_SECONDS_MAX = 1e18
"""No claim may name a later time; Kafka takes this one."""
_ENDS_MS_MAX = 1 << 60
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))
"""What Java's ``trim`` takes off, and nothing else: with a no-break space more it is another user,
whom the issuer may give to somebody else."""
_PARTS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


class TokenRefused(OttlaError):
    """A token is not good. The text is for the broker's log and has nothing of an unsigned one."""


class KeysUnusable(OttlaError):
    """A text is no set of keys, or has none that can be used."""


class BearerToken(NamedTuple):
    """What a good token says."""

    name: str
    expires_ms: int
    """Wall time."""


class Key(NamedTuple):
    """One public key."""

    key_id: str | None
    algorithms: tuple[str, ...]
    """Those that it may have signed by."""
    public: RSAPublicKey | EllipticCurvePublicKey
    """As PyJWT takes it."""


class KeySet:
    """The keys of one issuer, at one time."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = tuple(keys)
        self._by_id: dict[str | None, tuple[Key, ...]] = {}
        for key in self._keys:
            self._by_id[key.key_id] = (*self._by_id.get(key.key_id, ()), key)

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key_id: str) -> bool:
        """Whether there is a key of this id."""
        return key_id in self._by_id

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Return the one key that it may be. ``key_id`` None: the only one for that algorithm."""
        found = self._keys if key_id is None else self._by_id.get(key_id, ())
        fitting = [key for key in found if algorithm in key.algorithms]
        return fitting[0] if len(fitting) == 1 else None


def read_key_set(text: bytes) -> KeySet:
    """Return the keys of a JWKS document that tokens may be signed by. Raises KeysUnusable.

    Keys of other kinds, for encryption, or too short are left out.
    """
    if sum(map(text.count, (b"{", b"[", b":", b","))) > VALUES_MAX:
        raise KeysUnusable(f"more than {VALUES_MAX} values")
    try:
        document = _parsed(text)
    except (ValueError, RecursionError):
        raise KeysUnusable("expected JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise KeysUnusable('expected {"keys": [...]}')
    if len(listed) > KEYS_MAX:
        raise KeysUnusable(f"expected at most {KEYS_MAX} keys, found {len(listed)}")
    keys = [key for each in listed if (key := _read_key(each)) is not None]
    if not keys:
        raise KeysUnusable(f"of {len(listed)} keys none is an RSA or EC key to verify by")
    return KeySet(keys)


def _read_key(described: object) -> Key | None:
    """Return a key; None: it is of no use here."""
    if not isinstance(described, dict) or described.get("use", "sig") != "sig":
        return None
    algorithms: tuple[str, ...]
    kind, curve = described.get("kty"), described.get("crv")
    if kind == "RSA":
        algorithms = _RSA
    elif kind == "EC" and isinstance(curve, str) and curve in _OF_CURVE:
        algorithms = (_OF_CURVE[curve],)
    else:
        return None
    named = described.get("alg")
    if named is not None:
        algorithms = (named,) if named in algorithms else ()
    key_id = described.get("kid")
    if not algorithms or not isinstance(key_id, str | None):
        return None
    parts = {name: described[name] for name in _PUBLIC if name in described}
    public = _read_public(parts, algorithms)
    return None if public is None else Key(key_id, algorithms, public)


def _read_public(
    parts: dict[str, object], algorithms: Sequence[str]
) -> RSAPublicKey | EllipticCurvePublicKey | None:
    """Return a public key that may be used for these; None: it is none."""
    if any(isinstance(part, str) and len(part) > PART_LENGTH_MAX for part in parts.values()):
        return None
    try:
        public = PyJWK(parts, algorithms[0]).key
    except (PyJWTError, ValueError, TypeError):
        return None
    if isinstance(public, RSAPublicKey):
        return public if public.key_size in RSA_BITS else None
    return public if isinstance(public, EllipticCurvePublicKey) else None


_PUBLIC = ("kty", "crv", "x", "y", "n", "e")
"""What is read of a key: nothing private."""
PART_LENGTH_MAX = 4 * RSA_BITS[-1] // 3 // 8 + 8
"""No number of a key that is taken needs more base64, and what is longer is read for long."""


class Judge:
    """Judges the tokens of one listener."""

    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], KeySet],
        wall_ms: Callable[[], int],
        miss: Callable[[str], None],
    ) -> None:
        """Build it; ``keys`` are those known now; ``miss`` hears of each id that is not known."""
        self._rules = rules
        self._keys = keys
        self._wall_ms = wall_ms
        self._miss = miss
        self._verifier = PyJWS()

    def judge(self, token: str) -> BearerToken:
        """Return what a good token says. Raises TokenRefused."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise TokenRefused(f"the token is longer than {TOKEN_LENGTH_MAX} characters")
        parts = _PARTS.fullmatch(token)
        if parts is None or len(parts[1]) > HEADER_LENGTH_MAX:
            raise TokenRefused("the token is no signed JSON Web Token")
        algorithm, key = self._key_of(_json(parts[1]))
        try:
            signed = self._verifier.decode_complete(token, key.public, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefused("the token's signature is not its key's") from None
        return self._read(_loaded(cast("bytes", signed["payload"])))

    def _key_of(self, header: Mapping[str, object]) -> tuple[str, Key]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in (*_RSA, *_OF_CURVE.values()):
            raise TokenRefused("the token's algorithm is none that is served")
        if "crit" in header or "b64" in header:
            raise TokenRefused("the token demands an extension of its format")
        if key_id is not None and not (
            isinstance(key_id, str) and len(key_id) <= KEY_ID_LENGTH_MAX
        ):
            raise TokenRefused("the token's key id is none")
        keys = self._keys()
        key = keys.find(key_id, algorithm)
        if key is None:
            if key_id is not None and not keys.has(key_id):
                self._miss(key_id)
            raise TokenRefused("the token's key is not among the issuer's")
        return algorithm, key

    def _read(self, claims: Mapping[str, object]) -> BearerToken:
        rules, now = self._rules, self._wall_ms() / 1000
        expires = _time(claims, "exp", is_needed=True)
        issued = _time(claims, "iat", is_needed=True)
        begins = _time(claims, "nbf", is_needed=False)
        if now - rules.skew_seconds >= expires:
            raise TokenRefused("the token has expired")
        if begins is not None and now + rules.skew_seconds < begins:
            raise TokenRefused("the token is not valid yet")
        if expires < issued or (begins is not None and expires < begins):
            raise TokenRefused("the token ends before it begins")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise TokenRefused(f"the token is not of the issuer {rules.issuer}")
        if rules.audiences and not _texts(claims.get("aud")) & set(rules.audiences):
            raise TokenRefused(f"the token is not for the audience {', '.join(rules.audiences)}")
        if not _are_scopes(claims.get(rules.scope_claim)):
            raise TokenRefused(f"the token's claim {rules.scope_claim} is no list of scopes")
        name = claims.get(rules.subject_claim)
        name = name.strip(_BLANKS) if isinstance(name, str) else ""
        if not name or len(name) > NAME_LENGTH_MAX or not _is_text(name):
            raise TokenRefused(f"the token's claim {rules.subject_claim} names no user")
        return BearerToken(name, min(int(expires * 1000), _ENDS_MS_MAX))


def _json(part: str) -> Mapping[str, object]:
    try:
        return _loaded(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        raise TokenRefused("the token's header is not base64url") from None


def _parsed(text: bytes) -> object:
    """Return what JSON says, which says it once, in UTF-8. Raises ValueError, RecursionError.

    Python's would also take other encodings, NaN, and of equal names the last: two who read the
    same token should not read two things.
    """
    return json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_number)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _loaded(text: bytes) -> Mapping[str, object]:
    try:
        found = _parsed(text)
    except (ValueError, RecursionError):
        raise TokenRefused("a part of the token is no JSON") from None
    if not isinstance(found, dict):
        raise TokenRefused("a part of the token is no JSON object")
    return found


def _is_text(name: str) -> bool:
    """Whether it can be written: JSON may name one half of a character."""
    return not any("\ud800" <= each <= "\udfff" for each in name)


def _texts(value: object) -> set[str]:
    """Return the texts of a claim that has one or a list of them; none if there is more in it."""
    values = value if isinstance(value, list) else [value]
    texts = {each for each in values if isinstance(each, str)}
    return texts if all(isinstance(each, str) for each in values) else set()


def _are_scopes(value: object) -> bool:
    """Whether a claim is a text, a list of different ones, or something that nobody reads."""
    if isinstance(value, str):
        return bool(value.strip(_BLANKS))
    if not isinstance(value, list):
        return True
    texts = [each.strip(_BLANKS) for each in value if isinstance(each, str)]
    return all(texts) and len(set(texts)) == len(value)


@overload
def _time(claims: Mapping[str, object], name: str, *, is_needed: Literal[True]) -> float: ...
@overload
def _time(
    claims: Mapping[str, object], name: str, *, is_needed: Literal[False]
) -> float | None: ...
def _time(claims: Mapping[str, object], name: str, *, is_needed: bool) -> float | None:
    """Return a claim in seconds since 1970; None: the token has none. Raises TokenRefused."""
    found = claims.get(name)
    if found is None and not is_needed:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise TokenRefused(f"the token's claim {name} is no time")
    if abs(found) > _SECONDS_MAX or not isfinite(found) or (found < 0 and is_needed):
        raise TokenRefused(f"the token's claim {name} is no time")
    return float(found)
