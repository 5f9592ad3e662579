"""A broker's whole directory changes hands after kill -9: groups, offsets, an open transaction.

Kafka dies, Ottla goes on and dies, Kafka goes on: members of either protocol send their next
heartbeat as if nothing had been, and a transaction that was open is ended by whoever comes next.
"""

import struct
import time

import pytest

from tools.differential import Play
from tools.wire_client import batch

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 2,
}
PARTITIONS = 4
SUBSCRIPTION = struct.pack(">hih1si", 1, 1, 1, b"t", -1)
TIMEOUT_MS = 300_000


class Clients:
    """Clients that outlive their broker: they know their epochs, generations and producer id."""

    def __init__(self):
        self.play = None
        self.members = {}
        self.epochs = {}

    def call(self, api, version, **fields):
        return self.play.prepare(api, version, **fields)

    def moved_to(self, bootstrap):
        self.close()
        self.play = Play(bootstrap)
        self.play.wait_for_coordinator("modern", "mixed", "simple")
        deadline = time.monotonic() + 60
        while True:
            asked = self.call("find_coordinator", 4, key_type=1, coordinator_keys=["tx"])
            if asked["coordinators"][0]["error_code"] == 0:
                told = self.call("describe_transactions", 0, transactional_ids=["tx"])
                if told["transaction_states"][0]["error_code"] in (0, 105):
                    return
            assert time.monotonic() < deadline, told
            time.sleep(0.1)

    def close(self):
        if self.play is not None:
            self.play.__exit__()

    # Groups.

    def beat(self, group, member, *, owned=None, epoch=None, **fields):
        if owned is not None:
            given = [{"topic_id": self.topic_id, "partitions": owned}] if owned else []
            fields["topic_partitions"] = given
        asked = {"topic_partitions": None, "subscribed_topic_names": None} | fields
        answer = self.call(
            "consumer_group_heartbeat",
            1,
            group_id=group,
            member_id=member,
            member_epoch=self.epochs[member] if epoch is None else epoch,
            **asked,
        )
        assert answer["error_code"] == 0, answer
        self.epochs[member] = answer["member_epoch"]
        return answer

    def subscribe(self, group, member):
        asked = {"rebalance_timeout": TIMEOUT_MS, "subscribed_topic_names": ["t"]}
        return self.beat(group, member, owned=[], epoch=0, **asked)

    def join(self, group, owned=()):
        numbers = struct.pack(f">{len(owned)}i", *owned)
        said = SUBSCRIPTION + struct.pack(">ih1si", 1, 1, b"t", len(owned)) + numbers
        asked = {
            "group_id": group,
            "session_timeout": TIMEOUT_MS,
            "rebalance_timeout": TIMEOUT_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": said}],
            "member_id": self.members.get(group, ("", 0))[0],
        }
        joined = self.call("join_group", 9, **asked)
        if joined["error_code"] == 79:
            joined = self.call("join_group", 9, **asked | {"member_id": joined["member_id"]})
        assert joined["error_code"] == 0, joined
        self.members[group] = joined["member_id"], joined["generation_id"]

    def sync(self, group, owned=()):
        member, generation = self.members[group]
        numbers = struct.pack(f">{len(owned)}i", *owned)
        given = struct.pack(">hih1si", 1, 1, 1, b"t", len(owned)) + numbers
        given += struct.pack(">i", -1)
        synced = self.call(
            "sync_group",
            5,
            group_id=group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": member, "assignment": given}],
        )
        assert synced["error_code"] == 0, synced

    def classic_beat(self, group):
        member, generation = self.members[group]
        asked = {"group_id": group, "member_id": member, "generation_id": generation}
        return self.call("heartbeat", 4, **asked)["error_code"]

    def commit(self, group, member, epoch, offset):
        parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}]
        answer = self.call(
            "offset_commit",
            9,
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[{"name": "t", "partitions": parts}],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    def committed(self, group, *, stable=False):
        topics = [{"name": "t", "partition_indexes": [0]}]
        asked = [{"group_id": group, "topics": topics}]
        answer = self.call("offset_fetch", 8, groups=asked, require_stable=stable)
        part = answer["groups"][0]["topics"][0]["partitions"][0]
        return part["error_code"], part["committed_offset"]

    def told(self):
        described = self.call("consumer_group_describe", 1, group_ids=["modern", "mixed"])
        for group in described["groups"]:
            group["members"].sort(key=lambda member: member["member_id"])
            group["authorized_operations"] = None
        offsets = {group: self.committed(group) for group in ("modern", "mixed", "simple")}
        told = self.call("describe_transactions", 0, transactional_ids=["tx"])
        (transaction,) = told["transaction_states"]
        transaction["topics"].sort(key=lambda topic: topic["topic"])
        return described["groups"], offsets, transaction

    # Transactions.

    def begin(self, value, offset):
        """Leave a transaction open that has written a record and committed an offset."""
        deadline = time.monotonic() + 60
        asked = {"transactional_id": "tx", "transaction_timeout": TIMEOUT_MS}
        while (started := self.call("init_producer_id", 4, **asked))["error_code"] == 14:
            assert time.monotonic() < deadline, started  # Kafka has no ids yet, just started.
            time.sleep(0.1)
        assert started["error_code"] == 0, started
        producer = {key: started[key] for key in ("producer_id", "producer_epoch")}
        self.producer = producer
        added = self.call(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=producer["producer_id"],
            v3_and_below_producer_epoch=producer["producer_epoch"],
            v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )
        part = added["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
        assert part["partition_error_code"] == 0
        data = batch([value], attributes=0x10, base_sequence=0, **producer)
        written = self.call(
            "produce",
            9,
            transactional_id="tx",
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": data}]}],
        )
        assert written["responses"][0]["partition_responses"][0]["error_code"] == 0
        joined = self.call(
            "add_offsets_to_txn", 3, transactional_id="tx", group_id="simple", **producer
        )
        assert joined["error_code"] == 0
        parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        answer = self.call(
            "txn_offset_commit",
            3,
            transactional_id="tx",
            group_id="simple",
            topics=[{"name": "t", "partitions": parts}],
            **producer,
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    def end(self, *, committed):
        answer = self.call(
            "end_txn", 3, transactional_id="tx", committed=committed, **self.producer
        )
        assert answer["error_code"] == 0, answer
        deadline = time.monotonic() + 30
        while True:
            told = self.call("describe_transactions", 0, transactional_ids=["tx"])
            if told["transaction_states"][0]["transaction_state"].startswith("Complete"):
                return
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def last_stable_offset(self):
        connection = self.play.connection("prepare")
        return connection.fetch("t", max_wait=0)["last_stable_offset"]


def check_goes_on(clients, expected):
    """All is as it was, and everybody's next request is welcome and changes nothing."""
    assert clients.told() == expected
    for group, member in (("modern", "a"), ("modern", "b"), ("mixed", "m")):
        before = clients.epochs[member]
        assert clients.beat(group, member)["assignment"] is None
        assert clients.epochs[member] == before
    assert clients.classic_beat("mixed") == 0
    assert clients.told() == expected
    assert clients.committed("simple", stable=True)[0] == 88


@pytest.fixture
def clients():
    found = Clients()
    yield found
    found.close()


def test_it_goes_to_and_fro(clients, kafka_server_factory, ottla_server_factory):
    kafka = kafka_server_factory(OPTIONS)
    clients.play = Play(kafka.bootstrap)
    clients.topic_id = clients.play.create_topic("t", PARTITIONS)
    clients.moved_to(kafka.bootstrap)
    clients.subscribe("modern", "a")
    clients.subscribe("modern", "b")
    clients.beat("modern", "a", owned=[0, 1, 2, 3])
    clients.beat("modern", "a", owned=[0, 1])
    clients.beat("modern", "b", owned=[])
    clients.join("mixed")
    clients.sync("mixed", [0, 1, 2, 3])
    clients.subscribe("mixed", "m")
    clients.join("mixed", [0, 1, 2, 3])
    clients.join("mixed", [0, 1])
    clients.sync("mixed")
    clients.beat("mixed", "m", owned=[])
    clients.commit("modern", "a", clients.epochs["a"], 11)
    clients.commit("mixed", *clients.members["mixed"], 12)
    clients.commit("simple", "", -1, 13)
    clients.begin(b"of kafka", 14)
    assert clients.last_stable_offset() == 0
    expected = clients.told()
    kafka.kill9()

    ottla = ottla_server_factory(OPTIONS, data=kafka.data)
    clients.moved_to(ottla.bootstrap)
    check_goes_on(clients, expected)
    clients.end(committed=True)
    assert clients.committed("simple", stable=True) == (0, 14)
    assert clients.last_stable_offset() == 2
    clients.beat("mixed", "m", epoch=-1)  # The group turns classic, and a consumer group again.
    clients.join("mixed", [0, 1])
    clients.sync("mixed", [0, 1, 2, 3])
    clients.subscribe("mixed", "m")
    clients.join("mixed", [0, 1, 2, 3])
    clients.join("mixed", [0, 1])
    clients.sync("mixed")
    clients.beat("mixed", "m", owned=[])
    clients.commit("modern", "b", clients.epochs["b"], 21)
    clients.begin(b"of ottla", 24)
    expected = clients.told()
    ottla.kill9()

    kafka.start()
    clients.moved_to(kafka.bootstrap)
    check_goes_on(clients, expected)
    clients.end(committed=False)
    assert clients.committed("simple", stable=True) == (0, 14)
    assert clients.last_stable_offset() == 4
