"""Transactions on the wire, step by step, in both of Kafka's protocols and with what is wrong.

Asked of Apache Kafka 4.3.0, too (``--target kafka``). Version 1 is AddPartitionsToTxn v3, Produce
v11 and EndTxn v4; version 2 (KIP-890) is Produce v12 and EndTxn v5.
"""

import time
import uuid

import pytest

from tests.conformance.wire.transactional_client import TRANSACTIONAL, Client
from tools.wire_client import batch


@pytest.fixture
def client(wire):
    made = Client(wire)
    assert made.init() == 0
    return made


@pytest.fixture
def topic(wire):
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    wire.create_topic(name, 2)
    return name


def producers(wire, topic):
    asked = [{"name": topic, "partition_indexes": [0]}]
    answer = wire.call("describe_producers", 0, topics=asked)
    return [
        (one["producer_epoch"], one["last_sequence"], one["current_txn_start_offset"])
        for one in answer["topics"][0]["partitions"][0]["active_producers"]
    ]


def test_a_transactional_id_keeps_its_producer_id_and_raises_its_epoch(wire):
    client = Client(wire)
    found = []
    for version in (0, 2, 3, 5):
        assert client.init(version) == 0
        found.append((client.producer_id, client.epoch))
    assert found == [(client.producer_id, epoch) for epoch in range(4)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, 42),
        ({"timeout": 0}, 50),
        ({"timeout": -1}, 50),
        ({"timeout": 900_001}, 50),
        ({"producer_id": 5}, 42),
        ({"producer_epoch": 5}, 42),
    ],
)
def test_what_no_producer_can_begin_with(client, fields, code):
    assert client.init(**fields) == code


def test_a_producer_goes_on_with_its_epoch_and_may_ask_twice(client):
    before = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    for _ in range(2):
        assert client.init(**before) == 0
        assert client.epoch == 1
    assert client.init(**before | {"producer_id": client.producer_id + 77}) == 90
    assert client.init(**before) == 0
    assert client.init(producer_id=client.producer_id, producer_epoch=1) == 0
    assert client.init(**before) == 90
    assert client.init(3, **before) == 47


def test_version_1_step_by_step(client, wire, topic):
    for commit in (True, False):
        assert client.end(commit, 4) == 48
    assert client.produce(topic, version=10) == 48
    assert client.produce(topic, version=11) == 120
    assert client.produce(topic, version=11, transactional_id=None) == 53
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.add((topic, 0), (topic, 1), version=0) == {(topic, 0): 0, (topic, 1): 0}
    assert client.describe() == ("Ongoing", 0, {(topic, 0), (topic, 1)})
    assert client.produce(topic, 0, 11) == 0
    assert client.produce(topic, 1, 9) == 0
    assert client.produce(topic, 2, 11, attributes=0) == 48
    assert client.produce(topic, 0, 11, epoch=1) == 47
    assert producers(wire, topic) == [(0, 1, 0)]
    assert wire.list_offsets(topic, [0]) == [(0, 2)]
    assert client.end(version=4) == 0
    assert client.describe() == ("CompleteCommit", 0, set())
    assert client.end(version=4) == 0
    assert client.end(False, 4) == 48
    assert producers(wire, topic) == [(0, 1, -1)]
    assert client.produce(topic, 2, 11) == 120
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 2, 11) == 0
    assert client.end(False, 3) == 0
    assert client.describe() == ("CompleteAbort", 0, set())
    assert client.end(False, 4) == 0
    assert client.end(True, 4) == 48


@pytest.mark.parametrize("version", [9, 10, 11, 12])
@pytest.mark.parametrize("is_committed", [True, False])
def test_sequences_before_and_after_the_end_of_a_transaction(
    wire, target_kind, version, is_committed
):
    """As Kafka, but for one case: what an ended transaction holds is no duplicate (ADR 51).

    Kafka acknowledges it and stores nothing, and the next sequence is the next one for both.
    """

    def ended():
        made, name = Client(wire), f"transactions-{uuid.uuid4().hex[:8]}"
        wire.create_topic(name, 1)
        assert made.init() == 0
        if version < 12:
            made.add((name, 0))
        assert [made.produce(name, sequence, version) for sequence in (0, 1)] == [0, 0]
        assert [made.produce(name, sequence, version) for sequence in (0, 1)] == [0, 0]
        made.end(is_committed, 4 if version < 12 else 5)
        made.describe()
        return made, name

    refused = 47 if version == 12 else 120 if version == 11 else 48
    for sequence in (0, 1, 2):
        made, name = ended()
        assert made.produce(name, sequence, version) == refused
    if version == 12:
        for sequence, code in ((0, 0), (1, 45), (2, 45)):
            made, name = ended()
            made.epoch += 1
            assert made.produce(name, sequence, version) == code
        return
    again = 0 if target_kind == "kafka" else 59
    for sequence, code in ((0, again), (1, again), (2, 0), (3, 45)):
        made, name = ended()
        made.add((name, 0))
        assert made.produce(name, sequence, version) == code
        assert wire.list_offsets(name, [0]) == [(0, 3 + (sequence == 2))]


def test_version_1_with_others_ids(client, topic):
    assert client.add((topic, 0), (topic, 9), ("nope", 0)) == {
        (topic, 0): 55,
        (topic, 9): 3,
        ("nope", 0): 3,
    }
    assert client.add() == {}
    wrong = [({"epoch": 1, "version": 1}, 47), ({"epoch": 1, "version": 2}, 90)]
    wrong += [({"producer_id": 99}, 49), ({"name": "nobody"}, 49), ({"name": ""}, 42)]
    for fields, code in wrong:
        assert client.add((topic, 0), **fields) == {(topic, 0): code}
        assert client.end(**{"version": 4, "wait": False} | fields) == code


def test_version_2_step_by_step(client, wire, topic):
    assert client.end() == 48
    assert client.end(False) == (0, 1)
    client.epoch += 1
    assert client.describe() == ("CompleteAbort", 1, set())
    assert client.produce(topic, 0) == 0
    assert client.produce(topic, 1) == 0
    assert client.describe() == ("Ongoing", 1, {(topic, 0)})
    assert producers(wire, topic) == [(1, 1, 0)]
    assert client.end() == (0, 1)
    assert client.describe() == ("CompleteCommit", 2, set())
    assert client.end() == (0, 1), "once more: the answer may have been lost"
    assert client.end(False) == 48
    assert producers(wire, topic) == [(2, -1, -1)]
    assert client.produce(topic, 2) == 47
    client.epoch += 1
    assert client.end() == 48
    assert client.produce(topic, 0) == 0
    assert client.end(epoch=-1, wait=False) == 90
    assert client.end(epoch=1, wait=False) == 90
    assert client.end(False) == (0, 1)
    assert client.describe() == ("CompleteAbort", 3, set())
    assert client.end(False) == (0, 1)
    assert client.end(True) == 48
    client.epoch += 1
    assert client.produce(topic, 0, epoch=3) == 47
    assert client.produce(topic, 0, producer_id=55) == 49
    assert client.produce(topic, 0, transactional_id="nobody") == 49
    assert client.produce(topic, 0, attributes=0) == 0


def test_a_new_producer_begins_at_sequence_0_in_version_2(client, topic):
    assert client.produce(topic, 5) == 45
    assert client.produce(topic, 0) == 0


@pytest.mark.parametrize("version", [11, 12])
def test_who_comes_second_fences_who_came_first(client, wire, topic, version):
    if version == 11:
        client.add((topic, 0))
    assert client.produce(topic, 0, version) == 0
    second = Client(wire, client.name)
    assert second.init(wait=False) == 51
    assert second.init() == 0
    assert (second.producer_id, second.epoch) == (client.producer_id, 2)
    assert client.produce(topic, 1, version) == 47
    # Its coordinator says so, before the log is asked.
    assert client.produced["log_start_offset"] == -1
    for of, code in ((1, 47), (4, 90), (5, 90)):
        assert client.end(version=of, wait=False) == code
    assert client.add((topic, 0)) == {(topic, 0): 90}
    assert producers(wire, topic) == [(1, -1, -1)]


def test_who_commits_while_another_takes_over_hears_that_it_was_aborted(client, wire, topic):
    """Not yet that it is fenced: until the second one has come back nobody else has the id."""
    assert client.produce(topic, 0) == 0
    second = Client(wire, client.name)
    assert second.init(wait=False) == 51
    client.describe()
    assert client.end() == 48
    assert client.end(False) == (0, 1)
    assert second.init() == 0
    assert second.epoch == 2
    assert client.end(wait=False) == 90
    assert client.end(False, wait=False) == 90


def test_an_abort_behind_a_commit_that_was_not_heard_says_so(client, topic):
    assert client.produce(topic, 0) == 0
    assert client.end() == (0, 1)
    client.describe()
    assert client.end(False) == 48
    assert client.end() == (0, 1)


def test_a_transaction_is_aborted_when_its_time_is_over(wire, topic):
    client = Client(wire)
    assert client.init(timeout=1000) == 0
    assert client.produce(topic, 0) == 0
    deadline = time.monotonic() + 40
    while client.describe()[0] == "Ongoing":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert client.describe() == ("CompleteAbort", 1, set())
    assert client.produce(topic, 1) == 47
    assert client.end() == 48
    assert client.end(False) == (0, 1)


def test_brokers_ask_about_partitions_without_adding_them(client, wire, topic):
    client.add((topic, 0))

    def verify(*partitions, epoch=0, name=client.name, only=True):
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        asked = {
            "transactional_id": name,
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch + epoch,
            "verify_only": only,
            "topics": topics,
        }
        answer = wire.call("add_partitions_to_txn", 5, transactions=[asked])
        (result,) = answer["results_by_transaction"]
        return {
            (one["name"], part["partition_index"]): part["partition_error_code"]
            for one in result["topic_results"]
            for part in one["results_by_partition"]
        }

    assert verify((topic, 0), (topic, 1)) == {(topic, 0): 0, (topic, 1): 120}
    assert verify((topic, 0), ("nope", 0)) == {(topic, 0): 55, ("nope", 0): 3}
    assert verify((topic, 0), epoch=1) == {(topic, 0): 90}
    assert verify((topic, 0), name="nobody") == {(topic, 0): 49}
    assert verify((topic, 1), only=False) == {(topic, 1): 0}
    assert client.describe() == ("Ongoing", 0, {(topic, 0), (topic, 1)})


class Group:
    """A group whose offsets are committed in transactions."""

    def __init__(self, client, topic):
        self.wire, self.client, self.topic = client.wire, client, topic
        self.name = f"g-{uuid.uuid4().hex[:12]}"
        client.patiently(self.find, lambda code: code)

    def find(self):
        asked = {"key_type": 0, "coordinator_keys": [self.name]}
        return self.wire.call("find_coordinator", 4, **asked)["coordinators"][0]["error_code"]

    def add(self, version=4, *, epoch=0, **fields):
        asked = {
            "transactional_id": self.client.name,
            "producer_id": self.client.producer_id,
            "producer_epoch": self.client.epoch + epoch,
            "group_id": self.name,
        }
        answer = self.wire.call("add_offsets_to_txn", version, **asked | fields)
        return answer["error_code"]

    def commit(self, offset, version=3, *, epoch=0, topic=None, metadata="m", **fields):
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
        if version >= 2:
            part["committed_leader_epoch"] = -1
        asked = {
            "transactional_id": self.client.name,
            "group_id": self.name,
            "producer_id": self.client.producer_id,
            "producer_epoch": self.client.epoch + epoch,
            "topics": [{"name": topic or self.topic, "partitions": [part]}],
        }
        if version >= 3:
            asked |= {"generation_id": -1, "member_id": "", "group_instance_id": None}

        def ask():
            answer = self.wire.call("txn_offset_commit", version, **asked | fields)
            return answer["topics"][0]["partitions"][0]["error_code"]

        return self.client.patiently(ask, lambda code: code)

    def fetch(self, stable=True):
        """The code and the offset."""
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        answer = self.wire.call(
            "offset_fetch",
            8,
            require_stable=stable,
            groups=[{"group_id": self.name, "topics": wanted}],
        )
        (part,) = answer["groups"][0]["topics"][0]["partitions"]
        return part["error_code"], part["committed_offset"]

    def settled(self):
        return self.client.patiently(self.fetch, lambda found: found[0], codes=(88,))


def test_offsets_wait_for_the_end_of_their_transaction(client, topic):
    group = Group(client, topic)
    assert group.commit(5) == 48
    assert group.commit(5, 4) == 120
    assert group.add() == 0
    assert group.commit(4, 0) == 0
    assert group.commit(5) == 0
    assert group.fetch() == (88, -1)
    assert group.fetch(stable=False) == (0, -1)
    assert client.end(version=4) == 0
    assert group.settled() == (0, 5)
    client.describe()
    assert group.add() == 0
    assert group.commit(9) == 0
    assert client.end(False, 4) == 0
    assert group.settled() == (0, 5)
    client.describe()
    assert group.commit(11, 5) == 0
    assert [topic for topic, _ in client.describe()[2]] == ["__consumer_offsets"]
    assert client.end() == (0, 1)
    assert group.settled() == (0, 11)
    assert group.commit(12, 5) == 47


def test_offsets_with_what_is_wrong(client, topic):
    group = Group(client, topic)
    assert group.add(1, epoch=1) == 47
    assert group.add(epoch=1) == 90
    assert group.add(transactional_id="nobody") == 49
    assert group.add(transactional_id="") == 42
    assert group.add() == 0
    assert group.commit(5, generation_id=3, member_id="x") == 22, "there is no such group yet"
    assert group.commit(5) == 0
    assert group.commit(5, generation_id=3, member_id="x") == 25
    assert group.commit(5, member_id="x") == 0
    assert group.commit(5, topic="nope") == 3
    assert group.commit(5, metadata="m" * 5000) == 12
    assert group.commit(5, epoch=1) == 47
    assert group.commit(5, group_id="") == 24


def test_lists_and_descriptions(client, wire, topic):
    assert client.produce(topic) == 0

    def listed(**fields):
        asked = {"state_filters": [], "producer_id_filters": [client.producer_id]}
        answer = wire.call("list_transactions", 1, **asked | {"duration_filter": -1} | fields)
        assert answer["error_code"] == 0
        return answer["unknown_state_filters"], [
            (one["transactional_id"], one["transaction_state"])
            for one in answer["transaction_states"]
        ]

    found = [(client.name, "Ongoing")]
    assert listed() == ([], found)
    assert listed(state_filters=["Ongoing", "Foo"]) == (["Foo"], found)
    assert listed(state_filters=["Foo"]) == (["Foo"], [])
    assert listed(state_filters=["Empty"]) == ([], [])
    assert listed(producer_id_filters=[99_999]) == ([], [])
    assert listed(duration_filter=100_000) == ([], [])
    answer = wire.call("describe_transactions", 0, transactional_ids=["nobody", ""])
    assert [one["error_code"] for one in answer["transaction_states"]] == [105, 42]


def test_ids_are_listed_by_a_pattern(wire, client):
    def listed(pattern, version=2):
        filters = {"state_filters": [], "producer_id_filters": [client.producer_id]}
        filters |= {"duration_filter": -1, "transactional_id_pattern": pattern}
        answer = wire.call("list_transactions", version, **filters)
        return answer["error_code"], [
            one["transactional_id"] for one in answer["transaction_states"]
        ]

    every = (0, [client.name])
    for pattern in (
        None,
        "",
        ".*",
        f"^{client.name}$",
        f"{client.name[:-1]}[^ ]",
        f"x|{client.name}",
    ):
        assert listed(pattern) == every, pattern
    for pattern in (client.name[:-1], client.name.upper() + "X", "x" * 1000):
        assert listed(pattern) == (0, []), pattern
    for pattern in ("(", "a**", "[", "*", "(?=a)"):
        assert listed(pattern) == (128, []), pattern


def test_markers_are_written_by_request(wire, client, topic):
    def write(producer_id, epoch, *partitions, version=1, **fields):
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": name, "partition_indexes": [index]} for name, index in partitions],
        }
        answer = wire.call("write_txn_markers", version, markers=[marker | fields])
        return {
            (one["name"], part["partition_index"]): part["error_code"]
            for one in answer["markers"][0]["topics"]
            for part in one["partitions"]
        }

    assert client.produce(topic) == 0
    assert write(client.producer_id, 1, (topic, 0), ("nope", 0), (topic, 7)) == {
        (topic, 0): 0,
        ("nope", 0): 3,
        (topic, 7): 3,
    }
    assert producers(wire, topic) == [(1, -1, -1)]
    assert write(client.producer_id, 0, (topic, 0)) == {(topic, 0): 47}


def test_a_marker_of_a_coordinator_that_cannot_be_stops_nobody(wire, client, topic, target_kind):
    if target_kind == "kafka":
        pytest.skip("Kafka writes it, and never ends that producer's transactions again (seen)")
    marker = {
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
        "transaction_result": False,
        "coordinator_epoch": 1000,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    (answer,) = wire.call("write_txn_markers", 1, markers=[marker])["markers"]
    assert answer["topics"][0]["partitions"][0]["error_code"] == 52
    assert client.produce(topic) == 0
    assert client.end() == (0, 1)
    client.patiently(
        lambda: wire.call("describe_transactions", 0, transactional_ids=[client.name]),
        lambda found: found["transaction_states"][0]["transaction_state"],
        ("PrepareCommit",),
    )


def test_the_feature_tells_clients_of_version_2(wire):
    software = {"client_software_name": "a", "client_software_version": "1"}
    for version in (3, 4):
        answer = wire.call("api_versions", version, **software)
        finalized = {
            one["name"]: (one["min_version_level"], one["max_version_level"])
            for one in answer["finalized_features"]
        }
        assert finalized["transaction.version"] == (2, 2)
        assert finalized["group.version"] == (1, 1)
        supported = {one["name"]: one["max_version"] for one in answer["supported_features"]}
        assert supported.get("transaction.version") == (2 if version == 4 else None)
        assert supported.get("group.version") == (1 if version == 4 else None)


@pytest.mark.parametrize("records", [b"", bytes(16), bytes(60)], ids=len)
def test_a_partition_that_is_named_again_with_less_than_a_batch_is_answered(client, topic, records):
    whole = batch(
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    parts = [{"index": 0, "records": whole}, {"index": 0, "records": records}]
    code = client.produce(topic, topic_data=[{"name": topic, "partition_data": parts}])
    assert code in (0, 2, 87)  # Of a partition that is named twice Kafka takes one.
    assert client.end(commit=False)[0] == 0
