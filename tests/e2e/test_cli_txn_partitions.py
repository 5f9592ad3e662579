"""``ottla txn`` ages, producers and hanging: on Ottla and on Apache Kafka."""

import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.timeout(120)


def test_an_open_transaction_is_seen_in_its_partition_and_is_not_hanging(
    either, ottla, shown, topic_name
):
    assert ottla("topic", "create", topic_name, "-p", "2")[0] == 0
    assert shown("txn", "producers", topic_name) == []
    producer = Producer({"bootstrap.servers": either.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"one", partition=1)
    producer.flush(30)
    (row,) = shown("txn", "producers", f"{topic_name}:1")
    assert (row["open_since_offset"], row["last_sequence"], row["epoch"]) == (0, 0, 0)
    assert row["age_ms"] >= 0
    rows = [row for row in shown("txn", "ages") if row["transactional_id"] == topic_name]
    assert [(row["producer_id"], row["partitions"]) for row in rows] == [
        (shown("txn", "producers", topic_name)[0]["producer_id"], [f"{topic_name}-1"])
    ]
    code, out, err = ottla("txn", "hanging", topic_name, "--open-for", "0s", "--no-header")
    assert (code, out, "no hanging" in err) == (0, "", True)
    producer.commit_transaction(30)
    (row,) = shown("txn", "producers", topic_name)
    assert row["open_since_offset"] is None
    assert topic_name not in {row["transactional_id"] for row in shown("txn", "ages")}
    assert ottla("txn", "hanging")[0] == 0
    assert ottla("txn", "producers", f"{topic_name}x")[0] == 5
    assert ottla("txn", "hanging", "--open-for", "soon")[0] == 2
