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
