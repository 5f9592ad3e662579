"""A broker with TLS, SASL, an authorizer and a quota, for clients that come in every way.

``User:alice`` (PLAIN), ``User:bob`` (SCRAM) and the certificate of "client" may write to all topics
but ``denied``, and each client of alice's not more than ``RATE`` bytes a second.
"""

from contextlib import contextmanager

from tests.authorizing import AUTHORIZER
from tests.certificates import certificates
from tests.e2e.test_security import OPTIONS, USERS
from tools.wire_client import WireClient

PROTOCOLS = ("SSL", "SASL_SSL")
RATE = 100_000.0
"""Bytes per second that PLAIN's user may write by each client id; ten seconds' worth at once."""
COMING = {
    "plain": ("SASL_SSL", "PLAIN", "alice", "wonder land"),
    "scram-256": ("SASL_SSL", "SCRAM-SHA-256", "bob", "builder256"),
    "scram-512": ("SASL_SSL", "SCRAM-SHA-512", "bob", "builder512"),
    "certificate": ("SSL", None, None, None),
}
"""By way: protocol, mechanism, user and password."""


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
    with kind(data, options, protocols=PROTOCOLS, users=USERS) as peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            for topic in (*topics, "denied"):
                wire.create_topic(topic)
            prepare(wire)
        yield peer


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
    told = wire.call("create_acls", 3, creations=creations)
    assert {one["error_code"] for one in told["results"]} == {0}
    entry = {
        "entity": [
            {"entity_type": "user", "entity_name": "alice"},
            {"entity_type": "client-id", "entity_name": None},
        ],
        "ops": [{"key": "producer_byte_rate", "value": RATE, "remove": False}],
    }
    told = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
    assert told["entries"][0]["error_code"] == 0
