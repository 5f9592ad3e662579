"""Apache Kafka beside Ottla: for comparison, and for its own tools. Needs Java 17 and, once, Maven.

    python tools/kafka_peer.py fetch             bring the jars from Maven Central into the cache
    python tools/kafka_peer.py start DIRECTORY   one fresh KRaft node on a free port, until ^C
    python tools/kafka_peer.py tool CLASS ...    one of Kafka's own command-line classes, such as
                                                 org.apache.kafka.tools.TopicCommand

The cache is $OTTLA_KAFKA_DIR, else ottla/kafka-VERSION in the user's cache directory.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.peer import Peer

VERSION = "4.3.0"
HEAP = "1g"
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For JVMs of seconds to minutes: they never win back the time to compile well."""
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>ottla</groupId><artifactId>kafka-peer</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version>{}</dependency>"""
EXCLUSION = """<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
</exclusions>"""
KAFKA = "org.apache.kafka"
BROKER = ((KAFKA, "kafka_2.13", VERSION), (KAFKA, "kafka-tools", VERSION))
"""Maven's names of the broker and of the command-line classes."""
APPLICATIONS = (
    (KAFKA, "kafka-streams", VERSION),
    (KAFKA, "connect-file", VERSION),
    (KAFKA, "connect-json", VERSION),
    (KAFKA, "connect-runtime", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
"""Programs that run against any broker, and a log for them; their jars are in a directory apart."""
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    (KAFKA, "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""Spark's own Kafka connector, the newest there is, and what it needs beyond Spark's jars."""
AVRO = (("org.apache.spark", "spark-avro_2.13", "4.1.1"),)
"""Spark's ``from_avro``, the newest there is; what decodes is in Spark's own jars."""
LOGGING = (("org.slf4j", "slf4j-simple", "1.7.36"),)
"""Prints the broker's errors: else one that does not start exits without a word."""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{more}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaUnavailable(RuntimeError):
    """Java, Maven or the jars are missing; the message says which."""


def cache_directory() -> Path:
    """Return the directory that has, or will have, the directories of jars."""
    given = os.environ.get("OTTLA_KAFKA_DIR")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ottla" / f"kafka-{VERSION}"


def libraries() -> Path:
    """Return the directory of the broker's jars, fetched when they are not there yet.

    Blocks, for some seconds when it fetches. Raises KafkaUnavailable.
    """
    return _jars("libs", BROKER)


def application_libraries() -> Path:
    """Return the directory of the jars of Kafka Streams and Kafka Connect, as ``libraries`` does.

    Raises KafkaUnavailable.
    """
    return _jars("applications", APPLICATIONS)


def connector_libraries() -> Path:
    """Return the directory of the jars of Spark's Kafka connector, as ``libraries`` does.

    Raises KafkaUnavailable.
    """
    return _jars("spark-connector", CONNECTOR, alone=True)


def logging_libraries() -> Path:
    """Return the directory of the jar that prints what Kafka logs, as ``libraries`` does.

    Raises KafkaUnavailable.
    """
    return _jars("logging", LOGGING, alone=True)


def avro_libraries() -> Path:
    """Return the directory of the jar of Spark's Avro functions, as ``libraries`` does.

    Raises KafkaUnavailable.
    """
    return _jars("spark-avro", AVRO, alone=True)


def _jars(name: str, artifacts: Sequence[tuple[str, str, str]], *, alone: bool = False) -> Path:
    if shutil.which("java") is None:
        raise KafkaUnavailable("no java on the PATH (17 or newer is needed)")
    directory = cache_directory() / name
    witness = directory / f"{artifacts[0][1]}-{artifacts[0][2]}.jar"
    if not witness.exists():
        _fetch(directory, artifacts, witness, alone=alone)
    return directory


def _fetch(
    directory: Path, artifacts: Sequence[tuple[str, str, str]], witness: Path, *, alone: bool
) -> None:
    """Bring the artifacts, and unless ``alone`` all they need, into ``directory``, in one step."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailable(f"no jars in {directory}, and no mvn on the PATH to fetch them")
    directory.parent.mkdir(parents=True, exist_ok=True)
    rest = EXCLUSION if alone else ""
    dependencies = "\n".join(DEPENDENCY.format(*one, rest) for one in artifacts)
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        Path(work, "pom.xml").write_text(POM.format(dependencies=dependencies))
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=libs"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "-Dstyle.color=never", *goal],
            cwd=work,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise KafkaUnavailable(f"mvn failed: {(done.stdout + done.stderr)[-1000:]}")
        with contextlib.suppress(FileExistsError):  # somebody else was faster
            try:
                Path(work, "libs").rename(directory)
            except OSError as error:
                if not witness.exists():
                    raise KafkaUnavailable(f"cannot move the jars to {directory}") from error


def tool_command(class_name: str, *arguments: str, heap: str = "512m") -> list[str]:
    """Return the command line of one of Kafka's own tools."""
    classpath = f"{libraries()}/*"
    options = _given_options() or SHORT_LIVED
    return ["java", f"-Xmx{heap}", *options, "-cp", classpath, class_name, *arguments]


def _given_options() -> list[str]:
    """Return the options that JVMs of tests run with: $OTTLA_KAFKA_JAVA_OPTIONS."""
    return os.environ.get("OTTLA_KAFKA_JAVA_OPTIONS", "").split()


def free_port() -> int:
    """Return a port that is free now, below the ephemeral range, so that no connection takes it."""
    chooser = random.SystemRandom()
    while True:
        port = chooser.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class KafkaPeer(Peer):
    """One Apache Kafka node (broker and controller), with ``options`` as extra properties.

    ``protocols`` (SSL, SASL_PLAINTEXT, SASL_SSL) get listeners of their own, see ``secured``;
    ``users`` (SCRAM's NAME=[name=...,password=...]) are known from the start. ``loggers`` says at
    which level loggers print, by name; the others print errors.
    """

    name = "kafka"

    def __init__(
        self,
        data: Path,
        options: Mapping[str, object] | None = None,
        *,
        protocols: Sequence[str] = (),
        users: Sequence[str] = (),
        loggers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data)
        self.options = dict(options or {})
        self._loggers = dict(loggers or {})
        self.secured = {protocol: f"127.0.0.1:{free_port()}" for protocol in protocols}
        """By protocol, where to bootstrap from."""
        self._users = [argument for user in users for argument in ("--add-scram", user)]

    def start(self, *, timeout_seconds: float = 120.0) -> Peer:
        """Format the directory if it is new, then start as Peer does."""
        if not self.port:
            self.port = free_port()
        more = "".join(f",{protocol}://{address}" for protocol, address in self.secured.items())
        properties = PROPERTIES.format(
            port=self.port, controller_port=free_port(), data=self.data, more=more
        ) + "".join(f"{key}={value}\n" for key, value in self.options.items())
        self._properties_path = self.data.with_name(self.data.name + ".properties")
        self._properties_path.parent.mkdir(parents=True, exist_ok=True)
        self._properties_path.write_text(properties)
        if not self.data.exists():
            formatting = subprocess.run(
                tool_command(
                    "kafka.tools.StorageTool",
                    *("format", "-t", CLUSTER_ID, "-c", str(self._properties_path)),
                    *self._users,
                ),
                capture_output=True,
                text=True,
            )
            if formatting.returncode:
                why = formatting.stdout + formatting.stderr
                raise RuntimeError(f"Kafka could not format {self.data}: {why}")
        begin = time.monotonic()
        super().start(timeout_seconds=timeout_seconds)
        for address in self.secured.values():  # They open one after another.
            self._wait_for_listener(address, begin + timeout_seconds)
        return self

    def _wait_for_listener(self, address: str, deadline: float) -> None:
        host, _, port = address.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                return
            except OSError:
                self._raise_if_over(deadline)
                time.sleep(0.01)

    def command(self) -> Sequence[str]:
        """Return the command line that serves. Without options that are given: as for speed."""
        options = _given_options() or ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", f"-Xms{HEAP}"]
        classpath = ["-cp", f"{libraries()}/*{os.pathsep}{logging_libraries()}/*"]
        logger = "-Dorg.slf4j.simpleLogger"
        logging = [f"{logger}.defaultLogLevel=error", f"{logger}.showDateTime=true"]
        logging.append(f"{logger}.dateTimeFormat=HH:mm:ss.SSS")
        logging += [f"{logger}.log.{name}={level}" for name, level in self._loggers.items()]
        broker = ["kafka.Kafka", str(self._properties_path)]
        return ["java", f"-Xmx{HEAP}", *options, *logging, *classpath, *broker]

    def wait_until_listening(self, deadline: float) -> None:
        """Kafka's log tells of errors only: ApiVersions is asked until it answers."""

    def read_line(self, line: str) -> bool:
        """Nothing to learn from its output."""
        return False


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    match arguments:
        case ["fetch"]:
            print(libraries())
            print(application_libraries())
            print(connector_libraries())
            print(avro_libraries())
        case ["start", directory]:
            with KafkaPeer(Path(directory)) as peer:
                peer.start()
                print(f"kafka {VERSION} pid {peer.pid} {peer.bootstrap}", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()
        case ["tool", class_name, *rest]:
            command = tool_command(class_name, *rest)
            os.execvp(command[0], command)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
