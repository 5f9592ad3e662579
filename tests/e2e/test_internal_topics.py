"""Administrators who lay hands on the internal topics: nothing that was committed is forgotten."""

import time

import pytest

from tools.wire_client import WireClient

GROUPS = [f"group-{number}" for number in range(12)]
IDS = [f"transactional-{number}" for number in range(12)]
OPTIONS = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
NOT_READY = (14, 15, 16)


def patiently(ask):
    deadline = time.monotonic() + 30
    while (found := ask())[0] in NOT_READY:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def commit(wire, group, offset):
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }

    def ask():
        answer = wire.call(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "t", "partitions": [partition]}],
        )
        return (answer["topics"][0]["partitions"][0]["error_code"],)

    coordinator(wire, group, 0)
    assert patiently(ask) == (0,)


def coordinator(wire, name, kind):
    def ask():
        found = wire.call("find_coordinator", 4, key_type=kind, coordinator_keys=[name])
        return (found["coordinators"][0]["error_code"],)

    assert patiently(ask) == (0,)


def committed(wire, group):
    def ask():
        asked = [{"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}]
        answer = wire.call("offset_fetch", 8, groups=asked, require_stable=False)["groups"][0]
        offsets = [
            one["committed_offset"] for each in answer["topics"] for one in each["partitions"]
        ]
        return answer["error_code"], offsets

    code, offsets = patiently(ask)
    assert code == 0
    return offsets[0]


def begin(wire, name):
    """Return the producer id and epoch that a transactional id gets."""

    def ask():
        answer = wire.call(
            "init_producer_id",
            3,
            transactional_id=name,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return answer["error_code"], (answer["producer_id"], answer["producer_epoch"])

    coordinator(wire, name, 1)
    code, found = patiently(ask)
    assert code == 0
    return found


def grow(wire, topic, count):
    asked = [{"name": topic, "count": count, "assignments": None}]
    answer = wire.call("create_partitions", 3, topics=asked, timeout=10_000, validate_only=False)
    assert answer["results"][0]["error_code"] == 0


@pytest.mark.parametrize("restart", [False, True])
def test_partitions_added_to_an_internal_topic_lose_no_group_and_no_producer(
    ottla_server_factory, restart
):
    """Another partition was asked than the one that knew: offsets began again at the end, or 0."""
    server = ottla_server_factory(OPTIONS)
    with WireClient(server.bootstrap) as wire:
        wire.create_topic("t", 1)
        for number, group in enumerate(GROUPS):
            commit(wire, group, number)
        producers = {name: begin(wire, name) for name in IDS}
        for count in (6, 7):
            grow(wire, "__consumer_offsets", count)
            grow(wire, "__transaction_state", count)
    if restart:
        server.kill9()
        server.start()
    with WireClient(server.bootstrap) as wire:
        assert [committed(wire, group) for group in GROUPS] == list(range(len(GROUPS)))
        for name, (producer_id, epoch) in producers.items():
            assert begin(wire, name) == (producer_id, epoch + 1)
        for number, group in enumerate(GROUPS):
            commit(wire, group, number + 100)
        assert [committed(wire, group) for group in GROUPS] == list(range(100, 112))


def test_an_internal_topic_that_is_deleted_and_made_with_fewer_partitions_serves(
    ottla_server_factory,
):
    server = ottla_server_factory(OPTIONS)
    with WireClient(server.bootstrap) as wire:
        wire.create_topic("t", 1)
        commit(wire, GROUPS[0], 7)
        begin(wire, IDS[0])
        for topic in ("__consumer_offsets", "__transaction_state"):
            asked = [{"name": topic, "topic_id": None}]
            answer = wire.call("delete_topics", 6, topics=asked, timeout=10_000)
            assert answer["responses"][0]["error_code"] == 0
            wire.create_topic(topic, 2)
        assert committed(wire, GROUPS[0]) == -1
        for number, group in enumerate(GROUPS):
            commit(wire, group, number)
        producers = [begin(wire, name) for name in IDS]
    server.kill9()
    server.start()
    with WireClient(server.bootstrap) as wire:
        assert [committed(wire, group) for group in GROUPS] == list(range(len(GROUPS)))
        again = [begin(wire, name) for name in IDS]
        assert again == [(producer_id, epoch + 1) for producer_id, epoch in producers]


def test_records_of_an_internal_topic_are_not_deleted_on_request(ottla_server_factory):
    """With another cleanup policy they went: at the next start every group began anew."""
    server = ottla_server_factory(
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    )
    with WireClient(server.bootstrap) as wire:
        wire.create_topic("t", 1)
        commit(wire, "g", 7)
        found = begin(wire, "x")
        for policy in ("compact", "delete", "compact,delete"):
            for topic in ("__consumer_offsets", "__transaction_state"):
                configs = [{"name": "cleanup.policy", "config_operation": 0, "value": policy}]
                resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
                asked = {"resources": [resource], "validate_only": False}
                answer = wire.call("incremental_alter_configs", 1, **asked)
                assert answer["responses"][0]["error_code"] == 0
                for offset in (-1, 0, -5):
                    partitions = [{"partition_index": 0, "offset": offset}]
                    topics = [{"name": topic, "partitions": partitions}]
                    answer = wire.call("delete_records", 2, topics=topics, timeout=10_000)
                    assert answer["topics"][0]["partitions"][0]["error_code"] == 17
    server.kill9()
    server.start()
    with WireClient(server.bootstrap) as wire:
        assert committed(wire, "g") == 7
        assert begin(wire, "x") == (found[0], found[1] + 1)


@pytest.mark.parametrize("clean", [True, False])
def test_a_coordinators_log_that_is_offline_is_not_taken_for_an_empty_one(
    ottla_server_factory, clean
):
    """A group heard that it had committed nothing, and a producer that its id was unknown."""
    server = ottla_server_factory(
        {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    )
    with WireClient(server.bootstrap) as wire:
        wire.create_topic("t", 1)
        commit(wire, "g", 7)
        found = begin(wire, "x")
    if clean:
        server.stop()
    else:
        server.kill9()
    logs = [
        server.data / f"{topic}-0" / "00000000000000000000.log"
        for topic in ("__consumer_offsets", "__transaction_state")
    ]
    for log in logs:
        log.rename(log.with_suffix(".aside"))
        log.mkdir()
    server.start()
    with WireClient(server.bootstrap) as wire:
        for _ in range(3):
            asked = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]
            answer = wire.call("offset_fetch", 8, groups=asked, require_stable=False)
            assert answer["groups"][0]["error_code"] == 15
            keys = [(0, "g"), (1, "x")]
            for kind, name in keys:
                answer = wire.call("find_coordinator", 4, key_type=kind, coordinator_keys=[name])
                assert answer["coordinators"][0]["error_code"] == 15
            asked = {"transactional_id": "x", "producer_id": found[0], "producer_epoch": found[1]}
            assert wire.call("end_txn", 3, committed=True, **asked)["error_code"] == 15
    server.kill9()
    for log in logs:
        log.rmdir()
        log.with_suffix(".aside").rename(log)
    server.start()
    with WireClient(server.bootstrap) as wire:
        assert committed(wire, "g") == 7
        assert begin(wire, "x") == (found[0], found[1] + 1)
