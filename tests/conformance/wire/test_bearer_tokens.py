"""OAUTHBEARER, and sessions that end: each step right and wrong, as a live Kafka answers.

What differs on purpose is told by ``--target``; docs/compatibility.md lists it.
"""

import os
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from tests.bearer_tokens import AUDIENCE, ISSUER, Issuer, base64url, make_key, opening
from tests.logging_in import MODULES, hang_up, may_ask, shake_hands, token
from tools.wire_client import Closed, batch

LISTENER = "listener.name.sasl_plaintext"
BEARER = f"{LISTENER}.oauthbearer"
REAUTH_MS = 4000
USERS = 'user_alice="wonder land" user_bob="builder"'
WRONG = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "OAUTHBEARER"
)
INVALID = '{"status":"invalid_token"}'
PLAIN_ALICE, PLAIN_BOB = "\0alice\0wonder land", "\0bob\0builder"


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


@pytest.fixture(scope="module")
def peer(request, target_kind, issuer, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(issuer.key_set())
    url = f"file://{keys}"
    options = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"{LISTENER}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {USERS};",
        f"{BEARER}.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": url,
        f"{BEARER}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{BEARER}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{BEARER}.sasl.server.callback.handler.class": (
            f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{LISTENER}.plain.connections.max.reauth.ms": REAUTH_MS,
    }
    if target_kind == "kafka":
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer

        class Made(KafkaPeer):
            def environment(self):
                allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
                return {
                    **os.environ,
                    "JAVA_TOOL_OPTIONS": f"{allowed}.urls={url} {allowed}.files={keys}",
                }
    else:
        from tools.ottla_peer import OttlaPeer as Made
    data = tmp_path_factory.mktemp("bearers") / "data"
    with Made(data, options, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture
def connect(connect_to, peer):
    return lambda: connect_to(peer.secured["SASL_PLAINTEXT"])


@pytest.fixture
def wire(connect):
    return connect()


def lifetime_ms(told):
    return told["session_lifetime"] and round(told["session_lifetime"])


def ask_on(wire):
    while may_ask(wire):
        pass


def log_in(wire, text=PLAIN_ALICE, mechanism="PLAIN"):
    assert shake_hands(wire, mechanism)["error_code"] == 0
    return token(wire, text)


def test_a_good_token_lets_in_until_it_ends(wire, issuer):
    told = log_in(wire, opening(issuer.token(exp=int(time.time()) + 100)), "OAUTHBEARER")
    assert (told["error_code"], told["auth_bytes"]) == (0, b"")
    assert 90_000 < lifetime_ms(told) <= 100_000
    assert may_ask(wire)


@pytest.mark.parametrize(
    "changes",
    [
        {"header": "n,a=alice,"},
        {"extensions": [("traceId", "1")]},
        {"extensions": [("host", "h"), ("port", "1")]},
    ],
)
def test_a_name_and_extensions_may_come_with_it(wire, issuer, changes):
    assert not log_in(wire, opening(issuer.token(), **changes), "OAUTHBEARER")["error_code"]
    assert may_ask(wire)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]},
        {"scope": None},
        {"scope": ["a"]},
        {"sub": " alice "},
        {"headers": {"kid": None}},
        {"iat": int(time.time()) + 1000},
    ],
)
def test_claims_have_forms(wire, issuer, changes):
    told = log_in(wire, opening(issuer.token(**changes), header="n,a=alice,"), "OAUTHBEARER")
    assert (told["error_code"], told["auth_bytes"]) == (0, b"")


NOW = int(time.time())


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 100, "iat": NOW - 1000},
        {"exp": NOW + 1000, "iat": NOW + 2000},
        {"exp": None},
        {"iat": None},
        {"nbf": NOW + 5000, "exp": NOW + 9000},
        {"aud": "other"},
        {"aud": None},
        {"iss": "other"},
        {"iss": None},
        {"sub": None},
        {"sub": "  "},
        {"scope": " "},
        {"headers": {"kid": "unknown"}},
        {"kid": "somebody else", "headers": {"kid": "first"}},
        {"headers": {"crit": ["x"], "x": 1}},
        {"iat": -5},
        {"aud": [1, AUDIENCE]},
        {"scope": ["a", ""]},
        {"scope": ["a", "a"]},
        {"more": float("nan")},
    ],
)
def test_a_token_that_is_not_good_is_answered_then_refused(wire, issuer, changes):
    told = log_in(wire, opening(issuer.token(**changes)), "OAUTHBEARER")
    assert (told["error_code"], told["auth_bytes"].decode()) == (0, INVALID)
    assert not lifetime_ms(told)
    refused = token(wire, "\x01")
    assert (refused["error_code"], refused["error_message"]) == (58, INVALID)
    assert hang_up(wire)


@pytest.mark.parametrize(("algorithm", "signature"), [("none", b""), ("none", b"x")])
def test_a_token_without_a_signature_is_not_good(wire, issuer, algorithm, signature):
    forged = issuer.by({"alg": algorithm, "kid": "first"}, issuer.claims(), signature)
    told = log_in(wire, opening(forged), "OAUTHBEARER")
    assert told["auth_bytes"].decode() == INVALID


def test_after_a_bad_token_another_may_come(wire, issuer):
    log_in(wire, opening(issuer.token(aud="other")), "OAUTHBEARER")
    assert token(wire, opening(issuer.token()))["auth_bytes"] == b""
    assert may_ask(wire)


def test_a_bad_token_ends_with_one_byte_and_no_other(wire, issuer):
    log_in(wire, opening(issuer.token(aud="other")), "OAUTHBEARER")
    refused = token(wire, "x")
    assert (refused["error_code"], refused["error_message"]) == (58, WRONG)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text + "x",
        lambda text: text[:-1],
        lambda text: "y" + text[1:],
        lambda text: text.replace("auth=", "other="),
        lambda text: text[:-1] + "x1=1\x01\x01",
        lambda text: text[:-1] + "abc\x01\x01",
    ],
)
def test_a_message_of_another_form_is_refused(wire, issuer, change):
    refused = log_in(wire, change(opening(issuer.token())), "OAUTHBEARER")
    assert (refused["error_code"], refused["error_message"]) == (58, WRONG)


def test_another_authorization_id_is_refused(wire, issuer):
    refused = log_in(wire, opening(issuer.token(), header="n,a=bob,"), "OAUTHBEARER")
    assert refused["error_code"] == 58
    assert refused["error_message"] == (
        "Authentication failed: Client requested an authorization id (bob) that is different from "
        "the token's principal name (alice)"
    )


def test_another_blank_is_another_user(wire, issuer):
    """Java's trim takes off what is in ASCII, and nothing else."""
    text = opening(issuer.token(sub="\u00a0alice"), header="n,a=alice,")
    refused = log_in(wire, text, "OAUTHBEARER")
    assert refused["error_code"] == 58
    assert refused["error_message"].endswith("principal name (\u00a0alice)")


def test_a_header_that_says_two_things_is_not_good(wire, issuer):
    begun = issuer.by(b'{"alg":"RS256","kid":"first","kid":"first"}', issuer.claims(), b"")
    signed = begun.rpartition(".")[0]
    signature = make_key("first", "RSA").sign(signed.encode(), PKCS1v15(), SHA256())
    text = opening(f"{signed}.{base64url(signature)}")
    assert log_in(wire, text, "OAUTHBEARER")["auth_bytes"].decode() == INVALID


# Sessions that end.


def test_a_session_is_over_in_time_and_not_before(wire):
    began = time.monotonic()
    assert lifetime_ms(log_in(wire)) == REAUTH_MS
    with pytest.raises(Closed):
        ask_on(wire)
    assert time.monotonic() - began >= REAUTH_MS / 1000


def test_a_client_may_log_in_again_at_once_but_not_twice_in_a_second(wire):
    log_in(wire)
    began = time.monotonic()
    assert lifetime_ms(log_in(wire)) == REAUTH_MS
    while (again := shake_hands(wire, "PLAIN"))["error_code"] == 34:
        assert again["mechanisms"] == []
    assert time.monotonic() - began >= 1
    assert lifetime_ms(token(wire, PLAIN_ALICE)) == REAUTH_MS
    assert may_ask(wire)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            PLAIN_BOB,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
        ("\0alice\0wrong", "Authentication failed: Invalid username or password"),
    ],
)
def test_who_logs_in_again_is_who_it_was(wire, text, why):
    log_in(wire)
    refused = log_in(wire, text)
    assert (refused["error_code"], refused["error_message"]) == (58, why)
    assert hang_up(wire)


def test_who_logs_in_again_does_it_as_before(wire, issuer):
    log_in(wire)
    with pytest.raises(Closed):
        log_in(wire, opening(issuer.token()), "OAUTHBEARER")


def test_a_mechanism_that_is_not_there_is_hung_up_on_the_second_time(wire):
    log_in(wire)
    with pytest.raises(Closed):
        shake_hands(wire, "GSSAPI")


def test_bare_tokens_do_the_second_time_too(wire):
    assert shake_hands(wire, "PLAIN", version=0)["error_code"] == 0
    wire.send_frame(PLAIN_ALICE.encode())
    assert wire.receive_frame() == b""
    assert shake_hands(wire, "PLAIN", version=0)["error_code"] == 0
    wire.send_frame(PLAIN_ALICE.encode())
    assert wire.receive_frame() == b""
    assert may_ask(wire)


def test_a_token_is_renewed_on_the_same_connection(wire, issuer):
    log_in(wire, opening(issuer.token(exp=int(time.time()) + 3)), "OAUTHBEARER")
    told = log_in(wire, opening(issuer.token()), "OAUTHBEARER")
    assert lifetime_ms(told) > 3_000_000
    assert may_ask(wire)


def test_a_token_that_is_over_but_for_the_skew_lets_in_and_hangs_up(wire, issuer):
    now = int(time.time())
    told = log_in(wire, opening(issuer.token(exp=now - 10, iat=now - 100)), "OAUTHBEARER")
    assert (told["error_code"], told["auth_bytes"], lifetime_ms(told)) == (0, b"", 0)
    with pytest.raises(Closed):
        may_ask(wire)


# Tokens that end while a client is in the middle of something.


@pytest.fixture
def topic(connect_to, peer, topic_name):
    wire = connect_to(peer.bootstrap)
    wire.create_topic(topic_name)
    return topic_name


def session_of(wire, issuer, seconds):
    """Log in for so long; return when that is over, by the monotonic clock, at the latest."""
    told = log_in(wire, opening(issuer.token(exp=int(time.time()) + seconds)), "OAUTHBEARER")
    assert told["error_code"] == 0
    return time.monotonic() + lifetime_ms(told) / 1000


def test_a_fetch_that_waits_over_the_end_is_answered_and_nothing_after_it(wire, issuer, topic):
    end = session_of(wire, issuer, 3)
    assert wire.fetch(topic, max_wait=6000)["records"] in {None, b""}
    assert time.monotonic() > end
    with pytest.raises(Closed):
        wire.fetch(topic)


def test_what_waits_is_served_to_the_end_by_who_logs_in_again(
    wire, issuer, topic, connect_to, peer
):
    end = session_of(wire, issuer, 4)
    wire.fetch(topic, max_wait=1200)
    told = log_in(wire, opening(issuer.token(exp=int(time.time()) + 60)), "OAUTHBEARER")
    assert told["error_code"] == 0
    while time.monotonic() < end:
        time.sleep(0.1)
    assert connect_to(peer.bootstrap).produce(topic, batch())["error_code"] == 0
    assert wire.fetch(topic)["records"]


def test_nothing_is_written_after_the_end(wire, issuer, topic, connect_to, peer):
    end = session_of(wire, issuer, 2)
    assert wire.produce(topic, batch([b"before"]))["error_code"] == 0
    while time.monotonic() <= end:
        time.sleep(0.05)
    with pytest.raises(Closed):
        wire.produce(topic, batch([b"after"]))
    assert connect_to(peer.bootstrap).list_offsets(topic, [0]) == [(0, 1)]


def test_a_session_can_become_shorter(wire, issuer):
    log_in(wire, opening(issuer.token()), "OAUTHBEARER")
    time.sleep(1.1)
    end = session_of(wire, issuer, 2)
    while time.monotonic() <= end:
        time.sleep(0.05)
    with pytest.raises(Closed):
        wire.call("metadata", 12, topics=[])


@pytest.mark.parametrize("changes", [{"exp": 1000}, {"iss": "https://elsewhere"}])
def test_who_logs_in_again_with_a_bad_token_is_out_before_its_end(wire, issuer, changes):
    log_in(wire, opening(issuer.token()), "OAUTHBEARER")
    told = log_in(wire, opening(issuer.token(**changes)), "OAUTHBEARER")
    assert told["auth_bytes"].decode() == INVALID
    told = token(wire, "\x01")
    assert told["error_code"] == 58
    with pytest.raises(Closed):
        wire.call("metadata", 12, topics=[])


def test_somebody_elses_token_ends_the_session(wire, issuer):
    log_in(wire, opening(issuer.token()), "OAUTHBEARER")
    told = log_in(wire, opening(issuer.token(sub="somebody else")), "OAUTHBEARER")
    assert told["error_code"] == 58
    assert "Cannot change principals during re-authentication" in told["error_message"]
    with pytest.raises(Closed):
        wire.call("metadata", 12, topics=[])
