"""Clients at a broker that wants TLS and SASL: the same at Ottla and at Apache Kafka."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from dataclasses import replace

import pytest

from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from tests.certificates import certificates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

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
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
USERS = [f"SCRAM-SHA-{size}=[name=bob,password=builder{size}]" for size in (256, 512)]


@pytest.fixture(scope="module", name="certificates")
def certificates_fixture():
    return certificates()


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.kafka)])
def peer(request, certificates, tmp_path_factory):
    stores = {
        "ssl.keystore.location": certificates / "server.pem",
        "ssl.truststore.location": certificates / "ca.pem",
    }
    data = tmp_path_factory.mktemp("secured") / "data"
    if request.param == "kafka":
        from tools.kafka_peer import KafkaPeer

        request.getfixturevalue("kafka_libs")
        made = KafkaPeer(data, OPTIONS | stores, protocols=PROTOCOLS, users=USERS)
    else:
        from tools.ottla_peer import OttlaPeer

        made = OttlaPeer(data, OPTIONS | stores, protocols=PROTOCOLS, users=USERS)
    with made:
        made.start()
        yield made


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


def java_properties(protocol, texts, certificates, path):
    """A file for Java's tools; returns its path."""
    options = {
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.pem",
        **texts,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    return path


OF_OTHERS = ("SSL", "SASL_SSL")


def librdkafka_options(peer, protocol, certificates):
    options = {
        "bootstrap.servers": peer.secured[protocol],
        "security.protocol": protocol,
        "ssl.ca.location": str(certificates / "ca.pem"),
    }
    if protocol == "SSL":
        options["ssl.certificate.location"] = str(certificates / "client.crt")
        options["ssl.key.location"] = str(certificates / "client.key")
    else:
        options |= sasl("SCRAM-SHA-512", "bob", "builder512")
    return options


@pytest.mark.parametrize("protocol", OF_OTHERS)
def test_librdkafka(peer, certificates, protocol):
    import confluent_kafka

    options = librdkafka_options(peer, protocol, certificates)
    topic = f"librdkafka-{protocol}"
    told = []
    producer = confluent_kafka.Producer(options)
    for value in (b"small", bytes(900_000)):
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(60) == 0
    assert told == [None, None]
    consumer = confluent_kafka.Consumer(
        {**options, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values = []
    while len(values) < 2:
        (message,) = consumer.consume(1, 60)
        values.append(len(message.value()))
    consumer.close()
    assert values == [5, 900_000]


def python_options(peer, protocol, certificates):
    options = {"bootstrap_servers": peer.secured[protocol], "security_protocol": protocol}
    if protocol == "SASL_SSL":
        options |= {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "bob",
            "sasl_plain_password": "builder256",
        }
    return options


@pytest.mark.parametrize("protocol", OF_OTHERS)
def test_kafka_python(peer, certificates, protocol):
    import kafka

    options = python_options(peer, protocol, certificates)
    options["ssl_cafile"] = str(certificates / "ca.pem")
    if protocol == "SSL":
        options["ssl_certfile"] = options["ssl_keyfile"] = str(certificates / "client.pem")
    topic = f"kafka-python-{protocol}"
    with contextlib.closing(kafka.KafkaProducer(**options)) as producer:
        for value in (b"small", bytes(900_000)):
            producer.send(topic, value).get(60)
    with contextlib.closing(
        kafka.KafkaConsumer(topic, **options, auto_offset_reset="earliest")
    ) as consumer:
        assert [len(next(consumer).value) for _ in range(2)] == [5, 900_000]


@pytest.mark.parametrize("protocol", OF_OTHERS)
def test_aiokafka(peer, certificates, protocol):
    import aiokafka

    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if protocol == "SSL":
        context.load_cert_chain(certificates / "client.pem")
    options = {**python_options(peer, protocol, certificates), "ssl_context": context}
    topic = f"aiokafka-{protocol}"

    async def story():
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            for value in (b"small", bytes(900_000)):
                await producer.send_and_wait(topic, value)
        async with aiokafka.AIOKafkaConsumer(
            topic, **options, auto_offset_reset="earliest"
        ) as consumer:
            return [len((await consumer.getone()).value) for _ in range(2)]

    assert asyncio.run(story()) == [5, 900_000]


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", OF_OTHERS)
def test_javas_console_tools(peer, certificates, tmp_path, kafka_libs, protocol):
    from tools.kafka_peer import tool_command

    if protocol == "SSL":
        texts = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates / "client.pem",
        }
    else:
        line = f'{JAAS}.scram.ScramLoginModule required username="bob" password="builder512";'
        texts = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": line}
    path = java_properties(protocol, texts, certificates, tmp_path / "client.properties")
    topic, where = f"java-{protocol}", ("--bootstrap-server", peer.secured[protocol])
    tools = "org.apache.kafka.tools"
    produced = subprocess.run(
        tool_command(
            *(f"{tools}.ConsoleProducer", *where, "--topic", topic),
            *("--command-config", str(path)),
        ),
        input="one\ntwo\n",
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert produced.returncode == 0, produced.stderr
    consumed = subprocess.run(
        tool_command(
            *(f"{tools}.consumer.ConsoleConsumer", *where, "--topic", topic),
            *("--command-config", str(path), "--from-beginning", "--max-messages", "2"),
        ),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert consumed.stdout == "one\ntwo\n", consumed.stderr


def test_a_client_without_a_certificate_is_refused(settings):
    given = settings("SSL", {})
    with pytest.raises(ConnectionFailed):
        BlockingClient(given).refresh([])


def test_who_does_not_log_in_is_told_so_and_not_kept_waiting(settings):
    """A listener that wants SASL tells its versions and hangs up, which looks like a restart."""
    given = settings("SASL_SSL", sasl("PLAIN", "alice", "wonder land"))
    without = replace(given, security=replace(given.security, sasl=None), retry_timeout_ms=60_000)
    with pytest.raises(KafkaError, match=r"wants a login by SASL \(.*SCRAM-SHA-256") as error:
        asyncio.run(refreshed(without))
    assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(KafkaError, match="wants a login by SASL"), BlockingClient(without) as one:
        one.refresh([])


def test_who_does_not_speak_tls_is_told_so(settings):
    given = settings("SASL_SSL", sasl("PLAIN", "alice", "wonder land"))
    plain = replace(given, security=replace(given.security, tls=None))
    with pytest.raises(ConnectionFailed, match="TLS"):
        asyncio.run(refreshed(plain))
    with pytest.raises(ConnectionFailed, match="TLS"), BlockingClient(plain) as one:
        one.refresh([])


async def refreshed(settings):
    async def ask():
        return await cluster.refresh([])

    async with Cluster(settings) as cluster:
        return await cluster.retrying(ask)


KCAT_WAYS = [
    ("SASL_SSL", {"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "wonder land"),
    ("SSL", {"ssl.certificate.location": "client.crt", "ssl.key.location": "client.key"}, None),
]


@pytest.mark.parametrize(("protocol", "texts", "password"), KCAT_WAYS)
def test_kcat_comes_in_by_password_and_by_certificate(
    peer, certificates, protocol, texts, password
):
    """Not by SCRAM: Debian 12's has a librdkafka whose nonce is refused by Kafka 4, too."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed")
    given = {"security.protocol": protocol, "ssl.ca.location": certificates / "ca.pem", **texts}
    for name in ("ssl.certificate.location", "ssl.key.location"):
        if name in given:
            given[name] = certificates / given[name]
    if password is not None:
        given["sasl.password"] = password

    def run(*arguments, text="", **more):
        settings = [f"{key}={value}" for key, value in {**given, **more}.items()]
        options = [part for setting in settings for part in ("-X", setting)]
        return subprocess.run(
            [program, "-b", peer.secured[protocol], *options, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
        )

    topic = f"kcat-{protocol.lower().replace('_', '-')}"
    done = run("-q", "-P", "-t", topic, text="value\n")
    assert done.returncode == 0, done.stderr
    read = run("-q", "-C", "-t", topic, "-e", "-o", "beginning")
    assert read.stdout == "value\n", read.stderr
    refused = (
        {"sasl.password": "no"} if password else {"ssl.ca.location": certificates / "other-ca.pem"}
    )
    told = run("-L", "-m", "10", **refused)
    assert told.returncode != 0
    assert "invalid" in told.stderr.lower() or "certificate verify failed" in told.stderr
