"""The messages of OAUTHBEARER: their form, and what follows a token that is not good."""

import pytest

from ottla.ids import Principal
from ottla.security.exchange import AuthenticationRefused, Proved
from tests.bearer_tokens import opening

from ottla.security.bearer import Bearer  # isort: skip - PyJWT may be missing: see above
from ottla.security.tokens import BearerToken, TokenRefused  # isort: skip

WRONG = "due to invalid credentials with SASL mechanism OAUTHBEARER"


def judge(token):
    if token != "good.to.ken":
        raise TokenRefused("it is not good")
    return BearerToken("alice", 42)


def step(message):
    return Bearer(judge).step(message if isinstance(message, bytes) else message.encode())


@pytest.mark.parametrize(
    "message",
    [
        opening("good.to.ken"),
        opening("good.to.ken", header="n,a=alice,"),
        opening("good.to.ken", extensions=[("traceId", "1"), ("host", "h"), ("port", "9")]),
        opening("good.to.ken").replace("Bearer", "bearer"),
        "n,,\x01host=h\x01auth=Bearer good.to.ken\x01\x01",
    ],
)
def test_a_good_token_proves_who_the_client_is(message):
    assert step(message) == Proved(Principal("User", "alice"), b"", 42)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "good.to.ken",
        opening(""),
        opening("good.to.ken", header="y,,"),
        opening("good.to.ken", header="p=tls-unique,,"),
        opening("good.to.ken", header="n,a=,"),
        opening("good.to.ken", extensions=[("x1", "1")]),
        opening("good.to.ken", extensions=[("empty", "")]),
        opening("good.to.ken").replace("Bearer", "Basic"),
        opening("good.to.ken") + "x",
        opening("good.to.ken")[:-1],
        opening("good to.ken"),
        "n,,\x01host=h\x01\x01",
        "n,,\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        opening("x" * 200_000),
    ],
)
def test_a_message_of_another_form_is_refused_at_once(message):
    with pytest.raises(AuthenticationRefused, match=WRONG):
        step(message)


def test_another_authorization_id_is_refused():
    with pytest.raises(AuthenticationRefused, match=r"\(b,b\) that is different from the token's"):
        step(opening("good.to.ken", header="n,a=b=2Cb,"))


def test_a_bad_token_is_answered_then_refused():
    exchange = Bearer(judge)
    assert exchange.step(opening("bad").encode()) == b'{"status":"invalid_token"}'
    with pytest.raises(AuthenticationRefused) as refused:
        exchange.step(b"\x01")
    assert str(refused.value) == '{"status":"invalid_token"}'
    assert refused.value.noted == "it is not good"


def test_after_a_bad_token_another_may_come_as_at_kafka():
    exchange = Bearer(judge)
    exchange.step(opening("bad").encode())
    assert exchange.step(opening("good.to.ken").encode()).principal.name == "alice"
    exchange.step(opening("bad").encode())
    with pytest.raises(AuthenticationRefused, match=WRONG):
        exchange.step(b"x")
