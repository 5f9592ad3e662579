"""Real clients log in with tokens: good ones, bad ones, ones that end amid the work."""

import asyncio
import contextlib
import time
import uuid

import pytest

from ottla.client.asyncio.cluster import Cluster
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from tests.bearer_tokens import AUDIENCE, ISSUER
from tests.certificates import certificates
from tests.token_server import SECRETS, TokenServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
REAUTH_MS = 1500
"""Sessions end so soon."""


@pytest.fixture(scope="module")
def server():
    with TokenServer() as server:
        yield server


def options_of(server):
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connections.max.reauth.ms": REAUTH_MS,
    }


@pytest.fixture(scope="module")
def peer(server, tmp_path_factory):
    from tools.ottla_peer import OttlaPeer

    data = tmp_path_factory.mktemp("tokens") / "data"
    with OttlaPeer(data, options_of(server), protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture(scope="module")
def patient(server, tmp_path_factory):
    """A listener whose sessions last until a test ends them."""
    from tools.ottla_peer import OttlaPeer

    data = tmp_path_factory.mktemp("patient") / "data"
    options = options_of(server) | {"connections.max.reauth.ms": 600_000}
    with OttlaPeer(data, options, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer.secured["SASL_PLAINTEXT"]


@pytest.fixture
def address(peer):
    return peer.secured["SASL_PLAINTEXT"]


def settings_of(address, server, **changes):
    return read_settings(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": SECRETS["alice"],
            **changes,
        }
    )


def pass_time(seconds=2.5 * REAUTH_MS / 1000):
    """Yield until several sessions have ended; the caller asks something each time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        yield


def test_our_clients_renew_their_sessions(patient, server):
    settings = settings_of(patient, server)
    with BlockingClient(settings) as client:
        client.refresh([])
        connection = client.any()
        first = connection._renew_at
        connection._renew_at = 0.0
        client.refresh([])
        assert client.any() is connection, "the same connection all the time"
        assert connection._renew_at > first, "with a new session"

    async def asynchronous():
        async with Cluster(settings) as cluster:
            await cluster.refresh([])
            connection = await cluster.any()
            first = connection._renew_at
            connection._renew_at = 0.0
            await asyncio.gather(*(cluster.refresh([]) for _ in range(5)))
            assert await cluster.any() is connection
            assert connection._renew_at > first

    asyncio.run(asynchronous())


def test_what_waits_for_its_answer_is_answered_before_a_new_session(patient, server):
    """A pipelined Fetch must neither be lost nor get between the two halves of a login."""
    from ottla.client.wire.fetching import FetchLimits, fetch_request, fetch_version_limit
    from ottla.client.wire.view import metadata_request
    from ottla.protocol.messages.fetch import FetchResponse
    from ottla.protocol.messages.metadata import MetadataResponse

    topic = f"t-{uuid.uuid4().hex}"
    with BlockingClient(settings_of(patient, server)) as client:
        client.retrying(lambda: client.look_up([topic], create=True))
        client.refresh([topic])
        connection = client.any()
        asked = {TopicPartition(topic, 0): 0}
        for _ in range(3):
            connection.send(
                fetch_request(client.view, asked, FetchLimits(max_wait_ms=50)),
                FetchResponse,
                highest=fetch_version_limit(client.view, asked),
            )
        connection._renew_at = 0.0
        connection.send(metadata_request([topic]), MetadataResponse)
        assert connection._renew_at > 0
        assert connection.has_answer
        kinds = [type(connection.receive()) for _ in range(4)]
        assert kinds == [FetchResponse] * 3 + [MetadataResponse]


def test_a_renewal_that_is_refused_ends_the_connection_and_all_who_wait(patient, server):
    bob = {"sasl.oauthbearer.client.id": "bob", "sasl.oauthbearer.client.secret": SECRETS["bob"]}

    async def main():
        async with Cluster(settings_of(patient, server)) as cluster:
            await cluster.refresh([])
            connection = await cluster.any()
            connection._settings = settings_of(patient, server, **bob)
            connection._renew_at = 0.0
            calls = [connection.call(*_metadata()) for _ in range(3)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in found] == [ConnectionFailed] * 3
            await cluster.refresh([])
            assert await cluster.any() is not connection

    asyncio.run(main())


def test_who_does_not_log_in_again_is_out(address, server):
    began = time.monotonic()
    with BlockingClient(settings_of(address, server)) as client:
        connection = client.any()
        connection._renew_at = float("inf")
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            _ask_on(connection)
    assert time.monotonic() - began >= REAUTH_MS / 1000


def _metadata():
    from ottla.client.wire.view import metadata_request
    from ottla.protocol.messages.metadata import MetadataResponse

    return metadata_request([]), MetadataResponse


def _ask_on(connection):
    while True:
        connection.call(*_metadata())


@pytest.mark.parametrize(
    "changes", [{"aud": "other"}, {"iss": "other"}, {"kid": "forged"}, {"exp": 1000, "iat": 900}]
)
def test_a_bad_token_is_refused_and_shown_nowhere(address, server, peer, tmp_path, changes):
    token = server.issuer.token(headers={"kid": "first"}, **changes)
    path = tmp_path / "token"
    path.write_text(token)
    texts = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }
    with pytest.raises(KafkaError, match="invalid_token") as refused:
        BlockingClient(read_settings(texts)).refresh([])
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    log = peer.log_text()
    assert not any(part in log for part in token.split("."))


def test_a_new_key_of_the_issuer_is_asked_for(tmp_path):
    from tools.ottla_peer import OttlaPeer

    with TokenServer() as server:
        data = tmp_path / "data"
        with OttlaPeer(data, options_of(server), protocols=("SASL_PLAINTEXT",)) as peer:
            peer.start()
            settings = settings_of(peer.secured["SASL_PLAINTEXT"], server)
            server.issuer.rotate("second", "ES256")
            with pytest.raises(KafkaError, match="invalid_token"):  # and the broker asks for it
                BlockingClient(settings).refresh([])
            while not can_log_in(settings):
                pass
            assert server.asked.count("/keys") == 2


def can_log_in(settings):
    try:
        with BlockingClient(settings) as client:
            client.refresh([])
    except KafkaError:
        return False
    return True


def test_a_start_without_keys_fails_and_says_whence(tmp_path):
    from tools.ottla_peer import OttlaPeer
    from tools.peer import PeerFailed

    with TokenServer() as server:
        server.is_away.set()
        options = options_of(server) | {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 300}
        peer = OttlaPeer(tmp_path / "data", options, protocols=("SASL_PLAINTEXT",))
        with pytest.raises(PeerFailed) as failed:
            peer.start()
    assert f"the keys of {server.url}/keys cannot be had: 127.0.0.1 answers 503" in str(
        failed.value
    )
    assert "Traceback" not in str(failed.value)


def test_without_the_extra_a_start_says_what_to_install(tmp_path, server, monkeypatch):
    from tools.ottla_peer import OttlaPeer
    from tools.peer import PeerFailed

    (tmp_path / "jwt.py").write_text("raise ModuleNotFoundError('none', name='jwt')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peer = OttlaPeer(tmp_path / "data", options_of(server), protocols=("SASL_PLAINTEXT",))
    with pytest.raises(PeerFailed, match=r"pip install 'ottla\[oauth\]'") as failed:
        peer.start()
    assert "Traceback" not in str(failed.value)


# Other people's clients. Each works on for longer than a session lasts.


def test_kafka_python(address, server):
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return server.grant("alice")["access_token"]

    options = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    topic = f"t-{uuid.uuid4().hex}"
    with contextlib.closing(kafka.KafkaProducer(**options)) as producer:
        for count, _ in enumerate(pass_time()):
            assert producer.send(topic, b"value").get(20).offset == count


def test_tokens_over_tls(server, tmp_path):
    """SASL_SSL: our own client, librdkafka, and a client that does not trust the certificate."""
    import confluent_kafka

    from tools.ottla_peer import OttlaPeer

    authority = str(certificates() / "ca.pem")
    options = options_of(server) | {"ssl.keystore.location": str(certificates() / "server.pem")}
    with OttlaPeer(tmp_path / "data", options, protocols=("SASL_SSL",)) as peer:
        peer.start()
        address = peer.secured["SASL_SSL"]
        encrypted = {"security.protocol": "SASL_SSL", "ssl.ca.location": authority}
        with BlockingClient(settings_of(address, server, **encrypted)) as client:
            for _ in pass_time():
                assert client.refresh([]).brokers, "sessions are renewed under TLS, too"
        stranger = encrypted | {"ssl.ca.location": str(certificates() / "other-ca.pem")}
        with pytest.raises(ConnectionFailed, match="certificate was refused"):
            BlockingClient(settings_of(address, server, **stranger)).refresh([])
        bad = encrypted | {"sasl.oauthbearer.client.secret": "wrong"}
        with pytest.raises(KafkaError) as refused:
            BlockingClient(settings_of(address, server, **bad)).refresh([])
        assert "wrong" not in str(refused.value)
        told = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (server.grant("alice")["access_token"], time.time() + 3600),
                **encrypted,
            }
        )
        topic = f"t-{uuid.uuid4().hex}"
        for _ in pass_time():
            producer.produce(topic, b"value", on_delivery=lambda error, _: told.append(error))
            producer.flush(20)
        assert set(told) == {None}
        del producer  # Before the broker goes.


def test_librdkafka(address, server):
    import confluent_kafka

    told = []

    def give(_):
        return server.grant("alice")["access_token"], time.time() + 3600

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": give,
        }
    )
    topic = f"t-{uuid.uuid4().hex}"
    for _ in pass_time():
        producer.produce(topic, b"value", on_delivery=lambda error, _: told.append(error))
        producer.flush(20)
    assert set(told) == {None}


async def test_aiokafka(address, server):
    import aiokafka
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self):
            return server.grant("alice")["access_token"]

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    await producer.start()
    topic = f"t-{uuid.uuid4().hex}"
    for count in range(20):
        assert (await producer.send_and_wait(topic, b"value")).offset == count
    await producer.stop()


@pytest.mark.kafka
@pytest.mark.parametrize("way", ["endpoint", "file"])
def test_kafkas_own_tools(address, server, kafka_tool, tmp_path, monkeypatch, way):
    url = f"{server.url}/token"
    if way == "file":
        token = tmp_path / "token"
        token.write_text(server.grant("alice")["access_token"])
        url = token.as_uri()
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{allowed}.urls={url} {allowed}.files={tmp_path}")
    path = tmp_path / "client.properties"
    path.write_text(
        f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class={HANDLER}
sasl.oauthbearer.token.endpoint.url={url}
sasl.jaas.config={MODULE} required clientId="alice" clientSecret="{SECRETS["alice"]}";
"""
    )
    topic = f"t-{uuid.uuid4().hex}"
    told = kafka_tool(
        *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address),
        *("--command-config", str(path), "--create", "--topic", topic),
    )
    assert f"Created topic {topic}" in told


def test_our_command_line_takes_javas_file(address, server, tmp_path):
    import subprocess
    import sys

    path = tmp_path / "client.properties"
    path.write_text(
        f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class={HANDLER}
sasl.oauthbearer.token.endpoint.url={server.url}/token
sasl.jaas.config={MODULE} required clientId="alice" clientSecret="{SECRETS["alice"]}";
"""
    )
    command = [sys.executable, "-m", "ottla", "topic", "list"]
    done = subprocess.run(
        [*command, "--bootstrap-server", address, "--command-config", str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
