"""The metadata was lost, and with it all configs: no record and no offset goes because of that."""

import json
import time

import pytest

from tests.commands import ottla
from tools.nodes_peer import NodesPeer
from tools.ottla_peer import OttlaPeer

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
PATIENCE_SECONDS = 60
KEPT = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}


def until(is_so, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def values(peer, topic):
    """Return what is committed, of no partition more than up to its last stable offset."""
    how = ("--from", "earliest", "--read-committed", "-f", "%v\\n")
    return ottla(peer, "consume", topic, *how).split()


def wait_for_values(peer, topic, wanted):
    until(lambda: values(peer, topic) == wanted, lambda: values(peer, topic))


def configs(peer, topic):
    told = json.loads(ottla(peer, "config", "get", f"topic/{topic}", "-o", "json"))
    return {one["key"]: one["value"] for one in told}


def wait_until_empty(peer, topic):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "w", "log_level": 0})

    def is_empty():
        begin, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_SECONDS)
        return begin == end > 0

    until(is_empty, lambda: f"retention leaves {topic} as it is")
    consumer.close()


def wait_for_retention(peer, topic):
    """Return when records of a new topic, with the default configs, are gone."""
    ottla(peer, "topic", "create", topic, "-p", "1")
    ottla(peer, "produce", topic, text="v\n")
    wait_until_empty(peer, topic)


def commit(peer, offset):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "g", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("forever", 0, offset)], asynchronous=False)
    consumer.close()


def committed(peer):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "g", "log_level": 0})
    (found,) = consumer.committed([TopicPartition("forever", 0)], timeout=PATIENCE_SECONDS)
    consumer.close()
    return found.offset


def transactional(peer, name):
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": peer.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 3_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce("forever", name.encode())
    producer.flush(PATIENCE_SECONDS)
    return producer


@pytest.mark.parametrize("nodes", [1, 3])
def test_nothing_goes_that_lost_configs_kept(tmp_path, nodes):
    """Retention took it right after the start; offsets were -1001 after the next one."""
    factor, data = str(nodes), tmp_path / "data"
    options = {
        "log.retention.ms": 1,
        "log.retention.check.interval.ms": 200,
        "offsets.topic.replication.factor": nodes,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.min.isr": min(nodes, 2),
    }
    peer = OttlaPeer(data, options) if nodes == 1 else NodesPeer(data, nodes, options)
    with peer.start():
        for name, config in (("forever", "retention.ms=-1"), ("newest", "cleanup.policy=compact")):
            ottla(peer, "topic", "create", name, "-p", "1", "-r", factor, "-c", config)
        ottla(peer, "produce", "forever", text="0\n1\n2\n")
        ottla(peer, "produce", "newest", "-f", "%k:%v\\n", text="a:0\nb:1\n")
        commit(peer, 2)
        transactional(peer, "whole").commit_transaction(PATIENCE_SECONDS)
        ended = transactional(peer, "open")
        topics = ("__consumer_offsets", "__transaction_state")
        internal = {topic: configs(peer, topic) for topic in topics}
        peer.kill9()
    del ended
    for each in data.glob("metadata.sqlite*"):
        each.unlink()
    for start in (1, 2):
        with peer.start():
            wait_for_retention(peer, f"new{start}")
            assert values(peer, "newest") == ["0", "1"]
            ottla(peer, "produce", "forever", text=f"{start + 2}\n")
            # Only once the transaction that was open is aborted, more than "whole" is shown.
            wait_for_values(peer, "forever", [*"012", "whole", *"34"[:start]])
            assert committed(peer) == 2
            assert {topic: configs(peer, topic) for topic in topics} == internal
            assert configs(peer, "forever") == configs(peer, "newest") == KEPT
            assert peer.log_text().count("all their records are kept") == 1  # Of both starts.
    with peer.start():
        ottla(peer, "config", "unset", "topic/forever", *KEPT)
        wait_until_empty(peer, "forever")  # The default holds again.
