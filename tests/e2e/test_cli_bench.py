"""``ottla bench``, on Ottla and on Apache Kafka."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli_tasks import until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topics(ottla):
    """Return the names of the topics that a measurement has left."""

    def names():
        code, out, err = ottla("topic", "list", "-o", "json")
        assert code == 0, err
        return [each["name"] for each in json.loads(out) if each["name"].startswith("ottla-bench-")]

    return names


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_it_measures_writing_and_reading_beside_another_cluster(ottla, either, topics, verb):
    more = ("--for", "200ms", "--size", "100", "--partitions", "2", "--codec", "lz4")
    code, out, err = ottla("bench", verb, *more, "--against", either.bootstrap, "-o", "json")
    assert code == 0, err
    rows = json.loads(out)
    assert [each["cluster"] for each in rows] == [either.bootstrap] * 2
    for row in rows:
        assert row["records"] > 0
        expected = row["records"] * 100 / row["seconds"] / 1e6
        assert row["mb_per_s"] == pytest.approx(expected, rel=0.05, abs=0.02)
    assert "times that of" in err
    assert topics() == []


def test_it_measures_how_long_a_record_takes(shown, topics):
    (row,) = shown("bench", "latency", "--for", "200ms")
    assert row["records"] > 0
    assert 0 < row["ack_p50_ms"] <= row["ack_p99_ms"]
    assert 0 < row["read_p50_ms"] <= row["read_p99_ms"]
    assert topics() == []


def test_what_the_cluster_refuses_ends_it_and_leaves_no_topic(ottla, topics):
    code, out, err = ottla("bench", "produce", "--size", "1000", "-c", "max.message.bytes=500")
    assert (code, out) == (1, "")
    assert "error: " in err
    assert topics() == []
    for wrong in (("--size", "0"), ("--for", "x"), ("-c", "x")):
        assert ottla("bench", "produce", *wrong)[0] == 2


@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_ctrl_c_ends_a_measurement_and_leaves_no_topic(either, topics, verb):
    words = [sys.executable, "-m", "ottla", "bench", verb, "--for", "60s"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, env={**os.environ, "OTTLA_BOOTSTRAP": either.bootstrap}
    ) as measuring:
        until(topics)
        measuring.send_signal(signal.SIGINT)
        assert measuring.wait(60) == 130
        assert measuring.stderr.read() == b""
    until(lambda: not topics())
