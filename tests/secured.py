"""A broker with TLS, SASL, an authorizer and a quota, for clients that come in every way.

``User:alice`` (PLAIN), ``User:bob`` (SCRAM), ``User:carol`` (OAUTHBEARER) and the certificate of
"client" may write to all topics but ``denied``, and each client of alice's not more than ``RATE``
bytes a second; alice's client ``reader`` may not read more. Bob may also alter the cluster.
"""

from contextlib import contextmanager

from tests.authorizing import AUTHORIZER
from tests.bearer_tokens import AUDIENCE, ISSUER
from tests.certificates import certificates
from tests.e2e.test_security import JAAS, OPTIONS, USERS
from tests.token_server import TokenServer
from tools.wire_client import WireClient

PROTOCOLS = ("SSL", "SASL_SSL")
RATE = 100_000.0
"""Bytes per second that PLAIN's user may write by each client id; ten seconds' worth at once."""
COMING = {
    "plain": ("SASL_SSL", "PLAIN", "alice", "wonder land"),
    "scram-256": ("SASL_SSL", "SCRAM-SHA-256", "bob", "builder256"),
    "scram-512": ("SASL_SSL", "SCRAM-SHA-512", "bob", "builder512"),
    "token": ("SASL_SSL", "OAUTHBEARER", "carol", None),
    "certificate": ("SSL", None, None, None),
}
"""By way: protocol, mechanism, user and password; for a token see ``token_of``."""
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
BEARER = "listener.name.sasl_ssl.oauthbearer"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
"""Java's property, without which its clients and brokers read no token and no key set."""


def token_of(peer, user, *, is_forged=False):
    """Return a token that lets the user in, or one that another has signed in the issuer's name."""
    issuer = peer.tokens.issuer
    return issuer.token(sub=user, kid="forged" if is_forged else None)


@contextmanager
def secured_peer(kind, data, topics):
    """Start an OttlaPeer or KafkaPeer (``kind``) with these topics and ``denied``."""
    made = certificates()
    options = OPTIONS | {
        "ssl.keystore.location": made / "server.pem",
        "ssl.truststore.location": made / "ca.pem",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    options = {key: value for key, value in options.items() if "sasl_plaintext" not in key}
    with (
        TokenServer() as tokens,
        _kind(kind, tokens)(
            data, options | _options_of(tokens), protocols=PROTOCOLS, users=USERS
        ) as peer,
    ):
        peer.tokens = tokens
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            for topic in (*topics, "denied"):
                wire.create_topic(topic)
            prepare(wire)
        yield peer


def _kind(kind, tokens):
    class Made(kind):
        def environment(self):
            allowed = f"-D{ALLOWED}.urls={tokens.url}/keys"
            return {**super().environment(), "JAVA_TOOL_OPTIONS": allowed}

    return Made


def _options_of(tokens):
    return {
        "sasl.enabled.mechanisms": MECHANISMS,
        f"{BEARER}.sasl.jaas.config": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required;",
        f"{BEARER}.sasl.oauthbearer.jwks.endpoint.url": f"{tokens.url}/keys",
        f"{BEARER}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{BEARER}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{BEARER}.sasl.server.callback.handler.class": (
            f"{JAAS}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }


def prepare(wire):
    """Give the rights and the quota."""
    acl = {"resource_pattern_type": 3, "host": "*", "permission_type": 3}
    creations = [
        {
            **acl,
            "resource_type": kind,
            "resource_name": "*",
            "principal": "User:*",
            "operation": operation,
        }
        for kind, operation in ((2, 3), (2, 4), (3, 3))
    ]
    creations.append({**creations[0], "resource_name": "denied", "operation": 2})
    creations[-1]["permission_type"] = 2
    of_bob = {"resource_type": 4, "resource_name": "kafka-cluster", "principal": "User:bob"}
    creations += [
        {**acl, **of_bob, "operation": operation} for operation in (5, 7, 8, 10, 11)
    ]  # CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    told = wire.call("create_acls", 3, creations=creations)
    assert {one["error_code"] for one in told["results"]} == {0}
    entries = [
        {
            "entity": [
                {"entity_type": "user", "entity_name": "alice"},
                {"entity_type": "client-id", "entity_name": client_id},
            ],
            "ops": [{"key": key, "value": RATE, "remove": False}],
        }
        for client_id, key in ((None, "producer_byte_rate"), ("reader", "consumer_byte_rate"))
    ]
    told = wire.call("alter_client_quotas", 1, entries=entries, validate_only=False)
    assert [entry["error_code"] for entry in told["entries"]] == [0, 0]
