"""Three administrators change the same thing at once, each by way of another node."""

import threading

import pytest

from tools.nodes_peer import NodesPeer
from tools.wire_client import WireClient

pytestmark = pytest.mark.timeout(180)
CHANGES = 60
INVALID_PARTITIONS = 37


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Of the three nodes; there are topics "grown" and "configured"."""
    with NodesPeer(tmp_path_factory.mktemp("nodes") / "data", 3) as peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            for topic in ("grown", "configured"):
                wire.create_topic(topic)
            brokers = []
            while len(brokers) < 3:
                brokers = wire.call("metadata", 9, topics=[])["brokers"]
        yield [f"{each['host']}:{each['port']}" for each in brokers]


def told(addresses, change):
    """Have each node make so many changes; return what was answered: codes and texts."""
    answers, together = [], threading.Barrier(len(addresses))

    def administer(number, address):
        with WireClient(address, timeout_seconds=60) as wire:
            together.wait()
            for each in range(CHANGES):
                answer = change(wire, each * len(addresses) + number)
                answers.append((answer["error_code"], answer["error_message"]))

    threads = [threading.Thread(target=administer, args=each) for each in enumerate(addresses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == CHANGES * len(addresses)
    return answers


def test_quotas_of_one_user(addresses):
    def change(wire, number):
        ops = [{"key": "producer_byte_rate", "value": float(number + 1), "remove": False}]
        entity = [{"entity_type": "user", "entity_name": "ann"}]
        asked = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        return wire.call("alter_client_quotas", 1, **asked)["entries"][0]

    assert set(told(addresses, change)) == {(0, None)}


def test_configs_of_one_topic(addresses):
    def change(wire, number):
        config = {"name": "retention.ms", "config_operation": 0, "value": str(number + 1)}
        resource = {"resource_type": 2, "resource_name": "configured", "configs": [config]}
        answer = wire.call("incremental_alter_configs", 1, resources=[resource])
        return answer["responses"][0]

    assert {code for code, _ in told(addresses, change)} == {0}


def test_passwords_of_one_user(addresses):
    def change(wire, number):
        one = {"name": "ann", "mechanism": 1, "iterations": 4096, "salt": b"%04d" % number}
        asked = {"deletions": [], "upsertions": [one | {"salted_password": b"s" * 32}]}
        return wire.call("alter_user_scram_credentials", 0, **asked)["results"][0]

    assert set(told(addresses, change)) == {(0, None)}


def test_partitions_of_one_topic(addresses):
    """Whoever is late is told that there are as many already, as by Kafka, and nothing else."""

    def change(wire, number):
        topic = {"name": "grown", "count": 2 + number, "assignments": None}
        asked = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        return wire.call("create_partitions", 3, **asked)["results"][0]

    answers = told(addresses, change)
    assert {code for code, _ in answers} <= {0, INVALID_PARTITIONS}
    assert all("would not be an increase" in text for code, text in answers if code)
    with WireClient(addresses[0]) as wire:
        asked = wire.call("metadata", 9, topics=[{"name": "grown"}])
        assert len(asked["topics"][0]["partitions"]) == 1 + CHANGES * len(addresses)
