"""Several nodes whose clients log in: nodes know each other, and nobody else passes for one."""

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
from tools.wire_client import Closed, WireClient

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


def wire_of(nodes, user):
    wire = WireClient(nodes.address(1))
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
        return listener._of_nodes_count, sum(listener._per_host.values())

    wires = [WireClient(nodes.address_for_nodes(2)) for _ in range(CLIENTS_MAX + 1)]
    for wire in wires:
        versions = wire.call("api_versions", 0)["api_keys"]
        assert versions
    of_nodes, of_clients = nodes.call(counted)
    assert of_nodes > CLIENTS_MAX
    assert of_clients <= CLIENTS_MAX
    for wire in wires:
        wire.close()
