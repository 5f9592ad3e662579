"""Java's own tools over TLS by each way of coming in: let in, refused, denied, throttled.

The same at Ottla and at Apache Kafka. A Java virtual machine takes a second or two to start, so
each administrative tool comes in by one way, and all ways are taken by some.
"""

import os
import re
import subprocess
import uuid

import pytest

from tests.certificates import certificates
from tests.e2e.test_security import JAAS, java_properties
from tests.secured import ALLOWED, COMING, secured_peer, token_of
from tools.kafka_peer import logging_libraries, tool_command

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(300)]

TOOLS = "org.apache.kafka.tools"
LINES = "one\ntwo\n"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
WRONG = r"(?i)authentication failed|invalid credentials|invalid_token|SSL handshake failed"
HUNG_UP = (
    r"post-handshake|certificate_unknown|unknown_ca|disconnected|terminated during authentication"
)
"""TLS 1.3 tells that a certificate does not count after the handshake: it may be a hang-up."""


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def peer(request, tmp_path_factory):
    if request.param == "kafka":
        from tools.kafka_peer import KafkaPeer as Kind

        request.getfixturevalue("kafka_libs")
    else:
        from tools.ottla_peer import OttlaPeer as Kind

    names = [*(f"java-{way}" for way in COMING), "java-throttled"]
    with secured_peer(Kind, tmp_path_factory.mktemp("java") / "data", names) as peer:
        yield peer


def run(tool, *arguments, text="", check=True, **environment):
    """Run one of Java's tools; return what it says and logs."""
    command = tool_command(tool, *map(str, arguments))
    command[command.index("-cp") + 1] += f"{os.pathsep}{logging_libraries()}/*"
    command.insert(1, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0 or not check, said
    return said


@pytest.fixture
def come(peer, kafka_libs, tmp_path):
    """Run one of Java's tools by a way; returns what it says."""

    def come(way, tool, *arguments, wrong=False, client_id="java", **more):
        protocol, mechanism, user, password = COMING[way]
        made = certificates()
        if mechanism is None:
            store = made / ("stranger.pem" if wrong else "client.pem")
            texts = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
        elif way == "token":
            path = tmp_path / "token"
            path.write_text(token_of(peer, user, is_forged=wrong))
            allowed = f"-D{ALLOWED}.urls={path.as_uri()} -D{ALLOWED}.files={tmp_path}"
            more["JAVA_TOOL_OPTIONS"] = allowed
            texts = {
                "sasl.login.callback.handler.class": HANDLER,
                "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
            }
            texts["sasl.jaas.config"] = f"{JAAS}.oauthbearer.OAuthBearerLoginModule required;"
        else:
            module = "plain.PlainLoginModule" if way == "plain" else "scram.ScramLoginModule"
            given = "not this" if wrong else password
            line = f'{JAAS}.{module} required username="{user}" password="{given}";'
            texts = {"sasl.jaas.config": line}
        if mechanism is not None:
            texts["sasl.mechanism"] = mechanism
        texts |= {"client.id": client_id, "max.block.ms": 30_000, "default.api.timeout.ms": 30_000}
        path = java_properties(protocol, texts, made, tmp_path / "client.properties")
        where = ("--bootstrap-server", peer.secured[protocol], "--command-config", path)
        told = run(tool, *where, *arguments, **more)
        assert "wonder land" not in told
        assert "builder" not in told
        return told

    return come


def write(come, way, topic, **more):
    return come(way, f"{TOOLS}.ConsoleProducer", "--topic", topic, text=LINES, **more)


def read(come, way, topic, **more):
    wanted = ("--from-beginning", "--max-messages", 2, "--group", f"g-{uuid.uuid4().hex}")
    return come(way, f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, *wanted, **more)


@pytest.mark.parametrize("way", COMING)
def test_who_may_come_in_writes_and_reads(come, way):
    write(come, way, f"java-{way}")
    assert {"one", "two"} <= set(read(come, way, f"java-{way}").splitlines())


@pytest.mark.parametrize("way", COMING)
def test_a_wrong_password_token_or_certificate_is_refused(come, way):
    said = write(come, way, f"java-{way}", wrong=True, check=False)
    assert re.search(WRONG if way != "certificate" else f"{WRONG}|{HUNG_UP}", said), said


def test_a_topic_that_is_denied_is_refused(come):
    said = write(come, "scram-512", "denied", check=False)
    assert "TopicAuthorizationException" in said, said
    said = read(come, "token", "denied", check=False)
    assert "TopicAuthorizationException" in said, said


def test_who_writes_or_reads_too_much_is_told_to_wait(come):
    """1.2 MB at 0.1 MB a second, of which ten seconds' worth come at once."""
    topic = ("--topic", "java-throttled")
    said = come(
        *("plain", f"{TOOLS}.ProducerPerformance", *topic, "--num-records", 4),
        *("--record-size", 400_000, "--throughput", -1, "--print-metrics"),
    )
    assert 1_000 < longest_ms(said, "produce") < 7_000, said
    said = come(
        *("plain", f"{TOOLS}.ConsumerPerformance", *topic, "--num-records", 4),
        *("--group", "throttled", "--print-metrics", "--fetch-size", 400_000),
        client_id="reader",
    )
    assert 1_000 < longest_ms(said, "fetch") < 7_000, said


def longest_ms(said, what):
    """Return the longest throttle time that the client's metrics tell."""
    found = re.findall(rf"{what}-throttle-time-max:\{{[^}}]*}}\s*:\s*([\d.]+)", said)
    assert found, said
    return max(map(float, found))


def test_topics_by_token_and_password(come):
    tool = f"{TOOLS}.TopicCommand"
    said = come("scram-256", tool, "--create", "--topic", "made", "--partitions", 2)
    assert "Created topic made." in said
    assert "made" in come("token", tool, "--list").split()
    assert "denied" not in come("token", tool, "--list").split()
    said = come("plain", tool, "--create", "--topic", "not-made", check=False)
    assert "Authorization failed" in said, said


def test_acls(come):
    tool = "org.apache.kafka.tools.AclCommand"
    asked = ("--add", "--allow-principal", "User:dan", "--operation", "Read", "--topic", "made")
    assert "principal=User:dan, host=*" in come("scram-512", tool, *asked)
    assert "principal=User:dan" in come("scram-256", tool, "--list", "--topic", "made")
    gone = ("--remove", "--force", *asked[1:])
    come("scram-512", tool, *gone)
    assert "principal=User:dan" not in come("scram-256", tool, "--list", "--topic", "made")
    said = come("certificate", tool, *asked, check=False)
    assert "ClusterAuthorizationException" in said, said


CONFIGS = [
    (
        "users",
        "SCRAM-SHA-256=[iterations=4096,password=a-new-one]",
        "SCRAM-SHA-256=iterations=4096",
    ),
    ("users", "producer_byte_rate=1048576", "producer_byte_rate=1048576.0"),
    ("clients", "request_percentage=50", "request_percentage=50.0"),
    ("ips", "connection_creation_rate=20", "connection_creation_rate=20.0"),
]


@pytest.mark.parametrize(("kind", "given", "told"), CONFIGS)
def test_users_clients_and_addresses(come, kind, given, told):
    tool = "kafka.admin.ConfigCommand"
    name = "192.0.2.7" if kind == "ips" else "erin"
    of = ("--entity-type", kind, "--entity-name", name)
    assert "Completed updating config" in come(
        "scram-256", tool, "--alter", *of, "--add-config", given
    )
    assert told in come("scram-512", tool, "--describe", *of)
    key = given.partition("=")[0]
    come("scram-256", tool, "--alter", *of, "--delete-config", key)
    assert told not in come("scram-512", tool, "--describe", *of)


def test_who_has_no_right_alters_no_quota_and_no_user(come):
    for given in ("producer_byte_rate=1", "SCRAM-SHA-256=[password=x]"):
        said = come(
            *("token", "kafka.admin.ConfigCommand", "--alter", "--entity-type", "users"),
            *("--entity-name", "erin", "--add-config", given),
            check=False,
        )
        assert "ClusterAuthorizationException" in said, said
