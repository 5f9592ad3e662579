"""Offsets of a deleted topic do not count for a new topic of the name, if a crash kept them.

A client that believed one would begin to read the new topic behind its first records.
"""

import pytest

from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.group.shard import FORGET_RETRY_MS
from ottla.coordinator.records import ProducerIdAndEpoch
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.metadata.image import MetadataDelta, TopicImage
from ottla.metadata.values import PartitionState

OLD, NEW = TopicId(b"the first of two"), TopicId(b"the second of 2.")
STATE = PartitionState((NodeId(1),), (NodeId(1),), NodeId(1), LeaderEpoch(0), 0)


@pytest.fixture
def groups(make_groups):
    groups = make_groups()
    groups.topics["t"] = TopicImage("t", OLD, (STATE,) * 2)
    return groups


def commit(groups, topic_id, *offsets, producer=None):
    topics = [TopicCommit("t", [(index, offset, -1, "") for index, offset in offsets], topic_id)]
    asked = CommitRequest("g", "", None, -1, -1, topics, True, producer)
    written = groups.coordinator.commit_offsets(asked)
    groups.settle()
    assert set(written.value) == {0}


def delete(groups):
    gone = groups.topics.pop("t")
    groups.coordinator.apply(None, MetadataDelta(revision=2, topics_deleted=(gone,)))


def make_anew(groups):
    groups.topics["t"] = TopicImage("t", NEW, (STATE,) * 2)


def fetched(groups):
    """What is told of both partitions by name, and of all that there is."""
    asked = groups.coordinator.fetch_offsets("g", [("t", 0), ("t", 1)], require_stable=False)
    named = [one.committed and one.committed.offset for one in asked.value]
    return named, groups.fetch("g")


def kept(groups):
    """What the log still has."""
    return groups.shard("g").machine.offsets.of_group("g").get("t", {})


def refuse_writes(groups, insync):
    for index in range(2):
        groups.partition(index).min_insync_replicas = insync


def test_after_a_crash_before_they_were_forgotten_nobody_is_told_of_them(groups):
    commit(groups, OLD, (0, 7), (1, 8))
    assert fetched(groups) == ([7, 8], {("t", 0): 7, ("t", 1): 8})
    del groups.topics["t"]  # The store knows; nothing was written to the offsets' topic.
    make_anew(groups)
    groups.restart()
    assert fetched(groups) == ([None, None], {})
    commit(groups, NEW, (0, 1))
    assert fetched(groups) == ([1, None], {("t", 0): 1})


def test_then_they_are_forgotten_with_what_expires_and_those_of_the_new_topic_are_not(groups):
    commit(groups, OLD, (0, 7), (1, 8))
    make_anew(groups)
    commit(groups, NEW, (0, 1))
    groups.clock.advance(groups.settings.offsets_retention_check_interval_ms / 1000 + 1)
    groups.settle()
    assert list(kept(groups)) == [0]
    groups.restart()
    assert list(kept(groups)) == [0]
    assert fetched(groups)[0] == [1, None]


def test_what_could_not_be_forgotten_is_tried_again(groups):
    commit(groups, OLD, (0, 7))
    refuse_writes(groups, insync=2)
    delete(groups)
    groups.settle()
    assert list(kept(groups)) == [0]
    groups.clock.advance(FORGET_RETRY_MS / 1000 + 0.1)
    groups.settle()
    assert list(kept(groups)) == [0]
    refuse_writes(groups, insync=1)
    groups.clock.advance(FORGET_RETRY_MS / 1000 + 0.1)
    groups.settle()
    assert not kept(groups)
    groups.restart()
    assert not kept(groups)


def test_trying_again_takes_nothing_of_the_new_topics(groups):
    commit(groups, OLD, (0, 7), (1, 8))
    refuse_writes(groups, insync=2)
    delete(groups)
    groups.settle()
    make_anew(groups)
    assert fetched(groups) == ([None, None], {})
    refuse_writes(groups, insync=1)
    commit(groups, NEW, (0, 1))
    groups.clock.advance(10 * FORGET_RETRY_MS / 1000)
    groups.settle()
    assert fetched(groups) == ([1, None], {("t", 0): 1})


def test_what_a_transaction_is_about_to_commit_stays(groups):
    commit(groups, OLD, (0, 7))
    make_anew(groups)
    commit(groups, NEW, (0, 1), producer=ProducerIdAndEpoch(5, 0))
    groups.clock.advance(groups.settings.offsets_retention_check_interval_ms / 1000 + 1)
    groups.settle()
    assert fetched(groups)[0] == [None, None]
    for _ in groups.shard("g").machine.offsets.end_transaction(5, is_commit=True):
        pass
    assert fetched(groups)[0] == [1, None]
