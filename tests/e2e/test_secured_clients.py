"""Clients over TLS that come in by each way: right and wrong password, denied topic, throttled.

The same at Ottla and at Apache Kafka. franz-go has a module of its own.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from tests.certificates import certificates
from tests.secured import COMING, secured_peer, token_of
from tests.token_server import FORGED, SECRETS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

DENIED = "denied"
BURST = [bytes(400_000)] * 3
"""At 100 kB a second, of which ten seconds' worth come at once, the fourth record waits for 2 s."""
THROTTLED_SECONDS = 1.0


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.kafka)])
def peer(request, tmp_path_factory):
    if request.param == "kafka":
        from tools.kafka_peer import KafkaPeer as Kind

        request.getfixturevalue("kafka_libs")
    else:
        from tools.ottla_peer import OttlaPeer as Kind

    names = [f"{client}-{way}" for client in CLIENTS for way in (*COMING, "throttled")]
    with secured_peer(Kind, tmp_path_factory.mktemp("clients") / "data", names) as peer:
        yield peer


class Refused(Exception):
    """What a client says when it is not let in, or not to a topic."""


def librdkafka_settings(peer, way, password):
    protocol, mechanism, user, right = COMING[way]
    made = certificates()
    settings = {
        "bootstrap.servers": peer.secured[protocol],
        "client.id": f"librdkafka-{time.monotonic_ns()}",
        "security.protocol": protocol,
        "ssl.ca.location": str(made / "ca.pem"),
    }
    if mechanism is None:
        name = "stranger" if password else "client"
        settings["ssl.certificate.location"] = str(made / f"{name}.crt")
        return settings | {"ssl.key.location": str(made / f"{name}.key")}
    if way == "token":
        token = token_of(peer, user, is_forged=password is not None)
        return settings | {
            "sasl.mechanism": mechanism,
            "oauth_cb": lambda _: (token, time.time() + 3600),
        }
    given = {"mechanism": mechanism, "username": user, "password": password or right}
    return settings | {f"sasl.{key}": text for key, text in given.items()}


def python_settings(peer, way, password):
    protocol, mechanism, user, right = COMING[way]
    context = ssl.create_default_context(cafile=certificates() / "ca.pem")
    settings = {
        "bootstrap_servers": peer.secured[protocol],
        "client_id": f"python-{time.monotonic_ns()}",
        "security_protocol": protocol,
        "ssl_context": context,
    }
    if mechanism is None:
        context.load_cert_chain(certificates() / f"{'stranger' if password else 'client'}.pem")
        return settings
    if way == "token":
        return settings | {"sasl_mechanism": mechanism}
    given = {"plain_username": user, "plain_password": password or right, "mechanism": mechanism}
    return settings | {f"sasl_{key}": text for key, text in given.items()}


def confluent_kafka(peer, way, topic, values, password=None):
    """Write and read back, by librdkafka."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    refused, told = [], []
    hears = {"error_cb": refused.append}
    settings = librdkafka_settings(peer, way, password)
    producer = Producer({**settings, **hears, "linger.ms": 0, "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
        while not told and not _is_refused(refused):
            producer.poll(0.2)
        if not told:
            raise Refused(refused)
        if (error := told.pop()) is not None:
            raise Refused(error)
    consumer = Consumer({**settings, "group.id": topic})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [len(consumer.poll(60).value()) for _ in values]


def _is_refused(errors):
    said = str(errors).lower()
    return "authentication" in said or "alert" in said or "disconnected" in said


def kafka_python(peer, way, topic, values, password=None):
    """Write and read back, by kafka-python."""
    import kafka
    from kafka import errors
    from kafka.net.compat import KafkaNetClient
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return token_of(peer, COMING[way][2], is_forged=password is not None)

    clients = []  # A producer that is refused forgets to close its own.

    def client(**options):
        clients.append(KafkaNetClient(**options))
        return clients[-1]

    settings = {**python_settings(peer, way, password), "kafka_client": client}
    if way == "token":
        settings["sasl_oauth_token_provider"] = Provider()
    wait = {} if password is None else {"bootstrap_timeout_ms": 3000}
    try:
        with contextlib.closing(kafka.KafkaProducer(**settings, **wait)) as producer:
            for value in values:
                producer.send(topic, value).get(60)
        consumer = kafka.KafkaConsumer(**settings)
        with contextlib.closing(consumer):
            consumer.assign([kafka.TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            return [len(next(consumer).value) for _ in values]
    except errors.KafkaError as error:
        raise Refused(error) from error
    finally:
        for one in clients:
            one.close()


def aiokafka(peer, way, topic, values, password=None):
    """Write and read back, by aiokafka."""
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):
        async def token(self):
            return token_of(peer, COMING[way][2], is_forged=password is not None)

    settings = python_settings(peer, way, password)
    if way == "token":
        settings["sasl_oauth_token_provider"] = Provider()

    async def story():
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            for value in values:
                await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            return [len((await consumer.getone()).value) for _ in values]

    try:
        return asyncio.run(story())
    except KafkaError as error:
        raise Refused(error) from error


@cache
def newer_librdkafka():
    """Return where confluent-kafka has its librdkafka; None: in no file of its own.

    Debian's kcat runs with it, too. Its own, of 2022, sends a nonce in SCRAM that Kafka 4 refuses
    as well, and may not be able to ask an endpoint for tokens.
    """
    files = metadata.files("confluent-kafka") or ()
    found = [file.locate() for file in files if file.name.startswith("librdkafka-")]
    return Path(found[0]) if found else None


def kcat_settings(peer, way, password):
    """Return those of librdkafka; for a token with an endpoint, because kcat has no callback."""
    given = librdkafka_settings(peer, way, password)
    if way != "token":
        return given
    del given["oauth_cb"]
    path, user = "/token" if password is None else FORGED, COMING[way][2]
    return given | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{peer.tokens.url}{path}",
        "sasl.oauthbearer.client.id": user,
        "sasl.oauthbearer.client.secret": SECRETS[user],
    }


def kcat(peer, way, topic, values, password=None):
    """Write and read back, by kcat: each value is a file."""
    program, library = shutil.which("kcat") or shutil.which("kafkacat"), newer_librdkafka()
    if program is None:
        pytest.skip("kcat is not installed")
    if library is None and (way == "token" or way.startswith("scram")):
        pytest.skip("there is no librdkafka for kcat but its own, which may be of 2022")
    given = kcat_settings(peer, way, password)
    options = [part for name, text in given.items() for part in ("-X", f"{name}={text}")]

    def run(*arguments):
        command = [program, *options, "-t", topic, *arguments]
        found = f"{directory}:{library.parent}" if library is not None else ""
        return subprocess.run(
            command,
            env=os.environ | {"LD_LIBRARY_PATH": found},
            capture_output=True,
            text=True,
            timeout=120,
        )

    with tempfile.TemporaryDirectory() as directory:
        if library is not None:
            (Path(directory) / "librdkafka.so.1").symlink_to(library)
        files = [Path(directory) / str(number) for number in range(len(values))]
        for file, value in zip(files, values, strict=True):
            file.write_bytes(value)
        one_by_one = {
            "message.timeout.ms": 60_000 if password is None else 8_000,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": 1,
        }
        more = [part for name, number in one_by_one.items() for part in ("-X", f"{name}={number}")]
        done = run("-P", *more, *map(str, files))
        if done.returncode or "ERROR" in done.stderr or "failed" in done.stderr.lower():
            raise Refused(done.stderr)
        read = run("-C", "-q", "-o", "beginning", "-e", "-f", "%S ")
    return [int(size) for size in read.stdout.split()]


CLIENTS = {
    client.__name__.replace("_", "-"): client
    for client in (confluent_kafka, kafka_python, aiokafka, kcat)
}


@pytest.mark.parametrize("way", COMING)
@pytest.mark.parametrize("client", CLIENTS)
def test_who_may_come_in_writes_and_reads(peer, client, way):
    assert CLIENTS[client](peer, way, f"{client}-{way}", [b"v", b"vv"]) == [1, 2]


@pytest.mark.parametrize("way", COMING)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password_or_certificate_is_refused(peer, client, way):
    with pytest.raises(Refused) as refused:
        CLIENTS[client](peer, way, f"{client}-{way}", [b"v"], password="not this")
    assert "wonder land" not in str(refused.value)


@pytest.mark.parametrize("way", COMING)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_is_denied_is_refused(peer, client, way):
    with pytest.raises(Refused) as refused:
        CLIENTS[client](peer, way, DENIED, [b"v"])
    said = str(refused.value).lower()
    assert "authorization" in said or "not authorized" in said, said


@pytest.mark.parametrize("client", CLIENTS)
def test_who_writes_too_much_waits(peer, client):
    began = time.monotonic()
    sizes = CLIENTS[client](peer, "plain", f"{client}-throttled", [*BURST, b"v"])
    assert sizes == [400_000, 400_000, 400_000, 1]
    assert time.monotonic() - began > THROTTLED_SECONDS
