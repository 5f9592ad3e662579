"""Listeners: who may come in by which; what cannot be served is refused, and no secret is shown."""

import pytest

from ottla.config.broker import BROKER_TABLE
from ottla.config.config import Config, Layer
from ottla.config.files import broker_config, listeners_of, sort_out
from ottla.config.jaas import read_jaas_line
from ottla.config.option import InvalidConfig, Scope, Source

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.inside.plain.sasl.jaas.config"
INSIDE = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}
TOKENS = {
    **INSIDE,
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
}
ALICE = {JAAS: f'{MODULE} required username="x" password="y" user_alice="won=der; \\"land";'}


def served(*texts):
    return listeners_of(broker_config(*texts))


def test_each_listener_has_its_protocol_and_its_mechanisms():
    open_one, inside = served(INSIDE)
    assert (open_one.protocol, open_one.mechanisms) == ("PLAINTEXT", ())
    assert (inside.protocol, inside.mechanisms) == ("SASL_PLAINTEXT", ("SCRAM-SHA-256",))
    own = {"listener.name.inside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    _, inside = served(INSIDE, own, ALICE)
    assert inside.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert inside.passwords == {"alice": 'won=der; "land'}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"listeners": "INSIDE://:1"}, "INSIDE needs a security protocol"),
        ({"listeners": "SSL://:1"}, "Listener SSL: TLS needs a certificate"),
        ({"listeners": "SASL_SSL://:1"}, "Listener SASL_SSL: TLS needs a certificate"),
        ({"ssl.keystore.location": "x"}, "no listener has the protocol SSL or SASL_SSL"),
        ({**INSIDE, "listener.name.inside.ssl.client.auth": "none"}, "INSIDE is not SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "TLS is no security protocol"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:SLL"}, "SLL is no security"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:"}, "X::  is no security"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "expected NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,a:SSL"}, "A stands twice"),
        ({"listeners": "A://:1,a://:2"}, "must have a different name"),
        ({"listeners": "PLAINTEXT://h:1,B://h:1"}, "must have a different port"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "must stand in brackets"),
        ({"listeners": "PLAINTEXT://:65536"}, "Unable to parse"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to it"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9092"}, "clients cannot connect to it"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}, "names no way to tell"),
        ({**INSIDE, "sasl.enabled.mechanisms": "GSSAPI"}, "must be one of: PLAIN, SCRAM"),
        ({**INSIDE, "sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs sasl.oauthbearer.jwks.endp"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "http://h/keys"}, "keys of his own"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "https://h:x/keys"}, "expected https"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "ftp://h/keys"}, "expected https"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "file://h/keys"}, "expected https"),
        ({**TOKENS, "listeners": "INSIDE://:1"}, "a token is as good as a password"),
        ({**TOKENS, "sasl.oauthbearer.sub.claim.name": ""}, "a claim has a name"),
        (
            {**TOKENS, "listener.name.inside.oauthbearer.sasl.server.callback.handler.class": "X"},
            "Java classes cannot be loaded",
        ),
        (
            {**TOKENS, "listener.name.inside.oauthbearer.sasl.jaas.config": f"{MODULE} required;"},
            "expected the OAuthBearerLoginModule",
        ),
        ({**INSIDE, "sasl.enabled.mechanisms": "PLAIN"}, "PLAIN needs users"),
        ({**INSIDE, "advertised.listeners": "OUTSIDE://h:1"}, "no listener OUTSIDE"),
        (
            {**INSIDE, "listener.name.elsewhere.sasl.enabled.mechanisms": "PLAIN"},
            "no listener ELSEWHERE",
        ),
        (
            {**INSIDE, **ALICE, "sasl.enabled.mechanisms": "PLAIN", "listeners": "INSIDE://:1"},
            "PLAIN sends passwords as they are",
        ),
        (
            {
                **INSIDE,
                JAAS.replace("plain", "scram-sha-256"): f"{MODULE} required;",
            },
            "expected the ScramLoginModule",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_and_not_ignored(texts, why):
    with pytest.raises(InvalidConfig, match=why):
        served(texts)


def test_two_listeners_may_be_told_by_one_address():
    """A proxy that stands there may know them apart by the name that a client asks for."""
    told = {"advertised.listeners": "PLAINTEXT://h:443,INSIDE://h:443"}
    assert len(served(INSIDE, told)) == 2


def test_an_option_of_a_listener_that_is_not_served_is_refused():
    for key in (
        "listener.name.inside.ssl.engine.factory.class",
        "listener.name.inside.plain.sasl.server.callback.handler.class",
        "listener.name.inside.gssapi.sasl.jaas.config",
    ):
        with pytest.raises(InvalidConfig):
            sort_out({**INSIDE, key: "x"})


def test_a_controllers_listener_is_not_opened_to_clients():
    names = {"controller.listener.names": "CONTROLLER"}
    both = "PLAINTEXT://:9092,CONTROLLER://:9093"
    found = sort_out({"listeners": both, "advertised.listeners": both, **names})
    assert found.texts["listeners"] == found.texts["advertised.listeners"] == "PLAINTEXT://:9092"
    assert sum("CONTROLLER://:9093" in note for note in found.notes) == 2
    with pytest.raises(InvalidConfig, match="only a controller's listener"):
        sort_out({"listeners": "controller://:9093", **names})


@pytest.mark.parametrize(
    "line",
    ["", f"{MODULE} required", f"{MODULE} required user_a=;", f"{MODULE} required x;"],
)
def test_no_error_shows_the_line_that_holds_passwords(line):
    with pytest.raises(InvalidConfig) as error:
        broker_config(INSIDE, {JAAS: f"hunter2 {line}"})
    assert "hunter2" not in str(error.value)
    assert "[hidden]" in str(error.value)


def test_passwords_are_not_in_what_is_printed():
    line = read_jaas_line(ALICE[JAAS])
    _, inside = served(INSIDE, ALICE, {"sasl.enabled.mechanisms": "PLAIN"})
    assert "land" not in repr(line) + repr(inside)


def test_the_login_module_cannot_be_changed_over_the_wire_and_is_never_told():
    option = BROKER_TABLE[JAAS]
    assert (option.sensitive, option.scope) == (True, Scope.READ_ONLY)
    config = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, ALICE))
    assert JAAS not in [option.key for option in config.table]


def test_tokens_are_judged_by_the_options_nearest_to_the_mechanism():
    key = "sasl.oauthbearer.expected.audience"
    own = {
        f"listener.name.inside.oauthbearer.{key}": "mine,ours",
        f"listener.name.inside.{key}": "the listener's",
        key: "all",
        "listener.name.inside.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "listener.name.inside.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'ssl.truststore.location="/etc/ca.pem";'
        ),
        "listener.name.inside.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    tokens = served(TOKENS, own)[1].tokens
    assert tokens.audiences == ("mine", "ours")
    assert tokens.issuer == "https://issuer.example"
    assert tokens.ca_file == "/etc/ca.pem"
    assert (tokens.subject_claim, tokens.skew_seconds) == ("sub", 30)
    del own[f"listener.name.inside.oauthbearer.{key}"]
    assert served(TOKENS, own)[1].tokens.audiences == ("the listener's",)
    assert served(TOKENS, {key: "all"})[1].tokens.audiences == ("all",)


def test_how_long_a_session_lasts_is_of_a_mechanism_or_a_listener_or_all():
    key = "connections.max.reauth.ms"
    both = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    own = {f"listener.name.inside.scram-sha-512.{key}": "7", key: "9"}
    assert served(INSIDE, both, own)[1].reauth_ms == {"SCRAM-SHA-256": 9, "SCRAM-SHA-512": 7}
    own[f"listener.name.inside.{key}"] = "8"
    assert served(INSIDE, both, own)[1].reauth_ms == {"SCRAM-SHA-256": 8, "SCRAM-SHA-512": 7}
    assert served(INSIDE)[1].reauth_ms == {"SCRAM-SHA-256": 0}
