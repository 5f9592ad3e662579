"""``ottla txn`` as a person or a script types it, beside a real transactional producer."""

import json
from functools import partial

import pytest
from confluent_kafka import KafkaException, Producer

from tests.commands import run_command
from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with OttlaPeer(tmp_path_factory.mktemp("txn") / "data", {}) as peer:
        peer.start()
        yield peer


@pytest.fixture
def ottla(broker):
    """Run a command; returns (exit code, stdout, stderr)."""
    return partial(run_command, broker.bootstrap)


def producer(broker, name):
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    made.init_transactions(30)
    return made


def test_an_open_transaction_is_found_described_and_aborted(broker, ottla, topic_name):
    assert ottla("topic", "create", topic_name, "-p", "1")[0] == 0
    held = producer(broker, "billing")
    held.begin_transaction()
    held.produce(topic_name, b"never seen", partition=0)
    held.flush(30)
    code, out, err = ottla("txn", "list", "--state", "Ongoing", "-o", "json")
    assert code == 0, err
    (listed,) = json.loads(out)
    assert (listed["transactional_id"], listed["state"]) == ("billing", "Ongoing")
    long_open = json.loads(ottla("txn", "list", "--open-for", "1h", "-o", "json")[1])
    assert "billing" not in [each["transactional_id"] for each in long_open]
    (row,) = json.loads(ottla("txn", "describe", "billing", "-o", "json")[1])
    assert row["partitions"] == [f"{topic_name}-0"]
    assert row["producer_id"] == listed["producer_id"]
    assert row["started_ms"] > 0

    code, out, err = ottla("txn", "abort", "billing", "--dry-run")
    assert (code, out) == (0, "")
    assert "1 partition" in err
    code, _, err = ottla("txn", "abort", "billing")
    assert code != 0, "nobody to ask"
    assert "--yes" in err
    code, out, err = ottla("txn", "abort", "billing", "--yes")
    assert (code, out) == (0, "aborted billing\n"), err
    with pytest.raises(KafkaException):
        held.commit_transaction(30)
    code, _, err = ottla("txn", "abort", "billing", "--yes")
    assert code != 0
    assert "no open transaction" in err
    code, out, err = ottla("consume", topic_name, "--read-committed", "--from", "earliest")
    assert (code, out) == (0, ""), err


def test_an_id_that_is_not_there_is_said_with_its_neighbours(broker, ottla):
    producer(broker, "shipping")
    code, out, err = ottla("txn", "describe", "shippings")
    assert code != 0
    assert out == ""
    assert "did you mean shipping?" in err


def test_a_wrong_duration_is_a_usage_error(ottla):
    code, out, err = ottla("txn", "list", "--open-for", "soon")
    assert (code, out) == (2, "")
    assert "--open-for soon" in err
