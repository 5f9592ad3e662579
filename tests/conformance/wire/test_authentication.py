"""A listener that asks clients who they are: each step right and wrong, as a live Kafka answers.

What differs on purpose is told by ``--target``; docs/compatibility.md lists it.
"""

import struct
import time

import pytest

from tests.logging_in import (
    MECHANISMS,
    OTHER_ID,
    WRONG,
    Scram,
    hang_up,
    may_ask,
    shake_hands,
    token,
)


@pytest.fixture
def wire(stranger):
    return stranger


# Coming in.


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_lets_in_who_knows_the_password(wire, mechanism, version):
    answer = shake_hands(wire, mechanism)
    assert answer["error_code"] == 0
    assert sorted(answer["mechanisms"]) == MECHANISMS
    client = Scram(mechanism)
    challenge = token(wire, client.first(), version)
    assert (challenge["error_code"], challenge["error_message"]) == (0, "")
    assert challenge["auth_bytes"].startswith(f"r={client.nonce}".encode())
    told = token(wire, client.final(challenge["auth_bytes"]), version)
    assert (told["error_code"], told["error_message"]) == (0, "")
    assert told["auth_bytes"] == client.expected
    assert version == 0 or not told["session_lifetime"]
    assert may_ask(wire)


def test_plain_lets_in_who_knows_the_password(wire):
    shake_hands(wire, "PLAIN")
    told = token(wire, "\0alice\0wonder land")
    assert (told["error_code"], told["error_message"], told["auth_bytes"]) == (0, "", b"")
    assert may_ask(wire)


def test_the_versions_may_be_asked_first_but_once(wire, again):
    software = {"client_software_name": "a", "client_software_version": "1"}
    assert wire.call("api_versions", 3, **software)["error_code"] == 0
    shake_hands(wire, "PLAIN")
    assert token(wire, "\0alice\0wonder land")["error_code"] == 0
    twice = again()
    twice.call("api_versions", 0)
    twice.send_frame(twice.encode("api_versions", 0))
    assert hang_up(twice)


def test_a_version_from_the_future_may_be_asked_again(wire):
    wire.send_frame(struct.pack(">hhihB", 18, 99, 7, -1, 0))
    assert wire.receive_frame()[:6] == struct.pack(">ih", 7, 35)
    assert wire.call("api_versions", 0)["error_code"] == 0
    assert shake_hands(wire, "PLAIN")["error_code"] == 0


def test_bare_tokens_after_the_oldest_handshake(wire):
    assert shake_hands(wire, "PLAIN", version=0)["error_code"] == 0
    wire.send_frame(b"\0alice\0wonder land")
    assert wire.receive_frame() == b""
    assert may_ask(wire)


def test_a_request_in_the_same_segment_as_the_last_token_is_served(wire):
    shake_hands(wire, "PLAIN")
    last = wire.encode("sasl_authenticate", 2, auth_bytes=b"\0alice\0wonder land")
    after = wire.encode("metadata", 12, topics=[])
    wire.send(b"".join(struct.pack(">i", len(part)) + part for part in (last, after)))
    assert wire.decode("sasl_authenticate", 2, wire.receive_frame())["error_code"] == 0
    assert wire.decode("metadata", 12, wire.receive_frame())["brokers"]


# Not coming in.


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("metadata", 12, {"topics": []}),
        ("create_topics", 7, {"topics": [], "timeout_ms": 1000}),
        ("sasl_authenticate", 2, {"auth_bytes": b"\0alice\0wonder land"}),
    ],
)
def test_whatever_comes_before_authentication_is_hung_up_on(wire, api, version, fields):
    wire.send_frame(wire.encode(api, version, **fields))
    assert hang_up(wire)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "PLAIN\0", "", "x" * 30_000])
def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(wire, mechanism):
    answer = shake_hands(wire, mechanism)
    assert answer["error_code"] == 33
    assert sorted(answer["mechanisms"]) == MECHANISMS
    assert hang_up(wire)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\0alice\0wonder", "Authentication failed: Invalid username or password"),
        ("\0nobody\0wonder", "Authentication failed: Invalid username or password"),
        ("\0bob\0builder", "Authentication failed: Invalid username or password"),
        ("\0\0wonder", "Authentication failed: username not specified"),
        ("\0alice\0", "Authentication failed: password not specified"),
        (
            "bob\0alice\0wonder land",
            OTHER_ID,
        ),
        ("alice\0wonder land", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        ("a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_plain_says_what_is_wrong_and_nothing_of_who_there_is(wire, text, why):
    shake_hands(wire, "PLAIN")
    began = time.monotonic()
    told = token(wire, text)
    assert (told["error_code"], told["error_message"]) == (58, why)
    assert time.monotonic() - began > 0.09, "a guess takes its time (timers count milliseconds)"
    assert hang_up(wire)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_refuses_a_wrong_password(wire, mechanism):
    shake_hands(wire, mechanism)
    client = Scram(mechanism, password="wrong")
    told = token(wire, client.final(token(wire, client.first())["auth_bytes"]))
    assert (told["error_code"], told["error_message"]) == (58, WRONG.format(mechanism))
    assert told["auth_bytes"] == b""
    assert hang_up(wire)


def test_scram_tells_nobody_which_users_there_are(again, target_kind):
    """Kafka refuses an unknown user one step earlier; here he fails where a wrong password does."""
    salts = set()
    for _ in range(2):
        wire = again()
        shake_hands(wire, "SCRAM-SHA-256")
        client = Scram("SCRAM-SHA-256", name="nobody")
        challenge = token(wire, client.first())
        if target_kind == "kafka":
            assert challenge["error_code"] == 58
            return
        assert challenge["error_code"] == 0
        salts.add(challenge["auth_bytes"].partition(b",")[2])
        told = token(wire, client.final(challenge["auth_bytes"]))
        assert (told["error_code"], told["error_message"]) == (58, WRONG.format("SCRAM-SHA-256"))
    assert len(salts) == 1, "the same salt each time, as a user's is"


@pytest.mark.parametrize(
    "first",
    [
        {"header": "y,,"},
        {"header": "p=tls-unique,,"},
        {"header": ""},
        {"more": ",tokenauth=true"},
        {"more": ",tokenauth="},
        {"more": ","},
        {"more": ",x"},
        {"more": ",1=2"},
        {"more": ",x=\0"},
        {"more": ",x=é"},
        {"header": "n,a=,"},
    ],
)
def test_scram_refuses_what_it_does_not_offer(wire, first):
    shake_hands(wire, "SCRAM-SHA-256")
    told = token(wire, Scram("SCRAM-SHA-256").first(**first))
    assert (told["error_code"], told["error_message"]) == (58, WRONG.format("SCRAM-SHA-256"))
    assert hang_up(wire)


def test_scram_refuses_another_authorization_id(wire):
    shake_hands(wire, "SCRAM-SHA-256")
    told = token(wire, Scram("SCRAM-SHA-256").first(header="n,a=alice,"))
    assert told["error_code"] == 58
    assert "authorization id that is different from username" in told["error_message"]


@pytest.mark.parametrize("wrong", [{"nonce": "other"}, {"proof": b"x" * 32}, {"proof": b"x"}])
def test_scram_refuses_a_proof_of_something_else(wire, wrong, target_kind):
    if target_kind == "kafka" and wrong == {"proof": b"x"}:
        pytest.skip("Kafka hangs up without a word")
    shake_hands(wire, "SCRAM-SHA-256")
    client = Scram("SCRAM-SHA-256")
    told = token(wire, client.final(token(wire, client.first())["auth_bytes"], **wrong))
    assert (told["error_code"], told["error_message"]) == (58, WRONG.format("SCRAM-SHA-256"))


def test_scram_refuses_a_header_that_was_not_sent(wire, target_kind):
    """Kafka does not compare it, and fails by the proof, which was made over the other one."""
    shake_hands(wire, "SCRAM-SHA-256")
    client = Scram("SCRAM-SHA-256")
    told = token(wire, client.final(token(wire, client.first())["auth_bytes"], header="y,,"))
    assert told["error_code"] == (0 if target_kind == "kafka" else 58)


def test_a_proof_is_good_for_one_exchange_only(wire, again):
    shake_hands(wire, "SCRAM-SHA-256")
    client = Scram("SCRAM-SHA-256")
    final = client.final(token(wire, client.first())["auth_bytes"])
    assert token(wire, final)["error_code"] == 0
    other = again()
    shake_hands(other, "SCRAM-SHA-256")
    token(other, client.first())
    assert token(other, final)["error_code"] == 58


@pytest.mark.parametrize(
    ("api", "version", "fields", "is_told"),
    [
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}, True),
        ("api_versions", 0, {}, True),
        ("metadata", 12, {"topics": []}, False),
    ],
)
def test_nothing_but_a_token_follows_a_handshake(wire, target_kind, api, version, fields, is_told):
    shake_hands(wire, "PLAIN")
    if is_told:
        assert wire.call(api, version, **fields)["error_code"] == 34
    elif target_kind == "ottla":  # Kafka answers in the API's own form, where it has a place.
        wire.send_frame(wire.encode(api, version, **fields))
    assert target_kind == "kafka" or hang_up(wire)


@pytest.mark.parametrize("length", [524_289, -1, (1 << 31) - 1, 0])
def test_frames_have_a_bound_of_their_own_before_authentication(wire, length):
    wire.send(struct.pack(">i", length))
    assert hang_up(wire)


def test_what_follows_a_wrong_token_is_never_served(wire, secured, connect_to, topic_name):
    shake_hands(wire, "PLAIN")
    wrong = wire.encode("sasl_authenticate", 2, auth_bytes=b"\0alice\0wonder")
    create = wire.encode(
        "create_topics",
        7,
        timeout_ms=1000,
        topics=[{"name": topic_name, "num_partitions": 1, "replication_factor": 1}],
    )
    wire.send(b"".join(struct.pack(">i", len(part)) + part for part in (wrong, create)))
    assert wire.decode("sasl_authenticate", 2, wire.receive_frame())["error_code"] == 58
    assert hang_up(wire)
    answer = connect_to(secured.bootstrap).call("metadata", 12, topics=None)
    assert topic_name not in [topic["name"] for topic in answer["topics"]]


# Where nobody is asked, and behind it.


def test_whoever_is_in_cannot_begin_again(wire, connect_to, secured):
    shake_hands(wire, "PLAIN")
    token(wire, "\0alice\0wonder land")
    for inside in (wire, connect_to(secured.bootstrap)):
        answer = shake_hands(inside, "PLAIN")
        assert (answer["error_code"], answer["mechanisms"]) == (34, [])
        answer = token(inside, "\0alice\0wonder land")
        assert answer["error_code"] == 34
        assert answer["error_message"] == (
            "SaslAuthenticate request received after successful authentication"
        )
        assert may_ask(inside)


def test_each_listener_tells_its_own_address(wire, connect_to, secured):
    shake_hands(wire, "PLAIN")
    token(wire, "\0alice\0wonder land")
    for inside, address in (
        (wire, secured.secured["SASL_PLAINTEXT"]),
        (connect_to(secured.bootstrap), secured.bootstrap),
    ):
        (broker,) = inside.call("metadata", 12, topics=[])["brokers"]
        assert f"{broker['host']}:{broker['port']}" == address
