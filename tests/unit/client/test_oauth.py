"""Where a client has its tokens from: options, request, answer, and how long one is kept."""

import json
import threading
import time

import pytest

from ottla.client.tokens import Tokens
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.oauth import (
    Bearer,
    Token,
    TokenSource,
    TokenUnusable,
    credentials_request,
    read_answer,
    read_refusal,
    read_token,
)
from ottla.client.wire.security import NAMES, read_security
from ottla.client.wire.settings import Address
from ottla.config.option import InvalidConfig
from ottla.errors import ErrorCode, KafkaError
from tests.token_server import SECRETS, TokenServer

BASE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
ENDPOINT = {URL: "https://id.example/token"}
BROKER = Address("broker", 9092)


def source_of(texts):
    return read_security({**BASE, **texts}).sasl.tokens


def test_every_option_of_tokens_is_an_option_of_clients():
    from ottla.client.wire import oauth

    assert set(oauth.NAMES) <= NAMES


@pytest.mark.parametrize(
    "texts",
    [
        {
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
            "sasl.oauthbearer.scope": "all",
            "sasl.oauthbearer.extensions": "a=1, b=2",
            "https.ca.location": "ca.pem",
        },
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.scope": "all",
            "sasl.oauthbearer.extensions": "a=1,b=2",
            "https.ca.location": "ca.pem",
        },
        {
            "sasl.login.callback.handler.class": "org.x.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="me" clientSecret="hush" scope="all" extension_a="1" extension_b="2" '
                'ssl.truststore.location="ca.pem";'
            ),
        },
    ],
)
def test_javas_and_librdkafkas_options_mean_the_same(texts):
    expected = TokenSource(
        endpoint="https://id.example/token",
        client_id="me",
        client_secret="hush",
        scope="all",
        extensions=(("a", "1"), ("b", "2")),
        ca_file="ca.pem",
    )
    found = read_security({**BASE, **ENDPOINT, **texts})
    assert found.sasl.tokens == expected
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        (ENDPOINT, "client.credentials.client.secret"),
        ({URL: "ftp://x/y"}, "expected https"),
        ({URL: "file:///t", "ottla.oauthbearer.token.provider": "a:b"}, "and not both"),
        ({"ottla.oauthbearer.token.provider": "no colon"}, "MODULE:FUNCTION"),
        ({URL: "file:///t", "sasl.oauthbearer.extensions": "auth=x"}, "NAME=VALUE"),
        ({URL: "file:///t", "sasl.oauthbearer.extensions": "a=\x01"}, "NAME=VALUE"),
        ({URL: "file:///t", "sasl.oauthbearer.method": "magic"}, "expected oidc"),
        ({URL: "file:///t", "sasl.login.callback.handler.class": "org.Mine"}, "Java classes"),
    ],
)
def test_what_gives_no_token_is_refused(texts, why):
    with pytest.raises(InvalidConfig, match=why):
        source_of(texts)


def test_the_request_has_the_secret_in_its_header_only():
    source = TokenSource(endpoint="https://x", client_id="a", client_secret="b/+ c", scope="s t")
    assert credentials_request(source) == (
        b"grant_type=client_credentials&scope=s+t",
        {
            "Authorization": "Basic YTpiLysgYw==",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    encoded = TokenSource("https://x", "a", "b/+ c", encodes_header=True)
    assert credentials_request(encoded)[1]["Authorization"] == "Basic YTpiJTJGJTJCK2M="


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        ({"access_token": "a.b.c", "expires_in": 60}, Token("a.b.c", 60)),
        ({"access_token": "opaque"}, Token("opaque", None)),
        ({"access_token": "opaque", "expires_in": -1}, Token("opaque", 0)),
        ({"access_token": "x.eyJleHAiOjE1MH0.y"}, Token("x.eyJleHAiOjE1MH0.y", 50)),
    ],
)
def test_an_answer_says_how_long_a_token_lasts(answer, token):
    assert read_answer(json.dumps(answer).encode(), 100.0) == token


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "a\\u0001b"}', b"[" * 9999],
)
def test_what_is_no_token_is_refused(answer):
    with pytest.raises(TokenUnusable):
        read_answer(answer, 0.0)


def test_what_a_refusal_says_is_told_only_if_it_is_a_code():
    assert read_refusal(b'{"error": "invalid_client"}') == "invalid_client"
    assert read_refusal(b'{"error": "<script>"}') == read_refusal(b"nothing") == ""


def test_no_text_of_a_token_shows():
    assert "secret" not in repr(read_token("secret", 0.0))


def test_the_messages_to_the_broker():
    bearer = Bearer("t", (("a", "1"),))
    assert bearer.first() == b"n,,\x01auth=Bearer t\x01a=1\x01\x01"
    assert bearer.next(b"") is None
    assert bearer.next(b'{"status":"invalid_token"}') == b"\x01"


# Having tokens.


class Hands:
    """A clock that stands until it is moved."""

    now = 1000.0

    def monotonic(self):
        return self.now

    def wall(self):
        return time.time() + self.now - 1000.0


@pytest.fixture
def server():
    with TokenServer(seconds=100) as server:
        yield server


@pytest.fixture
def source(server):
    return TokenSource(f"{server.url}/token", "alice", SECRETS["alice"], scope="read")


def test_a_token_is_kept_for_most_of_its_life(server, source):
    clock = Hands()
    tokens = Tokens(source, clock)
    first = tokens.current(BROKER)
    clock.now += 79
    assert tokens.current(BROKER) == first
    assert server.asked == ["/token?grant_type=client_credentials&scope=read"]
    clock.now += 1
    tokens.current(BROKER)
    assert len(server.asked) == 2


def test_a_kept_token_serves_while_the_endpoint_is_away(server, source):
    clock = Hands()
    tokens = Tokens(source, clock)
    first = tokens.current(BROKER)
    server.is_away.set()
    clock.now += 99
    assert tokens.current(BROKER) == first
    clock.now += 1
    with pytest.raises(ConnectionFailed, match=r"no token: 127\.0\.0\.1 answers 503"):
        tokens.current(BROKER)
    server.is_away.clear()
    assert tokens.current(BROKER)


def test_a_wrong_secret_is_told_and_not_shown(server):
    source = TokenSource(f"{server.url}/token", "alice", "hush")
    with pytest.raises(KafkaError, match=r"401 \(invalid_client\)") as refused:
        Tokens(source).current(BROKER)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "hush" not in repr(refused.value)


def test_many_threads_ask_once(server, source):
    tokens, found = Tokens(source), []
    threads = [
        threading.Thread(target=lambda: found.append(tokens.current(BROKER))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == len(server.asked) == 1


def test_a_file_is_read_again_when_its_token_ends(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    tokens = Tokens(TokenSource(path.as_uri()))
    assert tokens.current(BROKER) == "first"
    path.write_text("second\n")
    assert tokens.current(BROKER) == "second", "nobody knows when the first one ends"
    path.unlink()
    with pytest.raises(ConnectionFailed, match="No such file"):
        tokens.current(BROKER)


def give_text():
    return "given"


def give_with_end():
    return "given", time.time() + 50


def give_nothing():
    return None


@pytest.mark.parametrize("name", ["give_text", "give_with_end"])
def test_a_function_gives_tokens(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "my_tokens", __import__("sys").modules[__name__])
    assert Tokens(TokenSource(provider=f"my_tokens:{name}")).current(BROKER) == "given"


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ("my_tokens:give_nothing", "expected a token"),
        ("my_tokens:missing", "cannot be imported"),
        ("my_tokens:BASE", "is no function"),
        ("no_such_module:x", "cannot be imported"),
    ],
)
def test_a_function_that_gives_none_is_named(provider, why, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "my_tokens", __import__("sys").modules[__name__])
    with pytest.raises(ConnectionFailed, match=why):
        Tokens(TokenSource(provider=provider)).current(BROKER)
