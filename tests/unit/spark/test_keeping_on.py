"""A query that an accident ended is started again; one that a person has to judge is not."""

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.errors import PySparkException

from ottla.spark.keeping_on import cause, keep_running


class Time:
    now = 0.0

    def __init__(self):
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


class Queries:
    """Each query ends with the next of these texts, after so many seconds; None: it was stopped."""

    def __init__(self, clock, *ends):
        self.clock, self.ends, self.starts = clock, list(ends), 0

    def __call__(self):
        self.starts += 1
        return self

    def awaitTermination(self):  # noqa: N802 - Spark's name
        text, seconds = self.ends.pop(0)
        self.clock.now += seconds
        if text is not None:
            raise PySparkException(text)


ACCIDENT = ("[STREAM_FAILED] x\njava.io.EOFException\n", 1)


def test_an_accident_is_followed_by_another_start():
    clock = Time()
    queries = Queries(clock, ACCIDENT, ACCIDENT, ("connection refused", 100), ACCIDENT, (None, 5))
    keep_running(queries, clock=clock)
    assert queries.starts == 5
    assert clock.pauses == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "ottla.spark.connection.OptionError: option x",
        "ottla.spark.loss.TopicRecreated: t-0: the topic was deleted",
        "ottla.spark.writing.marker.DeliveryError: batch 3",
        "ottla.errors.KafkaError: TOPIC_AUTHORIZATION_FAILED (29)",
        "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY: offsets should be empty on batch 0",
    ],
)
def test_what_a_person_has_to_judge_ends_it(text):
    clock = Time()
    queries = Queries(clock, ACCIDENT, (text, 1), (None, 1))
    with pytest.raises(PySparkException, match=text[:20]):
        keep_running(queries, clock=clock)
    assert queries.starts == 2


def test_accidents_without_end_end_it():
    clock = Time()
    with pytest.raises(PySparkException):
        keep_running(Queries(clock, *[ACCIDENT] * 9), clock=clock, restarts_max=3)
    queries = Queries(clock, *[("x", 2000)] * 9, (None, 1))
    keep_running(queries, clock=clock, restarts_max=3)
    assert queries.starts == 10, "three an hour are fine for ever"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[STREAM_FAILED] x\nottla.errors.KafkaError: NOT (1): y\n=== Plan\n",
            "ottla.errors.KafkaE",
        ),
        ("[X] y\njava.io.EOFException", "a Python process of Spark's has ended without a word"),
        (
            "[STREAM_FAILED] Query [id = x] terminated with exception:  SQLSTATE: XXKST",
            "a Python process of Spark's has ended without a word",
        ),
        ("[STREAM_FAILED] Query ended\nmore", "[STREAM_FAILED] Query ended"),
        ("", "PySparkException"),
    ],
)
def test_the_cause_is_one_line(text, told):
    found = cause(PySparkException(text))
    assert found.startswith(told)
    assert "\n" not in found
