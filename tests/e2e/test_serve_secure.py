"""``ottla serve --secure`` as a new user tries it: one command, then each client by its file."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys

import pytest

from tests.certificates import certificates
from tools.ottla_peer import ROOT, OttlaPeer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ENVIRONMENT = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
LAST_LINE = "ottla consume"


class Secured:
    """``ottla serve --secure`` in a directory, as a person starts it."""

    def __init__(self, directory):
        self.directory = directory
        self.process = None
        self.said = ""

    def command(self, *arguments):
        return [sys.executable, "-m", "ottla", *arguments]

    def start(self, *arguments):
        with (self.directory / "errors").open("ab") as errors:  # An unread pipe would fill up.
            self.process = subprocess.Popen(
                self.command("serve", "--secure", "tls", "--port", "0", *arguments),
                cwd=self.directory,
                env=ENVIRONMENT,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if LAST_LINE in line:
                break
        self.said = "".join(lines)
        return self

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode

    def ottla(self, *arguments, text=""):
        """Run a command in the same directory; return (exit code, stdout, stderr)."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=ENVIRONMENT,
            input=text,
            text=True,
            capture_output=True,
            timeout=40,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def admin(self, *arguments, text=""):
        return self.ottla(*arguments, "--command-config", "tls/java.properties", text=text)

    def settings(self, name):
        return json.loads((self.directory / "tls" / name).read_text())


@pytest.fixture(scope="module")
def secured(request, tmp_path_factory):
    certificates()  # Skips where there is no openssl.
    broker = Secured(tmp_path_factory.mktemp("tour"))
    nodes = request.config.getoption("--nodes")
    broker.start(*(() if nodes == 1 else ("--nodes", str(nodes))))
    yield broker
    assert broker.stop() == 0


def test_three_nodes_are_secured_by_the_same_word(tmp_path):
    """Transactions, whose parts are on different nodes, and a group, of two clients."""
    import kafka
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    certificates()
    broker = Secured(tmp_path).start("--nodes", "3")
    settings = broker.settings("librdkafka.json")
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("paid", 6, 1)])["paid"].result(30)
    assert len(admin.list_topics(timeout=30).brokers) == 3
    for name in ("a", "b", "c"):
        producer = Producer({**settings, "transactional.id": name})
        producer.init_transactions(30)
        for is_commit in (True, False):
            producer.begin_transaction()
            for index in range(6):
                producer.produce("paid", str(is_commit), partition=index)
            (producer.commit_transaction if is_commit else producer.abort_transaction)(30)
        del producer
    given = broker.settings("kafka-python.json")
    more = {"group_id": "g", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = kafka.KafkaConsumer("paid", **given, **more, consumer_timeout_ms=5000)
    with contextlib.closing(consumer):
        assert [message.value for message in consumer] == [b"True"] * 18
    del admin
    assert broker.stop() == 0


def test_the_first_commands_are_told_and_do_what_they_say(secured):
    assert re.search(r"Kafka +127\.0\.0\.1:\d+ +SASL_SSL \(users log in; encrypted\)", secured.said)
    typed = re.findall(r"(?:Try +|^ +)((?:echo|ottla) .*)$", secured.said, re.MULTILINE)
    assert len(typed) == 2
    python = f"'{sys.executable}' -m ottla"
    for line, shown in zip(typed, ("created topic hello", "hello"), strict=True):
        done = subprocess.run(
            line.replace("ottla ", f"{python} ", 1),
            shell=True,
            cwd=secured.directory,
            env=ENVIRONMENT,
            text=True,
            capture_output=True,
            timeout=40,
        )
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout + done.stderr


def test_confluent_kafka(secured):
    from confluent_kafka import Consumer, Producer

    told = []
    producer = Producer(secured.settings("librdkafka.json"))
    producer.produce("by-librdkafka", b"value", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert told == [None]
    more = {"group.id": "tour", "auto.offset.reset": "earliest"}
    with contextlib.closing(Consumer({**secured.settings("librdkafka.json"), **more})) as consumer:
        consumer.subscribe(["by-librdkafka"])
        assert consumer.poll(30).value() == b"value"


def test_kafka_python(secured):
    import kafka

    given = secured.settings("kafka-python.json")
    with contextlib.closing(kafka.KafkaProducer(**given)) as producer:
        assert producer.send("by-kafka-python", b"value").get(30).offset == 0
    more = {"group_id": "tour", "auto_offset_reset": "earliest"}
    consumer = kafka.KafkaConsumer("by-kafka-python", **given, **more)
    with contextlib.closing(consumer):
        assert next(consumer).value == b"value"


def test_aiokafka(secured):
    import aiokafka

    trust = ssl.create_default_context(cafile=secured.directory / "tls" / "ca.pem")
    given = {**secured.settings("aiokafka.json"), "ssl_context": trust}

    async def run():
        async with aiokafka.AIOKafkaProducer(**given) as producer:
            assert (await producer.send_and_wait("by-aiokafka", b"value")).offset == 0
        more = {"group_id": "tour", "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer("by-aiokafka", **given, **more) as consumer:
            assert (await consumer.getone()).value == b"value"

    asyncio.run(run())


def test_kcat(secured):
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed")
    told = subprocess.run([program, "-V"], text=True, capture_output=True).stdout
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", told)
    if version is None or tuple(map(int, version.groups())) < (2, 6, 1):
        pytest.skip("its librdkafka sends a wrong nonce in SCRAM, which Kafka 4 refuses, too")
    first = (program, "-F", str(secured.directory / "tls" / "librdkafka.conf"), "-q")

    def run(*arguments, text=""):
        done = subprocess.run(
            [*first, *arguments], input=text, text=True, capture_output=True, timeout=40
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-P", "-t", "by-kcat", text="value\n")
    assert run("-C", "-t", "by-kcat", "-e", "-o", "beginning") == "value\n"


@pytest.mark.kafka
def test_kafkas_own_tools(secured, kafka_tool):
    path = secured.directory / "tls" / "java.properties"
    bootstrap = secured.settings("librdkafka.json")["bootstrap.servers"]
    common = ("--bootstrap-server", bootstrap, "--command-config", path)
    kafka_tool("org.apache.kafka.tools.TopicCommand", *common, "--create", "--topic", "by-java")
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer", *common, "--topic", "by-java", text="value\n"
    )
    read = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*common, "--topic", "by-java", "--from-beginning", "--max-messages", 1),
    )
    assert "value" in read.splitlines()
    added = kafka_tool(
        "org.apache.kafka.tools.AclCommand",
        *(*common, "--add", "--allow-principal", "User:java", "--operation", "Read"),
        *("--topic", "by-java"),
    )
    assert "principal=User:java" in added


def test_another_user_may_do_what_an_acl_says_and_nothing_else(secured):
    assert secured.admin("user", "set", "alice", text="wonder land\n")[0] == 0
    alice = ("-X", "sasl.username=alice", "-X", "sasl.password=wonder land")
    config = (secured.directory / "tls" / "librdkafka.conf").read_text()
    (secured.directory / "alice.conf").write_text(config)
    command = ("produce", "orders", "--command-config", "alice.conf", *alice)
    code, _, err = secured.ottla(*command, text="one\n")
    assert code == 4, err
    assert secured.admin("topic", "create", "orders")[0] == 0
    grant = ("acl", "add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert secured.admin(*grant)[0] == 0
    code, _, err = secured.ottla(*command, text="one\n")
    assert code == 0, err
    wrong = ("topic", "list", "--command-config", "alice.conf", *alice[:3], "sasl.password=no")
    code, _, err = secured.ottla(*wrong)
    assert code == 4
    assert "Authentication failed" in err


@pytest.mark.spark
@pytest.mark.xdist_group("spark")  # one session, in one worker
def test_spark_reads_writes_and_exports(secured, spark, tmp_path):
    from ottla import spark as ottla_spark

    options = secured.settings("spark.json")
    assert secured.admin("topic", "create", "by-spark", "-p", "2")[0] == 0
    rows = spark.createDataFrame([(f"value {number}",) for number in range(20)], "value string")
    rows.write.format("ottla").mode("append").options(**options, topic="by-spark").save()
    frame = spark.read.format("ottla").options(**options, subscribe="by-spark").load()
    wanted = sorted(f"value {number}".encode() for number in range(20))
    assert sorted(bytes(row.value) for row in frame.select("value").collect()) == wanted
    stream = spark.readStream.format("ottla").options(**options, subscribe="by-spark")
    stream = stream.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.trigger(availableNow=True).start(str(tmp_path / "table"))
    assert query.awaitTermination(120)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert sorted(bytes(row.value) for row in table.select("value").collect()) == wanted
    exported = ottla_spark.to_parquet(
        "by-spark",
        str(tmp_path / "export"),
        bootstrap=options["kafka.bootstrap.servers"],
        options=options,
        spark=spark,
    )
    assert exported.rows == 20


def test_a_second_start_keeps_keys_and_password_and_follows_the_port(tmp_path):
    certificates()
    broker = Secured(tmp_path).start()
    assert "(new)" in broker.said
    kept = {
        name: (tmp_path / "tls" / name).read_bytes()
        for name in ("ca.key", "ca.pem", "server.pem", "password")
    }
    assert broker.admin("topic", "create", "orders")[0] == 0
    assert broker.stop() == 0
    broker.start()
    assert "tls (as it was)" in broker.said
    code, out, err = broker.admin("topic", "list", "-o", "json")
    assert (code, [each["name"] for each in json.loads(out)]) == (0, ["orders"]), err
    assert broker.stop() == 0
    assert kept == {name: (tmp_path / "tls" / name).read_bytes() for name in kept}


def test_data_of_another_directory_are_told_with_the_way_out(tmp_path):
    certificates()
    broker = Secured(tmp_path).start()
    assert broker.stop() == 0
    shutil.rmtree(tmp_path / "tls")
    code, _, err = broker.ottla("serve", "--secure", "tls", "--port", "0")
    assert code == 1
    assert "knows the user admin by another password" in err
    way = re.search(
        r"ottla serve --data (\S+), then ottla user set admin --password-file (\S+)", err
    )
    assert way, err
    plain = OttlaPeer(tmp_path / way[1])
    with plain:
        plain.start()
        given = ("user", "set", "admin", "--password-file", way[2], "-b", plain.bootstrap)
        assert broker.ottla(*given)[0] == 0
    broker.start()
    assert broker.admin("topic", "list")[0] == 0
    assert broker.stop() == 0


def test_data_without_users_can_be_secured_later(tmp_path):
    certificates()
    plain = OttlaPeer(tmp_path / "ottla-data")
    with plain:
        plain.start()
    broker = Secured(tmp_path).start()
    assert broker.admin("topic", "list")[0] == 0
    assert broker.stop() == 0


def test_the_password_is_in_no_output(secured):
    password = (secured.directory / "tls" / "password").read_text().strip()
    assert password not in secured.said
    code, out, err = secured.admin("user", "list", "-o", "json")
    assert code == 0
    assert password not in out + err
    assert str(ROOT) not in secured.said
