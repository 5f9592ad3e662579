"""Our clients at an Apache Kafka that wants TLS and SASL."""

import asyncio
import shutil
import subprocess

import pytest

from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]

PASSWORD = "store-secret"
JAAS = "org.apache.kafka.common.security"
OPTIONS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{JAAS}.plain.PlainLoginModule required user_alice="wonder land";'
    ),
    "listener.name.sasl_ssl.plain.sasl.jaas.config": (
        f'{JAAS}.plain.PlainLoginModule required user_alice="wonder land";'
    ),
    **{
        f"listener.name.{listener}.scram-sha-{size}.sasl.jaas.config": (
            f"{JAAS}.scram.ScramLoginModule required;"
        )
        for listener in ("sasl_plaintext", "sasl_ssl")
        for size in (256, 512)
    },
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.ssl.ssl.client.auth": "required",
}
USERS = [f"SCRAM-SHA-{size}=[name=bob,password=builder{size}]" for size in (256, 512)]


def openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A directory with ca.pem, server.pem, client.pem (certificate and key), other-ca.pem."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates")
    directory = tmp_path_factory.mktemp("certificates")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    for authority in ("ca", "other-ca"):
        files = ("-keyout", f"{authority}.key", "-out", f"{authority}.pem")
        openssl(*new, "-x509", "-subj", f"/CN={authority}", *files, cwd=directory)
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(*new, "-subj", f"/CN={name}", *files, cwd=directory)
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", cwd=directory
        )
        key, certificate = (directory / f"{name}.{end}" for end in ("key", "crt"))
        (directory / f"{name}.pem").write_text(key.read_text() + certificate.read_text())
    return directory


@pytest.fixture(scope="module")
def peer(certificates, tmp_path_factory, kafka_libs):
    from tools.kafka_peer import KafkaPeer

    stores = {
        "ssl.keystore.location": certificates / "server.pem",
        "ssl.truststore.location": certificates / "ca.pem",
    }
    peer = KafkaPeer(
        tmp_path_factory.mktemp("secured") / "data",
        OPTIONS | stores,
        protocols=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        users=USERS,
    )
    with peer:
        peer.start()
        yield peer


def sasl(mechanism, name, password):
    return {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}


WAYS = [
    ("SASL_PLAINTEXT", sasl("PLAIN", "alice", "wonder land")),
    ("SASL_PLAINTEXT", sasl("SCRAM-SHA-256", "bob", "builder256")),
    ("SASL_SSL", sasl("SCRAM-SHA-512", "bob", "builder512")),
    ("SASL_SSL", sasl("PLAIN", "alice", "wonder land")),
    ("SSL", {"ssl.keystore.location": "client.pem"}),
    ("SSL", {"ssl.certificate.location": "client.crt", "ssl.key.location": "client.key"}),
    ("SSL", {"ssl.certificate.pem": "client.crt", "ssl.key.pem": "client.key"}),
]


@pytest.fixture
def settings(peer, certificates):
    def make(protocol, texts, *, trusted="ca.pem"):
        given = {
            "bootstrap.servers": peer.secured[protocol],
            "security.protocol": protocol,
            "socket.connection.setup.timeout.ms": "20000",  # a JVM's first handshake
            "ssl.truststore.location": str(certificates / trusted),
        }
        for name, text in texts.items():
            path = certificates / text
            is_file = name.startswith("ssl.") and path.exists()
            as_text = name.endswith(".pem")
            given[name] = (path.read_text() if as_text else str(path)) if is_file else text
        return read_settings(given)

    return make


@pytest.mark.parametrize(("protocol", "texts"), WAYS)
def test_both_clients_come_in(settings, protocol, texts):
    given = settings(protocol, texts)
    topic = f"secured-{WAYS.index((protocol, texts))}"

    async def make_topic():
        async with Cluster(given) as cluster:
            await Admin(cluster).create_topic(topic, partition_count=1)
            await cluster.ensure([topic], create=True)  # Its broker may hear of it a bit later.

    asyncio.run(make_topic())
    with BlockingClient(given) as client:
        client.refresh([topic])
        assert client.latest_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


@pytest.mark.parametrize(
    ("protocol", "texts", "code", "why"),
    [
        ("SASL_PLAINTEXT", sasl("PLAIN", "alice", "wonder"), 58, "Authentication failed"),
        ("SASL_SSL", sasl("SCRAM-SHA-256", "bob", "wrong"), 58, "Authentication failed"),
        ("SASL_SSL", sasl("SCRAM-SHA-512", "nobody", "x"), 58, "Authentication failed"),
    ],
)
def test_wrong_credentials_are_told_at_once(settings, protocol, texts, code, why):
    given = settings(protocol, texts)
    with pytest.raises(KafkaError, match=why) as error, BlockingClient(given) as client:
        client.refresh([])
    assert error.value.code == ErrorCode(code)
    with pytest.raises(KafkaError, match=why):
        asyncio.run(_refresh(given))


async def _refresh(settings):
    async with Cluster(settings) as cluster:
        await cluster.refresh([])


def test_a_certificate_that_nobody_vouches_for_is_refused(settings):
    given = settings("SASL_SSL", sasl("PLAIN", "alice", "wonder land"), trusted="other-ca.pem")
    with pytest.raises(ConnectionFailed, match="certificate was refused"):
        BlockingClient(given).refresh([])
    with pytest.raises(ConnectionFailed, match="certificate was refused"):
        asyncio.run(_refresh(given))


def test_tls_and_no_tls_notice_each_other(peer, settings):
    plain = read_settings({"bootstrap.servers": peer.secured["SSL"]})
    for attempt in (
        lambda: BlockingClient(plain).refresh([]),
        lambda: asyncio.run(_refresh(plain)),
    ):
        with pytest.raises(ConnectionFailed):
            attempt()
    given = settings("SSL", {"bootstrap.servers": peer.bootstrap})
    for attempt in (
        lambda: BlockingClient(given).refresh([]),
        lambda: asyncio.run(_refresh(given)),
    ):
        with pytest.raises(ConnectionFailed):
            attempt()
