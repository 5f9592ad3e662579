"""One Spark session for every end-to-end test that wants one: its start costs more than they do."""

import pytest


@pytest.fixture(scope="session")
def spark():
    """A session of ``ottla.spark.session`` that says nothing."""
    pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
    from ottla.spark import session

    confs = {"spark.sql.session.timeZone": "UTC"}
    started = session("tests", master="local[2]", confs=confs, log_level="off")
    yield started
    started.stop()
