"""Real clients at a listener that asks who they are: right password, wrong password, other ways."""

import asyncio
import contextlib
import uuid

import pytest

from ottla.client.asyncio.cluster import Cluster
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.settings import read_settings
from ottla.errors import ErrorCode, KafkaError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OPTIONS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_alice="wonder land";',
}
USERS = [f"SCRAM-SHA-{size}=[name=bob,password=builder{size}]" for size in (256, 512)]
WAYS = [
    ("PLAIN", "alice", "wonder land"),
    ("SCRAM-SHA-256", "bob", "builder256"),
    ("SCRAM-SHA-512", "bob", "builder512"),
]


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    from tools.ottla_peer import OttlaPeer

    data = tmp_path_factory.mktemp("secured") / "data"
    with OttlaPeer(data, OPTIONS, protocols=("SASL_PLAINTEXT",), users=USERS) as peer:
        peer.start()
        yield peer


@pytest.fixture
def address(peer):
    return peer.secured["SASL_PLAINTEXT"]


@pytest.mark.parametrize(("mechanism", "name", "password"), WAYS)
def test_kafka_python(address, mechanism, name, password):
    import kafka
    import kafka.errors

    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
    }
    topic = f"t-{uuid.uuid4().hex}"
    with contextlib.closing(
        kafka.KafkaProducer(**options, sasl_plain_password=password)
    ) as producer:
        assert producer.send(topic, b"value").get(20).offset == 0
    with contextlib.closing(
        kafka.KafkaConsumer(
            topic,
            **options,
            sasl_plain_password=password,
            group_id=topic,
            auto_offset_reset="earliest",
        )
    ) as consumer:
        assert next(consumer).value == b"value"
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(
            **options, sasl_plain_password="wrong", api_version_auto_timeout_ms=1000
        )


@pytest.mark.parametrize(("mechanism", "name", "password"), WAYS)
def test_librdkafka(address, mechanism, name, password):
    import confluent_kafka

    errors = []
    options = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "error_cb": errors.append,
    }
    topic = f"t-{uuid.uuid4().hex}"
    told = []
    producer = confluent_kafka.Producer({**options, "sasl.password": password})
    producer.produce(topic, b"value", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(20) == 0
    assert (told, errors) == ([None], [])
    consumer = confluent_kafka.Consumer(
        {
            **options,
            "sasl.password": password,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message.value() == b"value"
    consumer.close()
    wrong = confluent_kafka.Producer({**options, "sasl.password": "wrong"})
    while not errors:
        wrong.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "Authentication failed" in errors[0].str()


@pytest.mark.parametrize(("mechanism", "name", "password"), WAYS)
async def test_aiokafka(address, mechanism, name, password):
    import aiokafka
    import aiokafka.errors

    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
    }
    producer = aiokafka.AIOKafkaProducer(**options, sasl_plain_password=password)
    await producer.start()
    topic = f"t-{uuid.uuid4().hex}"
    assert (await producer.send_and_wait(topic, b"value")).offset == 0
    await producer.stop()
    wrong = aiokafka.AIOKafkaProducer(**options, sasl_plain_password="wrong")
    with pytest.raises(aiokafka.errors.KafkaError):
        await wrong.start()
    await wrong.stop()


@pytest.mark.parametrize(("mechanism", "name", "password"), WAYS)
def test_our_own_clients(address, mechanism, name, password):
    def settings(secret):
        return read_settings(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": name,
                "sasl.password": secret,
            }
        )

    async def refresh(secret):
        async with Cluster(settings(secret)) as cluster:
            await cluster.refresh([])

    asyncio.run(refresh(password))
    with BlockingClient(settings(password)) as client:
        client.refresh([])
    with pytest.raises(KafkaError, match="Authentication failed") as error:
        asyncio.run(refresh("wrong"))
    assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(KafkaError, match="Authentication failed"):
        BlockingClient(settings("wrong")).refresh([])


def test_users_outlive_a_restart_and_are_not_made_again(tmp_path):
    from tools.ottla_peer import OttlaPeer

    def start(password):
        users = [f"SCRAM-SHA-256=[name=bob,password={password}]"]
        options = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
        peer = OttlaPeer(tmp_path / "data", options, protocols=("SASL_PLAINTEXT",), users=users)
        peer.start()
        return peer

    def can_log_in(peer, password):
        settings = read_settings(
            {
                "bootstrap.servers": peer.secured["SASL_PLAINTEXT"],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "bob",
                "sasl.password": password,
            }
        )
        try:
            with BlockingClient(settings) as client:
                client.refresh([])
        except KafkaError:
            return False
        return True

    with start("first") as peer:
        assert can_log_in(peer, "first")
    with start("second") as peer:
        assert can_log_in(peer, "first")
        assert not can_log_in(peer, "second")
        log = peer.log_text()
    assert "first" not in log
    assert "second" not in log
    assert (tmp_path / "data" / "metadata.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.kafka
def test_kafkas_own_tool_makes_and_removes_users(peer, kafka_tool):
    where = ("kafka.admin.ConfigCommand", "--bootstrap-server", peer.bootstrap)
    carol = ("--entity-type", "users", "--entity-name", "carol")
    told = kafka_tool(*where, "--alter", "--add-config", "SCRAM-SHA-512=[password=pw]", *carol)
    assert "Completed updating config for user carol" in told
    told = kafka_tool(*where, "--alter", "--delete-config", "SCRAM-SHA-512", *carol)
    assert "Completed updating config for user carol" in told
