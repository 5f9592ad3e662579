"""Several nodes whose clients log in: nodes know each other, and nobody else passes for one."""

import time

import pytest

from ottla.client.asyncio.connection import Connection
from ottla.client.wire.security import Credentials, Security
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.env.real_net import AsyncioNet
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.authorizing import OPTIONS
from tests.logging_in import shake_hands, token
from tests.nodes import SECRET, Nodes
from tools.wire_client import Closed, WireClient, batch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
PARTITIONS = 6
CLIENTS_MAX = 20
REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
ANY_TOPIC = {"resource_type": 2, "resource_name": "*", "resource_pattern_type": 3}


@pytest.fixture(scope="module")
def nodes():
    options = {name: str(value) for name, value in OPTIONS.items()}
    options |= {"super.users": "User:root", "transaction.state.log.num.partitions": "3"}
    options |= {"max.connections.per.ip": str(CLIENTS_MAX)}
    with Nodes(options, scheme="SASL_PLAINTEXT") as nodes:
        nodes.start(1, 2, 3)
        yield nodes


def settings_of(nodes, user="root"):
    return {
        "bootstrap.servers": nodes.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
        "log_level": 0,
    }


def create(nodes, topic):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(settings_of(nodes))
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def wire_of(nodes, user, number=1, **more):
    wire = WireClient(nodes.address(number), **more)
    shake_hands(wire, "PLAIN")
    assert token(wire, f"\0{user}\0{user}")["error_code"] == 0
    return wire


def test_transactions_pass_between_nodes_whose_clients_log_in(nodes):
    from confluent_kafka import Consumer, Producer, TopicPartition

    create(nodes, "paid")
    for name in ("a", "b", "c"):  # Each on another coordinator.
        producer = Producer(settings_of(nodes) | {"transactional.id": name, "linger.ms": 1})
        producer.init_transactions(30)
        for number in range(3):
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.produce("paid", b"%d" % number, partition=index)
            (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
        del producer
    consumer = Consumer(settings_of(nodes) | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("paid", index, 0) for index in range(PARTITIONS)])
    wanted, found = 3 * 2 * PARTITIONS, []
    for _ in range(60):
        found += [message.value() for message in consumer.consume(wanted, 0.5)]
        if len(found) >= wanted:
            break
    consumer.close()
    assert sorted(found) == sorted([b"0", b"2"] * 3 * PARTITIONS)


def test_a_user_who_is_no_node_can_speak_nothing_that_nodes_speak(nodes):
    create(nodes, "held")
    root = wire_of(nodes, "root")
    creations = [
        {**ANY_TOPIC, "principal": "User:bob", "host": "*", "operation": 2, "permission_type": 3}
    ]
    assert root.call("create_acls", 3, creations=creations)["results"][0]["error_code"] == 0
    bob = wire_of(nodes, "bob")
    topics = [{"name": "held", "partition_indexes": [0]}]
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": topics,
        "coordinator_epoch": 0,
    }
    told = bob.call("write_txn_markers", 1, markers=[marker])
    assert told["markers"][0]["topics"][0]["partitions"][0]["error_code"] == REFUSED
    transaction = {
        "transactional_id": "x",
        "producer_id": 1,
        "producer_epoch": 0,
        "verify_only": True,
        "topics": [{"name": "held", "partitions": [0]}],
    }
    told = bob.call("add_partitions_to_txn", 4, transactions=[transaction])
    assert told["error_code"] == REFUSED
    for wire in (root, bob):
        wire.close()


def test_the_inner_listener_lets_in_only_who_knows_the_secret(nodes):
    address = parse_bootstrap(nodes.address_for_nodes(2))[0]

    async def ask(security):
        connection = await Connection.open(AsyncioNet(), address, ClientSettings(security=security))
        try:
            return await connection.call(MetadataRequest(topics=None), MetadataResponse, highest=9)
        finally:
            connection.close()

    for mechanism, password in (("SCRAM-SHA-256", "root"), ("PLAIN", SECRET)):
        with pytest.raises(KafkaError) as refused:
            nodes.run(ask, Security(sasl=Credentials(mechanism, "1", password)))
        assert refused.value.code in {
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        }
    bare = WireClient(str(address))
    with pytest.raises(Closed):
        bare.call("metadata", 12, topics=None)
    bare.close()
    # A node is let in, and may read no topic.
    told = nodes.run(ask, Security(sasl=Credentials("SCRAM-SHA-256", "1", SECRET)))
    assert told.topics == []
    assert len(told.brokers) == 3


def test_the_limits_of_clients_do_not_hold_for_nodes(nodes):
    """Nodes, which have the same address as the clients here, are not counted."""

    def counted():
        listener = nodes.broker(2).node.doors.listener
        return len(listener._of_nodes), sum(listener._per_host.values())

    wires = [WireClient(nodes.address_for_nodes(2)) for _ in range(CLIENTS_MAX + 1)]
    for wire in wires:
        versions = wire.call("api_versions", 0)["api_keys"]
        assert versions
    of_nodes, of_clients = nodes.call(counted)
    assert of_nodes > CLIENTS_MAX
    assert of_clients <= CLIENTS_MAX
    for wire in wires:
        wire.close()


def until(ask, wanted):
    """Ask until the answer is the one wanted: other nodes hear of a change a moment later."""
    deadline = time.monotonic() + 60
    while (found := ask()) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.02)


def test_acls_and_quotas_of_one_node_hold_on_all(nodes):
    """On connections that were open before, too."""
    topic, bound = "held-by-all", 1000.0
    root, others = wire_of(nodes, "root"), [wire_of(nodes, "alice", number) for number in (2, 3)]
    create(nodes, topic)
    acl = {**ANY_TOPIC, "resource_name": topic, "principal": "User:alice", "host": "*"}
    acl |= {"operation": 8, "permission_type": 3}
    found = {"resource_type_filter": 2, "resource_name_filter": topic, "pattern_type_filter": 3}
    found |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}

    def code(wire):
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        return wire.call("metadata", 9, **asked)["topics"][0]["error_code"]

    for _ in range(2):
        for wire in others:
            assert code(wire) == 29
        told = root.call("create_acls", 3, creations=[acl])
        assert told["results"][0]["error_code"] == 0
        for wire in others:
            until(lambda wire=wire: code(wire), 0)
        told = root.call("delete_acls", 3, filters=[found])
        assert len(told["filter_results"][0]["matching_acls"]) == 1
        for wire in others:
            until(lambda wire=wire: code(wire), 29)
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    for value in (bound, None):
        ops = [{"key": "producer_byte_rate", "value": value or 0.0, "remove": value is None}]
        entries = [{"entity": entity, "ops": ops}]
        told = root.call("alter_client_quotas", 1, entries=entries, validate_only=False)
        assert told["entries"][0]["error_code"] == 0
        for number in (2, 3):
            wire = wire_of(nodes, "root", number)
            component = [{"entity_type": "user", "match_type": 0, "match": "alice"}]

            def quotas(wire=wire, component=component):
                asked = {"components": component, "strict": True}
                told = wire.call("describe_client_quotas", 1, **asked)
                return [one["values"][0]["value"] for one in told["entries"] or ()]

            until(quotas, [] if value is None else [value])
            wire.close()
    for wire in (root, *others):
        wire.close()


def test_each_node_throttles_by_its_own_count(nodes):
    """As in Kafka: a quota is of each broker, and what one has served counts nowhere else."""
    topic, bound = "throttled-by-each", 1000.0
    create(nodes, topic)
    root = wire_of(nodes, "root")
    entity = [
        {"entity_type": "user", "entity_name": "root"},
        {"entity_type": "client-id", "entity_name": "metered"},
    ]
    ops = [{"key": "producer_byte_rate", "value": bound, "remove": False}]
    entries = [{"entity": entity, "ops": ops}]
    told = root.call("alter_client_quotas", 1, entries=entries, validate_only=False)
    assert told["entries"][0]["error_code"] == 0
    parts = root.call("metadata", 9, topics=[{"name": topic}])["topics"][0]["partitions"]
    led = {part["leader_id"]: part["partition_index"] for part in parts}
    assert sorted(led) == [1, 2, 3]
    component = [
        {"entity_type": "user", "match_type": 0, "match": "root"},
        {"entity_type": "client-id", "match_type": 0, "match": "metered"},
    ]

    def produced(wire, index, size):
        part = {"index": index, "records": batch([bytes(size)])}
        data = [{"name": topic, "partition_data": [part]}]
        told = wire.call("produce", 9, acks=1, timeout=10_000, topic_data=data)
        assert told["responses"][0]["partition_responses"][0]["error_code"] == 0
        return told["throttle_time"]

    for number, index in led.items():
        asked = wire_of(nodes, "root", number)

        def known(asked=asked):
            told = asked.call("describe_client_quotas", 1, components=component, strict=True)
            return len(told["entries"] or ())

        until(known, 1)
        wire = wire_of(nodes, "root", number, client_id="metered")
        assert produced(wire, index, 9000) == 0, "ten seconds' worth come at once, at each node"
        assert 0 < produced(wire, index, 2500) < 3000, "others have served as much"
        wire.close()
        asked.close()
    root.close()
