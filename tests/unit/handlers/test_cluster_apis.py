"""DescribeQuorum and UpdateFeatures: what is told of metadata and features, and what is not."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode
from ottla.handlers.apis.describe_quorum import METADATA_TOPIC, DescribeQuorum
from ottla.handlers.apis.update_features import UpdateFeatures
from ottla.ids import NodeId
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.answered import answered

CALL = SimpleNamespace(client=SimpleNamespace(listener="PLAINTEXT"))


def quorum(*named, controller=2):
    image = SimpleNamespace(controller=NodeId(controller), controller_since=7, revision=40)
    advertised = SimpleNamespace(
        brokers=lambda image, client: [(1, "a", 9093, None), (2, "b", 9094, "r")]
    )
    topics = [
        TopicData(topic_name=topic, partitions=[PartitionData(partition_index=n) for n in numbers])
        for topic, numbers in named
    ]
    handler = DescribeQuorum(image, advertised, ManualClock())
    return answered(handler.handle(DescribeQuorumRequest(topics=topics), CALL))


def test_the_controller_leads_and_its_commits_are_counted():
    answer = quorum((METADATA_TOPIC, [0]))
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_id, part.leader_epoch) == (0, 2, 7)
    assert part.high_watermark == 40
    assert [(one.replica_id, one.log_end_offset) for one in part.current_voters] == [(2, 40)]
    assert not part.observers, "nobody knows how far they are"
    (node,) = answer.nodes
    assert (node.node_id, node.listeners[0].host, node.listeners[0].port) == (2, "b", 9094)


def test_without_a_controller_nobody_leads():
    answer = quorum((METADATA_TOPIC, [0]), controller=-1)
    (part,) = answer.topics[0].partitions
    assert (part.leader_id, part.current_voters, answer.nodes) == (-1, [], [])


@pytest.mark.parametrize(
    "named",
    [
        [("t", [0])],
        [(METADATA_TOPIC, [1])],
        [(METADATA_TOPIC, [0, 0])],
        [(METADATA_TOPIC, [0]), ("t", [0])],
        [(METADATA_TOPIC, [])],
        [],
    ],
)
def test_nothing_else_has_a_quorum(named):
    answer = quorum(*named)
    assert answer.error_code == 0
    assert not answer.nodes
    assert [topic.topic_name for topic in answer.topics] == [topic for topic, _ in named]
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * sum(len(n) for _, n in named)


def update(*updates):
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ]
    )
    return answered(UpdateFeatures({"f": 2, "g": 1}).handle(request, CALL))


def test_a_level_that_is_so_already_is_updated():
    answer = update(("f", 2, 1), ("g", 1, 3))
    assert answer.error_code == 0
    assert [(one.feature, one.error_message) for one in answer.results] == [
        ("f", "NONE"),
        ("g", "NONE"),
    ]
    assert update().error_code == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (("h", 1, 1), "does not support this feature"),
        (("h", 0, 2), "Feature h not found"),
        (("f", -1, 1), "cannot be less than 0"),
        (("f", 3, 1), "only supports versions 0-2"),
        (("f", 2, 0), "does not support the given upgrade type"),
        (("f", 1, 2), "cannot be changed"),
    ],
)
def test_one_update_that_fails_fails_all(wrong, why):
    answer = update(("g", 1, 1), wrong)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert why in answer.error_message
    assert not answer.results
