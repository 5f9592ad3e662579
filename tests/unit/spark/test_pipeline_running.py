"""What Spark's messages of a run mean."""

import pytest

from ottla.spark.pipelines.failing import explain
from ottla.spark.pipelines.running import Event, read_event, read_progress


@pytest.mark.parametrize(
    ("message", "flow", "state"),
    [
        ("Flow spark_catalog.default.events is QUEUED.", "events", "QUEUED"),
        ("Flow spark_catalog.default.events has COMPLETED.", "events", "COMPLETED"),
        ("Flow 'spark_catalog.default.x' has FAILED more than 0 times ...", "x", "FAILED"),
        ("Run is COMPLETED.", "", "COMPLETED"),
        ("Something else", "", ""),
    ],
)
def test_events(message, flow, state):
    assert read_event(message, 7) == Event(7, flow, state, message)


def test_an_error_loses_its_stack_and_nothing_else():
    error = ValueError("[X] a is wrong\nhint: b\n\nJVM stacktrace:\norg.x.Y\n\tat a.b.C(D.java:1)")
    assert explain(error, ["Flow x has FAILED", "[X] a is wrong\nhint: b"]) == (
        "Flow x has FAILED\n[X] a is wrong\nhint: b"
    )


MARKS = {"epochs": {}, "ids": {}, "version": 1}


def progress(**values):
    values.setdefault("sources", [])
    return read_progress({"name": "spark_catalog.default.f", "batchId": 3, **values})


def test_progress_of_a_stateful_flow():
    found = progress(
        numInputRows=10,
        processedRowsPerSecond=2.5,
        batchDuration=4000,
        stateOperators=[{"numRowsTotal": 4, "memoryUsedBytes": 100}, {"numRowsTotal": 1}],
        sources=[
            {
                "endOffset": {"$ottla": MARKS, "t": {"0": 5, "1": 7}},
                "latestOffset": {"$ottla": MARKS, "t": {"0": 15, "1": 7}},
            }
        ],
    )
    assert found == ("f", 3, 10, 2.5, 10, 5, 100, 4.0)


@pytest.mark.parametrize("sources", [[], [{"endOffset": 3, "latestOffset": 4}]])
def test_a_lag_that_nobody_tells_is_none(sources):
    assert progress(sources=sources).lag is None
