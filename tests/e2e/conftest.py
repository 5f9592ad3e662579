"""One Spark session for every end-to-end test that wants one: its start costs more than they do."""

import pytest


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
