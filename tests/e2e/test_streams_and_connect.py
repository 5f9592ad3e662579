"""Kafka Streams and Kafka Connect, unchanged, from Maven's jars: exactly once over kills.

``--target kafka`` asks Apache Kafka the same.
"""

import collections
import contextlib
import json
import os
import random
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

LINES = 6_000
PARTITIONS = 4
OPTIONS = {"group.initial.rebalance.delay.ms": 0}
WORDS = [f"word{number}" for number in range(300)]
PROGRAM = Path(__file__).with_name("WordCount.java")
NEEDED = "no javac on the PATH: `java WordCount.java` needs a JDK, not only a JRE"
QUICK = (
    *("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
CONNECTORS = {
    "in": {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector"},
    "out": {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"},
}
WORKER = {
    "plugin.discovery": "service_load",  # starts sooner than a scan of all jars
    "offset.flush.interval.ms": 500,
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
# Other people's code, other people's warnings.
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def broker(request, target_kind):
    started = request.getfixturevalue(f"{target_kind}_server_factory")(OPTIONS)
    started._asked_port = started.port  # Its clients know no other.
    return started


class Application:
    """A Java program of its own process, which may be killed and started again."""

    def __init__(self, jars, log, *arguments):
        self.command = ["java", *QUICK, "-cp", f"{jars}/*", *map(str, arguments)]
        self.log = log
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill9(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def check(self):
        """Raise when the program has ended by itself."""
        assert self.process.poll() is None, self.text()[-6000:]


@pytest.fixture
def start_application(application_libs, tmp_path):
    """Start Java programs of a test's own: ``start_application("name", argument, ...)``."""
    with contextlib.ExitStack() as stack:

        def start(name, *arguments):
            made = Application(application_libs, tmp_path / f"{name}.log", *arguments)
            stack.callback(made.kill9)
            made.start()
            return made

        yield start


def wait_for(condition, application, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        application.check()
        assert time.monotonic() < deadline, application.text()[-6000:]
        time.sleep(0.1)


def create(broker, *topics):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        made.result(30)


def produce(broker, topic, lines):
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for number, line in enumerate(lines):
        producer.produce(topic, line.encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


class Counts:
    """What a committed reader of "counts" knows: of each word, every count in order."""

    def __init__(self, broker):
        from confluent_kafka import Consumer, TopicPartition

        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition("counts", one, 0) for one in range(PARTITIONS)])
        self.seen = collections.defaultdict(list)
        self.total = 0
        """The sum of the last counts: how many words are counted for good."""

    def poll(self, seconds=0.2):
        for message in self.consumer.consume(5_000, seconds):
            if message.error() is None:
                seen = self.seen[message.key().decode()]
                count = int(message.value())
                self.total += count - (seen[-1] if seen else 0)
                seen.append(count)
        return self.total


def written(broker):
    """Return how many offsets of "counts" are taken, committed or not."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = {TopicPartition("counts", one): OffsetSpec.latest() for one in range(PARTITIONS)}
    told = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return sum(one.result(30).offset for one in told.values())


def test_streams_counts_words_exactly_once_over_kills(broker, start_application, tmp_path):
    if shutil.which("javac") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NEEDED)
    random_words = random.Random(5)
    lines = [" ".join(random_words.choices(WORDS, k=5)) for _ in range(LINES)]
    expected = collections.Counter(word for line in lines for word in line.split())
    create(broker, "lines", "counts")
    counts = Counts(broker)
    app = start_application("streams", PROGRAM, broker.bootstrap, tmp_path / "state")
    quarter = LINES // 4

    def counted(part):
        """Wait until more than ``part`` quarters of all words are counted for good."""
        wait_for(lambda: counts.poll() > part * quarter * 5, app)

    produce(broker, "lines", lines[:quarter])
    counted(0)
    before = written(broker)
    produce(broker, "lines", lines[quarter : 2 * quarter])
    wait_for(lambda: written(broker) > before, app)
    app.kill9()  # with a transaction open that nobody will end
    app.start()
    counted(1)
    produce(broker, "lines", lines[2 * quarter : 3 * quarter])
    broker.kill9()
    broker.start()
    counted(2)
    produce(broker, "lines", lines[3 * quarter :])
    broker.kill9()
    broker.start()
    wait_for(lambda: counts.poll() >= LINES * 5, app)
    app.stop()
    counts.poll(1.0)
    assert {word: seen[-1] for word, seen in counts.seen.items()} == expected
    # Nothing was counted twice, and nothing was shown that a kill took back.
    assert all(seen == sorted(set(seen)) for seen in counts.seen.values())
    counts.consumer.close()


def properties(path, values):
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def files(tmp_path):
    """Return the file to read, the file to write, and both connectors' options."""
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.touch()
    options = {
        "in": CONNECTORS["in"] | {"file": source, "topic": "copied", "tasks.max": 1},
        "out": CONNECTORS["out"] | {"file": sink, "topics": "copied", "tasks.max": 1},
    }
    return source, sink, options


def append(path, numbers):
    # The source connector's position counts characters where it means bytes: ASCII only.
    with path.open("a", encoding="ascii") as file:
        file.writelines(f"line {number}\n" for number in numbers)


def is_copied(source, sink):
    return sink.exists() and sink.read_bytes() == source.read_bytes()


def test_connect_standalone_copies_a_file_over_restarts(broker, start_application, tmp_path):
    source, sink, connectors = files(tmp_path)
    worker = properties(
        tmp_path / "worker.properties",
        WORKER
        | {
            "bootstrap.servers": broker.bootstrap,
            "offset.storage.file.filename": tmp_path / "offsets",
            "listeners": "http://127.0.0.1:0",
        },
    )
    both = [
        properties(tmp_path / f"{name}.properties", {"name": name} | options)
        for name, options in connectors.items()
    ]
    append(source, range(2_000))
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    app = start_application("standalone", program, worker, *both)
    wait_for(lambda: is_copied(source, sink), app)
    app.stop()
    append(source, range(2_000, 4_000))
    app.start()
    wait_for(lambda: is_copied(source, sink), app)
    broker.kill9()
    broker.start()
    append(source, range(4_000, 5_000))
    wait_for(lambda: is_copied(source, sink), app)
    app.stop()


def rest(port, method, path, body=None):
    """Ask Connect's REST interface; None while it cannot answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"{}")
    except (urllib.error.URLError, OSError):
        return None


def test_connect_distributed_copies_a_file_exactly_once(broker, start_application, tmp_path):
    from tools.kafka_peer import free_port

    port = free_port()
    source, sink, connectors = files(tmp_path)
    worker = properties(
        tmp_path / "worker.properties",
        WORKER
        | {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "connect",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": 3,
            "status.storage.topic": "connect-status",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": 0,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "listeners": f"http://127.0.0.1:{port}",
        }
        | {f"{topic}.storage.replication.factor": 1 for topic in ("config", "offset", "status")},
    )
    append(source, range(2_000))
    program = "org.apache.kafka.connect.cli.ConnectDistributed"
    app = start_application("distributed", program, worker)
    for name, options in connectors.items():
        given = {key: str(value) for key, value in options.items()}
        wait_for(lambda: rest(port, "PUT", f"/connectors/{name}/config", given), app)  # noqa: B023
    wait_for(lambda: is_copied(source, sink), app)
    # The connectors and what they have read are in Ottla's compacted topics: a worker that starts
    # again knows both.
    app.stop()
    append(source, range(2_000, 4_000))
    app.start()
    wait_for(lambda: is_copied(source, sink), app)
    app.stop()
