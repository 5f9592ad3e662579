"""Every served API, asked by somebody who may do nothing: he is told nothing, whatever there is.

His answers name nothing that he has not named himself, and are the same for what exists and for
what does not.
"""

import random
import uuid

import pytest

from ottla.protocol.apis import ApiKey
from tests.authorized_requests import KINDS, TIME, Requests
from tests.authorizing import OPTIONS, wait_for
from tests.logging_in import shake_hands, token
from tests.random_acls import NAMES, TOPICS
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

pytestmark = [pytest.mark.timeout(120)]
TRIES = 25
DENIED = {29, 30, 31, 53}
"""Topic, group, cluster, transactional id: authorization failed."""
EMPTY = {"describe_cluster", "list_groups", "list_transactions"}
"""They leave out what may not be seen, and have no error for it."""
FOR_ALL = {"metadata", "describe_topic_partitions", "offset_fetch", "describe_log_dirs"}
"""They do so where they are asked for everything."""
SENSELESS = {"describe_topic_partitions": {42}, "sync_group": {23}, "create_topics": {42}}
"""What some are refused for in any case: a cursor below 0, half a protocol, an internal topic."""
OPEN = {"api_versions", "sasl_handshake", "sasl_authenticate"}
"""Part of the way in."""
TOKENS = {f"{verb}_delegation_token" for verb in ("create", "renew", "expire", "describe")}
"""There are none; ``test_delegation_tokens`` asks for them."""
ABSENT = {
    "t-a": "t-c",
    "t-b": "t-d",
    "x": "y",
    "g-a": "g-c",
    "g-b": "g-d",
    "h": "i",
    "tx-a": "tx-e",
    "tx-b": "tx-f",
}
"""Names of what there is, and in the same order names of what there is not."""
PRESENT = {absent: name for name, absent in ABSENT.items()}
EXISTING = {name for names in NAMES.values() for name in names} - {"nobody", "kafka-cluster"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("closed") / "data"
    with OttlaPeer(data, OPTIONS, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture(scope="module")
def ids(broker):
    """Make the world, without an ACL for anybody; return the topics' ids."""
    with WireClient(broker.bootstrap) as wire:
        for name in TOPICS:
            wire.create_topic(name)
        known = wire.call("metadata", 12, topics=None, allow_auto_topic_creation=False)
        topics = [
            {"name": name, "partition_data": [{"index": 0, "records": batch([b"secret"])}]}
            for name in TOPICS
        ]
        wire.call("produce", 9, transactional_id=None, acks=-1, timeout=TIME, topic_data=topics)
        for kind, names in ((0, ("g-a", "g-b", "h")), (1, ("tx-a", "tx-b"))):
            wait_for(wire, kind, names)
        part = {"partition_index": 0, "committed_offset": 0, "committed_metadata": "secret"}
        for group in ("g-a", "g-b", "h"):
            told = wire.call(
                "offset_commit",
                8,
                group_id=group,
                member_id="",
                generation_id_or_member_epoch=-1,
                topics=[{"name": name, "partitions": [part]} for name in TOPICS],
            )
            assert {one["partitions"][0]["error_code"] for one in told["topics"]} == {0}
        return {one["name"]: one["topic_id"] for one in known["topics"]}


@pytest.fixture(scope="module")
def alice(broker, ids):
    with WireClient(broker.secured["SASL_PLAINTEXT"]) as wire:
        shake_hands(wire, "PLAIN")
        assert token(wire, "\0alice\0alice")["error_code"] == 0
        yield wire


def strings(value):
    """Yield every text in a request or an answer."""
    if isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def codes(value):
    """Yield every error code in an answer."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key.endswith("error_code"):
                yield each
            else:
                yield from codes(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from codes(each)


def renamed(value, names):
    """Return the same with other names, and without what counts requests."""
    if isinstance(value, dict):
        kept = ((key, each) for key, each in value.items() if key != "correlation_id")
        return {key: renamed(each, names) for key, each in kept}
    if isinstance(value, list | tuple):
        return [renamed(each, names) for each in value]
    if isinstance(value, str):
        return names.get(value, value)
    return value


def has_ids(value):
    return any(isinstance(each, uuid.UUID) for each in _leaves(value))


def _leaves(value):
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def test_every_served_api_is_asked(alice):
    served = {one["api_key"] for one in alice.call("api_versions", 0)["api_keys"]}
    asked = {ApiKey[kind.upper()].value for kind in (*KINDS, *OPEN, *TOKENS)}
    assert served == asked


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_told(alice, ids, kind):
    made = Requests(random.Random(kind), ids)
    for _ in range(TRIES):
        api, version, fields = getattr(made, kind)()
        answer = alice.call(api, version, **fields)
        asked = set(strings(fields))
        told = set(strings(answer))
        assert not (told & EXISTING) - asked, (version, fields, answer)
        assert "secret" not in str(answer)
        if errors := set(codes(answer)) - {0}:
            assert errors & DENIED or errors == SENSELESS.get(kind), (version, fields, answer)
        else:
            asks_nothing = [] in (fields.get("topics"), fields.get("resources"))
            assert kind in EMPTY | FOR_ALL or asks_nothing, (version, fields, answer)
        if not has_ids(fields):
            twin = alice.call(api, version, **renamed(fields, ABSENT))
            assert renamed(twin, PRESENT) == renamed(answer, {}), (version, fields)


def odd_spellings(node_id):
    """Names that some reader of numbers takes for the id of this node."""
    return [
        f"0{node_id}",
        f"+{node_id}",
        f" {node_id}",
        f"{node_id} ",
        f"0_{node_id}",
        f"\u0660{node_id}",
    ]


@pytest.mark.parametrize("api", ["alter_configs", "incremental_alter_configs"])
def test_nobody_alters_the_broker_by_another_spelling_of_its_id(broker, alice, api):
    """No right was asked for: other brokers are refused, but these were taken for this one."""
    with WireClient(broker.bootstrap) as root:
        (node,) = root.call("metadata", 12, topics=[], allow_auto_topic_creation=False)["brokers"]
        for name in odd_spellings(node["node_id"]):
            option = {"name": "log.retention.ms", "config_operation": 0, "value": "1"}
            if api == "alter_configs":
                del option["config_operation"]
            resources = [{"resource_type": 4, "resource_name": name, "configs": [option]}]
            told = alice.call(
                api, 2 if api == "alter_configs" else 1, resources=resources, validate_only=False
            )
            assert told["responses"][0]["error_code"] in {31, 42}, name
        asked = {
            "resource_type": 4,
            "resource_name": str(node["node_id"]),
            "configuration_keys": ["log.retention.ms"],
        }
        described = root.call(
            "describe_configs",
            4,
            resources=[asked],
            include_synonyms=False,
            include_documentation=False,
        )
        (found,) = described["results"][0]["configs"]
        assert found["value"] != "1"
