"""``ottla cluster`` against Ottla, and the same words against Apache Kafka."""

import json
import subprocess
import sys
import time

import pytest

from tools.ottla_peer import OttlaPeer

PATIENCE_SECONDS = 60


def start(bootstrap, *arguments):
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "cluster", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, "OTTLA_BOOTSTRAP": bootstrap},
    )


def run(bootstrap, *arguments):
    """Run a command; return (exit code, standard output, standard error)."""
    out, err = (process := start(bootstrap, *arguments)).communicate(timeout=PATIENCE_SECONDS)
    assert b"Traceback" not in err, err.decode()
    return process.returncode, out.decode(), err.decode()


def shown(bootstrap, *arguments):
    code, out, err = run(bootstrap, *arguments, "-o", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def bootstrap(request, tmp_path_factory):
    if request.param == "ottla":
        peer = OttlaPeer(tmp_path_factory.mktemp("cluster") / "data", {})
    else:
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer

        peer = KafkaPeer(tmp_path_factory.mktemp("cluster") / "kafka", {})
    with peer:
        peer.start()
        environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
        environment["OTTLA_BOOTSTRAP"] = peer.bootstrap
        create = [sys.executable, "-m", "ottla", "topic", "create", "orders", "-p", "3"]
        subprocess.run(create, check=True, env=environment, timeout=60, capture_output=True)
        yield peer.bootstrap


def test_what_a_cluster_is_made_of(bootstrap):
    facts = shown(bootstrap, "info")
    assert (facts["brokers"], facts["topics"], facts["partitions_in_trouble"]) == (1, 1, 0)
    (broker,) = shown(bootstrap, "brokers")
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert isinstance(broker["port"], int)
    assert broker["leads"] == broker["replicas"] == facts["partitions"]
    assert run(bootstrap, "info", "--no-header")[1].split("\t")[0] == facts["cluster_id"]


def test_which_requests_a_broker_takes(bootstrap):
    (broker,) = shown(bootstrap, "brokers")
    rows = shown(bootstrap, "apis", "--broker", str(broker["broker_id"]))
    produce = next(row for row in rows if row["api"] == "PRODUCE")
    assert (produce["api_id"], produce["last"] >= 13) == (0, True)
    code, _, err = run(bootstrap, "apis", "--broker", "77")
    assert (code, "there is no broker 77" in err) == (5, True)


def test_what_lies_on_its_disks(bootstrap):
    (row,) = shown(bootstrap, "logdirs")
    assert row["partitions"] >= 3
    assert 0 < row["free_bytes"] <= row["total_bytes"]
    assert row["note"] == ""


def test_a_healthy_cluster_is_told(bootstrap):
    code, out, err = run(bootstrap, "health", "--no-header")
    assert (code, out) == (0, "")
    assert "healthy: " in err


def test_waiting_for_what_is_there_takes_no_time(bootstrap):
    assert run(bootstrap, "wait", "--topic", "orders") == (0, "", "")


def test_waiting_ends_in_time_and_says_what_is_missing(bootstrap):
    code, out, err = run(bootstrap, "wait", "--topic", "orders", "--topic", "nono", "--for", "1s")
    assert (code, out) == (5, "")
    assert "not ready within 1s" in err
    assert "no topic nono" in err
    code, _, err = run("127.0.0.1:1", "wait", "--for", "300ms")
    assert (code, "nothing listens" in err) == (3, True)
    assert run(bootstrap, "wait", "--for", "soon")[0] == 2


def test_a_cluster_that_comes_later_is_waited_for(tmp_path):
    with OttlaPeer(tmp_path / "first") as peer:
        peer.start()
        port = peer.port
    waiting = start(f"127.0.0.1:{port}", "wait", "--for", "60s")
    try:
        assert b"waiting: nothing listens" in waiting.stderr.readline()
        assert waiting.poll() is None
        with OttlaPeer(tmp_path / "second", port=port) as peer:
            peer.start()
            began = time.monotonic()
            assert waiting.wait(PATIENCE_SECONDS) == 0
            assert time.monotonic() - began < PATIENCE_SECONDS / 2
    finally:
        waiting.kill()
        waiting.communicate()


def test_partitions_in_trouble_are_named():
    from ottla.cli.cluster import _troubles
    from ottla.client.wire.view import PartitionView, TopicView
    from ottla.errors import ErrorCode
    from ottla.ids import NULL_TOPIC_ID

    partitions = {
        0: PartitionView(0, 1, 0, (1, 2, 3), (3, 1, 2), ErrorCode.NONE),
        1: PartitionView(1, 1, 0, (1, 2, 3), (1,), ErrorCode.NONE),
        2: PartitionView(2, -1, 0, (1, 2), (2,), ErrorCode.LEADER_NOT_AVAILABLE),
    }
    topic = TopicView("t", NULL_TOPIC_ID, False, ErrorCode.NONE, partitions)
    assert [(row["partition"], row["what"]) for row in _troubles(topic)] == [
        (1, "out of sync: 2, 3"),
        (2, "no leader"),
    ]
