"""Every served API, asked by somebody with exactly the rights it needs, and with one right less.

With them nothing is denied. Without any one of them some of the same requests are answered
otherwise: denied, or with something left out. The table says which rights these are, so an API
that is new has to have a line here.
"""

import random

import pytest

from ottla.security.acl import Operation as Op
from tests.authorized_requests import KINDS, Requests
from tests.authorizing import ANY_ACL
from tests.conformance.wire import test_without_rights as without_rights
from tests.random_acls import CLUSTER, GROUP, TOPIC, TRANSACTION

broker, ids, alice = without_rights.broker, without_rights.ids, without_rights.alice
pytestmark = [pytest.mark.timeout(120)]
TRIES = 30
T, G, C, X = TOPIC, GROUP, CLUSTER, TRANSACTION
CONFIGS = ((T, Op.ALTER_CONFIGS), (C, Op.ALTER_CONFIGS), (G, Op.ALTER_CONFIGS))
NEEDS = {
    "metadata": ((T, Op.DESCRIBE), (C, Op.DESCRIBE)),
    "describe_topic_partitions": ((T, Op.DESCRIBE),),
    "describe_cluster": ((C, Op.DESCRIBE),),
    "produce": ((T, Op.WRITE), (X, Op.WRITE)),
    "fetch": ((T, Op.READ), (C, Op.CLUSTER_ACTION)),
    "list_offsets": ((T, Op.DESCRIBE),),
    "offset_for_leader_epoch": ((T, Op.DESCRIBE),),
    "delete_records": ((T, Op.DELETE),),
    "describe_producers": ((T, Op.READ),),
    "find_coordinator": ((G, Op.DESCRIBE), (X, Op.DESCRIBE)),
    "join_group": ((G, Op.READ),),
    "sync_group": ((G, Op.READ),),
    "heartbeat": ((G, Op.READ),),
    "leave_group": ((G, Op.READ),),
    "offset_commit": ((G, Op.READ), (T, Op.READ)),
    "offset_fetch": ((G, Op.DESCRIBE), (T, Op.DESCRIBE)),
    "offset_delete": ((G, Op.DELETE), (T, Op.READ)),
    "delete_groups": ((G, Op.DELETE),),
    "describe_groups": ((G, Op.DESCRIBE),),
    "list_groups": ((G, Op.DESCRIBE),),
    "consumer_group_heartbeat": ((G, Op.READ), (T, Op.DESCRIBE)),
    "consumer_group_describe": ((G, Op.DESCRIBE),),
    "init_producer_id": ((X, Op.WRITE), (C, Op.IDEMPOTENT_WRITE)),
    "add_partitions_to_txn": ((X, Op.WRITE), (T, Op.WRITE), (C, Op.CLUSTER_ACTION)),
    "add_offsets_to_txn": ((X, Op.WRITE), (G, Op.READ)),
    "end_txn": ((X, Op.WRITE),),
    "txn_offset_commit": ((X, Op.WRITE), (G, Op.READ), (T, Op.READ)),
    "write_txn_markers": ((C, Op.CLUSTER_ACTION),),
    "describe_transactions": ((X, Op.DESCRIBE),),
    "list_transactions": ((X, Op.DESCRIBE),),
    "create_topics": ((T, Op.CREATE), (T, Op.DESCRIBE_CONFIGS)),
    "delete_topics": ((T, Op.DELETE),),
    "create_partitions": ((T, Op.ALTER),),
    "describe_configs": tuple((kind, Op.DESCRIBE_CONFIGS) for kind in (T, C, G)),
    "incremental_alter_configs": CONFIGS,
    "alter_configs": (CONFIGS[0], CONFIGS[2]),
    "list_config_resources": ((C, Op.DESCRIBE_CONFIGS),),
    "describe_log_dirs": ((C, Op.DESCRIBE),),
    "alter_replica_log_dirs": ((C, Op.ALTER),),
    "describe_user_scram_credentials": ((C, Op.DESCRIBE),),
    "alter_user_scram_credentials": ((C, Op.ALTER),),
    "describe_client_quotas": ((C, Op.DESCRIBE_CONFIGS),),
    "alter_client_quotas": ((C, Op.ALTER_CONFIGS),),
    "describe_acls": ((C, Op.DESCRIBE),),
    "create_acls": ((C, Op.ALTER),),
    "delete_acls": ((C, Op.ALTER),),
    "elect_leaders": ((C, Op.ALTER),),
    "alter_partition_reassignments": ((C, Op.ALTER),),
    "list_partition_reassignments": ((C, Op.DESCRIBE),),
    "describe_quorum": ((C, Op.DESCRIBE),),
    "update_features": ((C, Op.ALTER),),
    "unregister_broker": ((C, Op.ALTER),),
}


@pytest.fixture(scope="module")
def root(broker, ids):
    with without_rights.WireClient(broker.bootstrap) as wire:
        asked = {"transactional_id": "tx-listed", "transaction_timeout": without_rights.TIME}
        assert wire.call("init_producer_id", 4, **asked)["error_code"] == 0
        yield wire


def grant(root, rights):
    """Give alice these rights on everything, and take all others away."""
    root.call("delete_acls", 3, filters=[ANY_ACL | {"principal_filter": "User:alice"}])
    creations = [
        {
            "resource_type": kind,
            "resource_name": "kafka-cluster" if kind == CLUSTER else "*",
            "resource_pattern_type": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": int(operation),
            "permission_type": 3,
        }
        for kind, operation in rights
    ]
    if creations:
        told = root.call("create_acls", 3, creations=creations)
        assert {one["error_code"] for one in told["results"]} == {0}


def answers(wire, ids, kind):
    """Return the answers to the same requests each time."""
    made, found = Requests(random.Random(kind), ids), []
    for _ in range(TRIES):
        api, version, fields = getattr(made, kind)()
        if kind == "produce" and fields["transactional_id"] is None:
            fields["transactional_id"] = "tx-a"  # Without one nobody may write what has one.
        found.append(without_rights.renamed(wire.call(api, version, **fields), {}))
    return found


def test_every_served_api_has_its_rights():
    assert set(KINDS) == set(NEEDS)


def denials(found):
    return without_rights.DENIED & {code for one in found for code in without_rights.codes(one)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_rights_are_enough_and_each_is_needed(root, alice, ids, kind):
    needed = NEEDS[kind]
    grant(root, needed)
    allowed = answers(alice, ids, kind)
    assert not denials(allowed), allowed
    for missing in needed:
        grant(root, [right for right in needed if right != missing])
        found = answers(alice, ids, kind)
        assert found != allowed, missing
        is_silent = kind in without_rights.EMPTY | without_rights.FOR_ALL
        assert denials(found) or is_silent, (missing, found)
    grant(root, ())
