"""The options of TLS and SASL, in Java's words and in librdkafka's."""

import pytest

from ottla.client.wire.exchange import FrameReader
from ottla.client.wire.security import Credentials, Security, read_security
from ottla.client.wire.settings import parse_bootstrap, read_settings
from ottla.config import InvalidConfig
from ottla.env.tls import TlsFiles, TlsUnusable, client_context
from ottla.errors import MalformedMessage
from tests.certificates import certificates

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
ALICE = Credentials("PLAIN", "alice", 'se"cret;')


def test_without_options_there_is_none():
    assert read_settings({}).security == Security() == read_security({})


@pytest.mark.parametrize(
    "texts",
    [
        {"sasl.username": "alice", "sasl.password": 'se"cret;'},
        {
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="alice" password="se\\"cret;";'
        },
        {
            "sasl.jaas.config": "  PlainLoginModule required\n serviceName=kafka "
            'password="se\\"cret;"\n username=alice ; '
        },
    ],
)
def test_names_and_passwords(texts):
    assert read_security(PLAIN | texts).sasl == ALICE


def test_a_password_shows_nowhere():
    assert "cret" not in repr(
        read_settings(PLAIN | {"sasl.username": "a", "sasl.password": "cret"})
    )
    files = read_security({"security.protocol": "SSL", "ssl.key.password": "cret"}).tls
    assert "cret" not in repr(files)
    with pytest.raises(InvalidConfig) as error:
        read_security(PLAIN | {"sasl.jaas.config": 'Plain needed password="cret"'})
    assert "cret" not in str(error.value)


def test_tls_in_both_languages():
    java = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    other = {"ssl.ca.location": "ca.pem"}
    for texts in (java, other):
        assert read_security({"security.protocol": "ssl"} | texts).tls == TlsFiles("ca.pem")
    texts = {"ssl.endpoint.identification.algorithm": "", "security.protocol": "SASL_SSL"}
    found = read_security(PLAIN | {"sasl.username": "a"} | texts)
    assert found.tls is not None
    assert not found.tls.verify_host
    assert found.sasl == Credentials("PLAIN", "a", "")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"security.protocol": "TLS"}, "SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        (PLAIN, "sasl.username"),
        (PLAIN | {"sasl.jaas.config": "x"}, "PlainLoginModule"),
        (PLAIN | {"sasl.jaas.config": "a.Krb5LoginModule required x=y;"}, "Krb5LoginModule"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "openssl"),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "certificate"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "x"}, "true or"),
    ],
)
def test_what_cannot_be_had_is_told(texts, why):
    with pytest.raises(InvalidConfig, match=why):
        read_security(texts)


def test_a_protocol_may_stand_before_an_address():
    assert [*parse_bootstrap("SASL_SSL://h:1,SSL://[::1]:2")] == [("h", 1), ("::1", 2)]


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(TlsUnusable, match=r"nowhere\.pem: No such file"):
        client_context(TlsFiles(str(tmp_path / "nowhere.pem")))
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00")
    with pytest.raises(TlsUnusable, match=r"store\.jks.*openssl"):
        client_context(TlsFiles(str(store)))
    with pytest.raises(TlsUnusable, match="certificate or its key"):
        client_context(TlsFiles(certificate_text="no pem"))
    for text in ("", "no pem", "-----BEGIN CERTIFICATE-----\nMIIö\n-----END CERTIFICATE-----"):
        with pytest.raises(TlsUnusable, match="the trusted certificates"):
            client_context(TlsFiles(ca_text=text))
    chain, key = ((certificates() / name).read_text() for name in ("server.crt", "locked.key"))
    locked = {"certificate_text": chain, "key_text": key}
    with pytest.raises(TlsUnusable, match="certificate or its key") as refused:
        client_context(TlsFiles(**locked, key_password="secret" * 1000))
    assert "secret" not in str(refused.value)


def test_words_between_certificates_are_passed_over():
    """``openssl s_client -showcerts`` writes names there, in UTF-8."""
    authority = (certificates() / "ca.pem").read_text()
    context = client_context(TlsFiles(ca_text=f" 0 s:CN = Müller\n{authority} 1 s:CN = x\n"))
    assert context.cert_store_stats()["x509"] == 1


def test_the_answer_of_a_tls_port_is_no_answer_of_352_megabytes():
    reader = FrameReader()
    reader.writable()[:7] = bytes.fromhex("15030300020246")
    with pytest.raises(MalformedMessage, match=r"security\.protocol"):
        reader.received(7)
