"""Which tokens are good: by whose key, by which algorithm, with which claims."""

import json

import pytest

from ottla.config.oauth import TokenRules
from tests.bearer_tokens import AUDIENCE, ISSUER, Issuer, base64url, make_key, public_key

from ottla.security.tokens import (  # isort: skip - PyJWT may be missing; the line above skips then
    TOKEN_LENGTH_MAX,
    Judge,
    KeysUnusable,
    TokenRefused,
    read_key_set,
)

NOW = 1_700_000_000
RULES = TokenRules(
    jwks_url="file:///nowhere",
    ca_file=None,
    refresh_ms=1,
    retry_ms=1,
    retry_max_ms=1,
    skew_seconds=30,
    audiences=(AUDIENCE,),
    issuer=ISSUER,
    scope_claim="scope",
    subject_claim="sub",
)
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


def judge_of(key_set, rules=RULES, missed=None):
    keys = read_key_set(key_set.encode())
    note = missed.append if missed is not None else lambda key_id: None
    return Judge(rules, lambda: keys, lambda: NOW * 1000, note)


@pytest.fixture
def issuer():
    return Issuer()


@pytest.fixture
def judge(issuer):
    return judge_of(issuer.key_set()).judge


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_served_algorithm_is_judged_by_the_key_it_belongs_to(algorithm):
    issuer = Issuer(algorithm, algorithm)
    judge = judge_of(issuer.key_set())
    good = issuer.token(now=NOW)
    assert judge.judge(good) == ("alice", (NOW + 3600) * 1000)
    head, claims, signature = good.split(".")
    changed = base64url(json.dumps(issuer.claims(now=NOW, sub="admin")).encode())
    for bad in (
        f"{head}.{changed}.{signature}",
        f"{head}.{claims}.{base64url(b'x' * 256)}",
        issuer.token(now=NOW, kid="somebody else", headers={"kid": algorithm}),
    ):
        with pytest.raises(TokenRefused, match="signature is not its key's"):
            judge.judge(bad)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_library_judges_alike(algorithm):
    joserfc_jwt = pytest.importorskip("joserfc.jwt")
    from joserfc.jwk import KeySet

    issuer = Issuer(f"other {algorithm}", algorithm)
    token = issuer.token(now=NOW)
    keys = KeySet.import_key_set(json.loads(issuer.key_set()))
    assert joserfc_jwt.decode(token, keys, algorithms=[algorithm]).claims["sub"] == "alice"
    assert judge_of(issuer.key_set()).judge(token).name == "alice"


@pytest.mark.parametrize(
    ("header", "signature"),
    [
        ({"alg": "none", "kid": "first"}, b"x"),
        ({"alg": "None", "kid": "first"}, b"x"),
        ({"kid": "first"}, b"x"),
        ({"alg": ["RS256"], "kid": "first"}, b"x"),
        ({"alg": "HS256", "kid": "first"}, b"x" * 32),
        ({"alg": "ES256", "kid": "first"}, b"x" * 64),
        ({"alg": "RS256", "kid": "first", "crit": ["b64"], "b64": False}, b"x"),
        ({"alg": "RS256", "kid": "/etc/passwd"}, b"x"),
        ({"alg": "RS256", "kid": "k" * 257}, b"x"),
        ({"alg": "RS256", "kid": 7}, b"x"),
        ({"alg": "RS256", "kid": "first", "jwk": {"kty": "oct", "k": "eA"}}, b"x"),
        ({"alg": "RS256", "kid": "first", "jku": "https://attacker.example/keys"}, b"x"),
        (b"[" * 6000, b"x"),
        (b"[]", b"x"),
        (b"no json", b"x"),
    ],
)
def test_a_token_does_not_choose_how_it_is_judged(issuer, judge, header, signature):
    with pytest.raises(TokenRefused):
        judge(issuer.by(header, issuer.claims(now=NOW), signature))


def test_a_public_key_is_no_secret_of_a_symmetric_algorithm(issuer, judge):
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = make_key("first", "RSA").public_key()
    public = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = json.dumps(issuer.claims(now=NOW, sub="admin")).encode()
    signed = ".".join(base64url(each) for each in (b'{"alg":"HS256","kid":"first"}', claims))
    signature = hmac.digest(public, signed.encode(), "sha256")
    with pytest.raises(TokenRefused, match="algorithm is none that is served"):
        judge(f"{signed}.{base64url(signature)}")


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.b.c.d", "..", "a.b.", "a.b.c", "ä.b.c", "a.b.c\n", "x" * (TOKEN_LENGTH_MAX + 1)],
)
def test_what_is_no_signed_token_is_refused(judge, token):
    with pytest.raises(TokenRefused):
        judge(token)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": None}, "claim exp is no time"),
        ({"exp": "soon"}, "claim exp is no time"),
        ({"exp": True}, "claim exp is no time"),
        ({"exp": float("nan")}, "no JSON"),
        ({"exp": float("inf")}, "no JSON"),
        ({"exp": 1e30}, "claim exp is no time"),
        ({"exp": 10**400}, "claim exp is no time"),
        ({"iat": None}, "claim iat is no time"),
        ({"iat": [NOW]}, "claim iat is no time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 9000}, "ends before it begins"),
        ({"iss": "other"}, "not of the issuer https://issuer.example"),
        ({"iss": None}, "not of the issuer"),
        ({"aud": "other"}, "not for the audience kafka"),
        ({"aud": None}, "not for the audience"),
        ({"aud": [{"kafka": 1}, ["kafka"]]}, "not for the audience"),
        ({"sub": None}, "claim sub names no user"),
        ({"sub": " "}, "claim sub names no user"),
        ({"sub": "x" * 256}, "claim sub names no user"),
        ({"sub": "a\ud800"}, "claim sub names no user"),
        ({"scope": " "}, "claim scope is no list of scopes"),
        ({"scope": ["read", ""]}, "claim scope is no list of scopes"),
        ({"scope": ["read", 1]}, "claim scope is no list of scopes"),
        ({"scope": ["read", "read"]}, "claim scope is no list of scopes"),
        ({"iat": -5}, "claim iat is no time"),
        ({"aud": [1, AUDIENCE]}, "not for the audience"),
        ({"more": float("nan")}, "no JSON"),
        ({"more": float("-inf")}, "no JSON"),
    ],
)
def test_a_claim_that_is_missing_or_wrong_is_named(issuer, judge, changes, why):
    with pytest.raises(TokenRefused, match=why):
        judge(issuer.token(now=NOW, **changes))


@pytest.mark.parametrize(
    ("changes", "expires"),
    [
        ({"exp": NOW - 29, "iat": NOW - 99}, NOW - 29),
        ({"exp": NOW + 1.5}, NOW + 1.5),
        ({"nbf": NOW + 30}, NOW + 3600),
        ({"aud": ["other", AUDIENCE]}, NOW + 3600),
        ({"scope": None}, NOW + 3600),
        ({"scope": ["read"]}, NOW + 3600),
        ({"sub": " alice "}, NOW + 3600),
    ],
)
def test_clocks_may_differ_and_claims_have_forms(issuer, judge, changes, expires):
    assert judge(issuer.token(now=NOW, **changes)) == ("alice", expires * 1000)


def test_the_latest_end_is_bounded(issuer, judge):
    assert judge(issuer.token(now=NOW, exp=10**18)).expires_ms == 1 << 60


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u3000", "\x85"])
def test_another_blank_is_another_user(issuer, judge, blank):
    """Who is called so at the issuer must not be alice here."""
    assert judge(issuer.token(now=NOW, sub=f"{blank}alice")).name == f"{blank}alice"
    assert judge(issuer.token(now=NOW, sub="\0\x1f alice\t\r\n")).name == "alice"


@pytest.mark.parametrize(
    ("header", "change"),
    [
        (b'{"alg":"none","alg":"RS256","kid":"first"}', lambda claims: claims),
        (b'{"alg":"RS256","kid":"other","kid":"first"}', lambda claims: claims),
        (None, lambda claims: claims[:-1] + b',"sub":"bob"}'),
        (None, lambda claims: claims[:-1] + b',"more":{"a":1,"a":2}}'),
        (None, lambda claims: b"\xef\xbb\xbf" + claims),
        (None, lambda claims: claims.decode().encode("utf-16")),
        (None, lambda claims: claims[:-1] + b',"more":"\xff"}'),
    ],
)
def test_what_two_could_read_as_two_things_is_refused(issuer, judge, header, change):
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    claims = change(json.dumps(issuer.claims(now=NOW)).encode())
    signed = ".".join(map(base64url, (header or b'{"alg":"RS256","kid":"first"}', claims)))
    signature = make_key("first", "RSA").sign(signed.encode(), PKCS1v15(), SHA256())
    with pytest.raises(TokenRefused, match="no JSON"):
        judge(f"{signed}.{base64url(signature)}")


def test_nested_claims_end_in_a_refusal(issuer, judge):
    """A parser that goes down with the text must not take the connection with it."""
    import jwt

    deep = b'{"sub":' + b"[" * 20_000
    token = jwt.PyJWS().encode(deep, make_key("first", "RSA"), "RS256", {"kid": "first"})
    with pytest.raises(TokenRefused, match="no JSON"):
        judge(token)


def test_other_claims_can_name_user_and_scope(issuer):
    rules = RULES._replace(subject_claim="azp", scope_claim="scp", audiences=(), issuer=None)
    token = issuer.token(now=NOW, azp="service", sub=None, aud=None, iss=None)
    assert judge_of(issuer.key_set(), rules).judge(token).name == "service"


def test_without_a_key_id_the_only_key_is_meant():
    issuer = Issuer()
    token = issuer.token(now=NOW, headers={"kid": None})
    assert judge_of(issuer.key_set()).judge(token).name == "alice"
    issuer.rotate("second")
    with pytest.raises(TokenRefused, match="not among the issuer's"):
        judge_of(issuer.key_set()).judge(token)


def test_ids_that_are_not_known_are_told_and_others_not():
    issuer, missed = Issuer(), []
    judge = judge_of(issuer.key_set(), missed=missed)
    with pytest.raises(TokenRefused):
        judge.judge(issuer.token(now=NOW, headers={"kid": "new"}))
    with pytest.raises(TokenRefused):  # The id is known, only not for this.
        judge.judge(issuer.by({"alg": "ES256", "kid": "first"}, issuer.claims(now=NOW)))
    assert missed == ["new"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no json", "expected JSON"),
        ("[" * 10_000, "expected JSON"),
        ("[" * 100_000, "more than 20000 values"),
        ('{"keys": [' + "{}," * 20_000 + "{}]}", "more than 20000 values"),
        ("[]", "expected {"),
        ('{"keys": {}}', "expected {"),
        ('{"keys": []}', "of 0 keys none"),
        ('{"keys": [1, null, {"kty": "oct", "k": "eA", "kid": "x"}]}', "of 3 keys none"),
        ('{"keys": [{"kty": ["RSA"]}, {"kty": "EC", "crv": ["P-256"]}]}', "of 2 keys none"),
        ('{"keys": [{"kty": "EC", "crv": {}, "use": "sig"}]}', "of 1 keys none"),
        (json.dumps({"keys": [{}] * 101}), "at most 100 keys"),
        ('{"keys": [], "keys": [{}]}', "expected JSON"),
    ],
)
def test_what_is_no_key_set_is_refused(text, why):
    with pytest.raises(KeysUnusable, match=why):
        read_key_set(text.encode())


def test_keys_that_are_for_something_else_are_left_out():
    from jwt.algorithms import RSAAlgorithm

    short = make_key("short", "RSA", 1024).public_key()
    good = public_key("good", "RS256")
    keys = [
        good,
        {**public_key("enc", "RS256"), "use": "enc"},
        {**public_key("alg", "RS256"), "alg": "RSA-OAEP"},
        {**public_key("broken", "ES256"), "x": "!"},
        {**RSAAlgorithm.to_jwk(short, as_dict=True), "kid": "short"},
        {**public_key("pinned", "RS256"), "alg": "RS512"},
    ]
    found = read_key_set(json.dumps({"keys": keys}).encode())
    assert len(found) == 2
    assert found.find("good", "RS256") is not None
    assert found.find("pinned", "RS256") is None
    assert found.find("pinned", "RS512") is not None


def test_numbers_that_no_key_has_are_not_looked_at(monkeypatch):
    good = public_key("good", "RS256")
    keys = [{**good, "kid": name, name: "A" * 2000} for name in ("n", "e")]
    monkeypatch.setattr("ottla.security.tokens.PyJWK", lambda *_: pytest.fail("it was looked at"))
    with pytest.raises(KeysUnusable, match="of 2 keys none"):
        read_key_set(json.dumps({"keys": keys}).encode())


def test_no_refusal_shows_the_token(issuer, judge):
    token = issuer.token(now=NOW, aud="other", secret="hush")
    with pytest.raises(TokenRefused) as refused:
        judge(token)
    assert not any(part in repr(refused.value) for part in (*token.split("."), "hush"))
