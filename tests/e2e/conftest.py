"""What end-to-end tests share because its start costs more than they do: Spark, Apache Kafka."""

import json
from functools import partial

import pytest

from tests.commands import run_command


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of ``ottla.spark.session`` that says nothing, and can run pipelines."""
    pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
    from ottla.spark import session
    from ottla.spark.pipelines.engine import SERVER_CONFS, TOKEN

    confs = {
        **SERVER_CONFS,
        TOKEN: "of the tests",
        # With it ADD JAR, which brings Spark's own connector, would be for Connect's sessions only.
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    started = session("tests", master="local[2]", confs=confs, log_level="off")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka_server(kafka_libs, tmp_path_factory):
    """One Apache Kafka for all tests that only add topics and groups of their own to it."""
    from tools.kafka_peer import KafkaPeer

    with KafkaPeer(tmp_path_factory.mktemp("kafka") / "data", {}) as peer:
        peer.start()
        yield peer


@pytest.fixture(params=["ottla", "kafka"])
def either(request):
    """Ottla, and then Apache Kafka: the same commands say the same of both."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def ottla(either):
    """Run a command; returns (exit code, stdout, stderr)."""
    return partial(run_command, either.bootstrap)


@pytest.fixture
def shown(ottla):
    """Run a command that must succeed; returns what it says as JSON."""

    def run(*arguments):
        code, out, err = ottla(*arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture(scope="session")
def task_peers(kafka_libs, tmp_path_factory):
    """An Ottla and a Kafka, both with an authorizer, users, and two log directories."""
    from tests.cli_tasks import made_peer
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    made = {}
    base = tmp_path_factory.mktemp("tasks")
    for name, kind in (("ottla", OttlaPeer), ("kafka", KafkaPeer)):
        data = base / name
        made[name] = made_peer(kind, data)
    with made["kafka"], made["ottla"]:
        for peer in made.values():
            peer.start()
        yield made


@pytest.fixture(scope="session")
def task_server():
    from tests.command_server import CommandServer

    with CommandServer() as running:
        yield running


@pytest.fixture
def both(task_peers, task_server):
    """Do the same with both clusters: ``both(task)`` returns the one answer of ``task(asked)``."""

    from tests.cli_tasks import Asked, assert_same

    def do(task):
        answers = {kind: task(Asked(kind, peer, task_server)) for kind, peer in task_peers.items()}
        assert_same(answers["ottla"], answers["kafka"])
        return answers["ottla"]

    return do


@pytest.fixture
def name():
    """A name that no other test uses."""
    import uuid

    return f"t{uuid.uuid4().hex[:8]}"
