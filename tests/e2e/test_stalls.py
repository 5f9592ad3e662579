"""A broker that stood still for a while: stopped, asleep with its machine, out of memory."""

import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools.wire_client import batch

STALL_SECONDS = 11.0
NOT_READY = (14, 15, 16, 51)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def broker(ottla_server_factory):
    return ottla_server_factory({"group.initial.rebalance.delay.ms": 0})


@pytest.fixture
def stalled(broker):
    """Stop the broker for some seconds; give the answers to what was asked meanwhile."""

    def stalled(*questions):
        broker.process.send_signal(signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(max(len(questions), 1)) as threads:
                asked = [threads.submit(question) for question in questions]
                time.sleep(STALL_SECONDS)
                broker.process.send_signal(signal.SIGCONT)
                return [answer.result(30) for answer in asked]
        finally:
            broker.process.send_signal(signal.SIGCONT)

    return stalled


def patiently(ask, codes=NOT_READY):
    deadline = time.monotonic() + 60
    while True:
        answer = ask()
        if answer["error_code"] not in codes:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.025)


def assert_serves(wire):
    """What a client needs first, and what went with the node's registration."""
    metadata = wire.call("metadata", 12, topics=[])
    assert len(metadata["brokers"]) == 1
    assert metadata["controller_id"] == metadata["brokers"][0]["node_id"]
    asked = {"key_type": 0, "coordinator_keys": ["g"]}
    find = lambda: wire.call("find_coordinator", 4, **asked)["coordinators"][0]  # noqa: E731
    assert patiently(find)["error_code"] == 0
    topic = {"name": f"t-{uuid.uuid4().hex[:8]}", "num_partitions": 1, "replication_factor": 1}
    made = wire.call("create_topics", 7, topics=[topic], timeout=20_000)["topics"][0]
    assert made["error_code"] == 0, made


class Member:
    """A member of a classic group with the shortest session there is."""

    def __init__(self, wire):
        self.wire = wire
        asked = {
            "group_id": "g",
            "session_timeout": 6000,
            "rebalance_timeout": 20_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        self.id = patiently(lambda: wire.call("join_group", 9, **asked))["member_id"]
        joined = wire.call("join_group", 9, member_id=self.id, **asked)
        assert joined["error_code"] == 0, joined
        self.generation = joined["generation_id"]
        assigned = [{"member_id": self.id, "assignment": b"all"}]
        synced = wire.call(
            "sync_group",
            5,
            group_id="g",
            member_id=self.id,
            generation_id=self.generation,
            assignments=assigned,
            protocol_type="consumer",
            protocol_name="range",
        )
        assert synced["error_code"] == 0, synced

    def heartbeat(self):
        asked = {"group_id": "g", "member_id": self.id, "generation_id": self.generation}
        return self.wire.call("heartbeat", 4, **asked)["error_code"]


class Transaction:
    """A transactional producer with an open transaction of few seconds."""

    def __init__(self, wire, topic):
        self.wire, self.name = wire, f"x-{uuid.uuid4().hex[:8]}"
        find = {"key_type": 1, "coordinator_keys": [self.name]}
        patiently(lambda: wire.call("find_coordinator", 4, **find)["coordinators"][0])
        asked = {
            "transactional_id": self.name,
            "transaction_timeout": 5000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        got = patiently(lambda: wire.call("init_producer_id", 4, **asked))
        assert got["error_code"] == 0, got
        self.producer = {"producer_id": got["producer_id"], "producer_epoch": got["producer_epoch"]}
        added = wire.call(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=got["producer_id"],
            v3_and_below_producer_epoch=got["producer_epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        part = added["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
        assert part["partition_error_code"] == 0, added
        records = batch(attributes=0x10, base_sequence=0, **self.producer)
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        asked = {"transactional_id": self.name, "acks": -1, "timeout": 5000, "topic_data": topics}
        produced = wire.call("produce", 9, **asked)
        assert produced["responses"][0]["partition_responses"][0]["error_code"] == 0, produced

    def commit(self):
        asked = {"transactional_id": self.name, "committed": True, **self.producer}
        return self.wire.call("end_txn", 3, **asked)["error_code"]


def test_a_node_that_stood_still_is_in_its_cluster_and_so_are_its_members(broker, connect, stalled):
    wires = [connect(broker) for _ in range(3)]
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    wires[0].call("create_topics", 7, topics=[topic], timeout=20_000)
    assert_serves(wires[0])
    member = Member(wires[1])
    for phase in range(3):
        transaction = Transaction(wires[2], "t")
        time.sleep(phase)  # No wait for something: another moment between the broker's timers.
        assert member.heartbeat() == 0
        answers = stalled(member.heartbeat, transaction.commit)
        assert answers == [0, 0], "what was sent in time was read too late"
        assert_serves(wires[0])
    log = broker.log_text()
    assert "Traceback" not in log
    assert "joins again" not in log, "its session was never in danger"
