import hmac

import pytest

from ottla.ids import Principal
from ottla.security.exchange import AuthenticationRefused, Proved
from ottla.security.plain import Plain

USERS = {"alice": "wonder land", "empty": "", "ü": "é"}


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("\0alice\0wonder land", "alice"),
        ("alice\0alice\0wonder land", "alice"),
        ("\0ü\0é", "ü"),
    ],
)
def test_whoever_knows_the_password_is_who_he_says(token, name):
    assert Plain(USERS).step(token.encode()) == Proved(Principal("User", name))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0alice\0",
        b"\0alice\0wonder",
        b"\0Alice\0wonder land",
        b"\0alice\0wonder land\0",
        b"alice\0wonder land",
        b"eve\0alice\0wonder land",
        b"\0nobody\0\0",
        b"\0empty\0",
        b"\0" + b"x" * 100_000 + b"\0y",
        b"\xff\0alice\0wonder land",
    ],
)
def test_whoever_does_not_is_refused(token):
    with pytest.raises(AuthenticationRefused) as refused:
        Plain(USERS).step(token)
    assert "wonder" not in str(refused.value)
    assert len(refused.value.name) <= 255


@pytest.mark.parametrize("name", ["alice", "nobody", "x" * 300])
def test_every_guess_is_compared_in_the_same_time(name, monkeypatch):
    """CVE-2021-38153. Whether there is such a user or not, one comparison of constant time."""
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or real(a, b))
    with pytest.raises(AuthenticationRefused):
        Plain(USERS).step(f"\0{name}\0guess".encode())
    assert compared == [b"guess"]
