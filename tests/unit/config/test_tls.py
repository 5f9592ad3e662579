"""The options of TLS: what they mean together, what is refused, and what is never shown."""

import pytest

from ottla.config.broker import BROKER_TABLE
from ottla.config.files import broker_config, listeners_of, sort_out
from ottla.config.option import InvalidConfig

TLS = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/server.pem"}
BOTH = {
    **TLS,
    "listeners": "SSL://127.0.0.1:0,SASL_SSL://0.0.0.0:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "ssl.truststore.location": "/ca.pem",
}


def served(*texts):
    return listeners_of(broker_config(*texts))


def test_a_listeners_own_options_win_and_the_others_hold_for_all():
    own = {
        "listener.name.sasl_ssl.ssl.keystore.location": "/other.pem",
        "listener.name.sasl_ssl.ssl.key.password": "secret",
        "ssl.enabled.protocols": "TLSv1.3",
    }
    one, other = served(BOTH, own)
    assert (one.tls.keystore_file, one.tls.key_password) == ("/server.pem", None)
    assert (other.tls.keystore_file, other.tls.key_password) == ("/other.pem", "secret")
    assert one.tls.versions == other.tls.versions == ("TLSv1.3",)
    assert other.mechanisms == ("SCRAM-SHA-256",)
    assert (one.mechanisms, other.mapping_rules) == ((), None)


def test_beside_sasl_only_the_listeners_own_client_auth_counts():
    one, other = served(BOTH, {"ssl.client.auth": "required"})
    assert (one.tls.client_auth, other.tls.client_auth) == ("required", "none")
    _, other = served(BOTH, {"listener.name.sasl_ssl.ssl.client.auth": "requested"})
    assert other.tls.client_auth == "requested"


def test_plain_may_be_open_to_other_machines_over_tls():
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    texts = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": line,
    }
    assert served(BOTH, texts)[1].passwords == {"a": "b"}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"ssl.keystore.type": "JKS"}, "keytool -importkeystore"),
        ({"ssl.keystore.type": "PKCS12"}, "'openssl pkcs12 -in STORE.p12 -nodes -out FILE.pem'"),
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type=JKS is not served"),
        ({"ssl.keystore.password": "secret"}, "ssl.keystore.password has no meaning with PEM"),
        ({"ssl.truststore.password": "secret"}, "ssl.truststore.password has no meaning"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.location excludes"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth=required needs ssl.truststore"),
        ({"ssl.client.auth": "always"}, "String must be one of: required, requested, none"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not served"),
        ({"ssl.protocol": "SSLv3"}, "String must be one of: TLSv1.3, TLSv1.2, TLS"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "TLS_RSA_WITH_RC4_128_MD5 is not"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "of TLS 1.3 all suites or none"),
        (
            {
                "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            "none of them is of a version",
        ),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(.*$/$1/"}, "is wrong"),
        ({"ssl.principal.mapping.rules": "CN=a"}, "expected DEFAULT or RULE:"),
        ({"ssl.principal.mapping.rules": ""}, "nobody could come in"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(texts, why):
    with pytest.raises(InvalidConfig) as refused:
        served(TLS, texts)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "key",
    ["ssl.provider", "ssl.engine.factory.class", "ssl.keymanager.algorithm",
     "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
     "listener.name.ssl.ssl.provider"],
)  # fmt: skip
def test_options_of_java_are_refused_by_name(key):
    with pytest.raises(InvalidConfig, match=key):
        sort_out({**TLS, key: "x"})


def test_suites_of_one_version_leave_the_other_out():
    only_12 = {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
    (one,) = served(TLS, only_12)
    assert (one.tls.versions, one.tls.ciphers) == (("TLSv1.2",), ("ECDHE-RSA-AES128-GCM-SHA256",))
    all_13 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    (one,) = served(TLS, {"ssl.cipher.suites": all_13})
    assert (one.tls.versions, one.tls.ciphers) == (("TLSv1.3",), ())


def test_inline_texts_take_the_place_of_files_and_no_secret_is_shown():
    texts = {
        "listeners": "SSL://:0",
        "ssl.keystore.certificate.chain": "a chain",
        "ssl.keystore.key": "a secret",
        "ssl.key.password": "a secret",
        "ssl.truststore.certificates": "some CAs",
        "ssl.client.auth": "required",
    }
    (one,) = served(texts)
    assert (one.tls.chain_text, one.tls.key_text, one.tls.trust_text) == (
        "a chain",
        "a secret",
        "some CAs",
    )
    assert "secret" not in repr(one)
    for key in ("ssl.keystore.key", "ssl.key.password", "listener.name.ssl.ssl.keystore.key"):
        assert BROKER_TABLE[key].sensitive
    with pytest.raises(InvalidConfig, match=r"needs ssl\.keystore\.key"):
        served({key: text for key, text in texts.items() if key != "ssl.keystore.key"})
