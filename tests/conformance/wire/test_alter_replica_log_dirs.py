"""AlterReplicaLogDirs on a node with two log directories: what a live Kafka 4.3 answers."""

import time
from pathlib import Path

import pytest

from tools.wire_client import WireClient, batch, values_of

NONE, UNKNOWN_PARTITION, LOG_DIR_NOT_FOUND = 0, 3, 57


class Node:
    """A broker with the log directories ``one`` and ``two``."""

    def __init__(self, wire, directories):
        self.wire = wire
        self.one, self.two = map(str, directories)

    def alter(self, *moves, version=2):
        """Ask for (directory, topic, partitions); return {(topic, partition): code}."""
        answer = self.wire.call(
            "alter_replica_log_dirs",
            version,
            dirs=[
                {"path": path, "topics": [{"name": topic, "partitions": partitions}]}
                for path, topic, partitions in moves
            ],
        )
        return {
            (topic["topic_name"], part["partition_index"]): part["error_code"]
            for topic in answer["results"]
            for part in topic["partitions"]
        }

    def counts(self):
        """How many partitions, copies included, lie in each of the two directories."""
        results = self.wire.call("describe_log_dirs", 4, topics=None)["results"]
        lie = {
            each["log_dir"]: sum(len(topic["partitions"]) for topic in each["topics"])
            for each in results
        }
        return lie[self.one], lie[self.two]

    def places(self, topic):
        """{partition: [(directory, is a copy)]} of a topic."""
        found = {}
        for result in self.wire.call("describe_log_dirs", 4, topics=None)["results"]:
            for each in result["topics"]:
                for part in each["partitions"] if each["name"] == topic else ():
                    assert part["offset_lag"] >= 0
                    told = result["log_dir"], part["is_future_key"]
                    found.setdefault(part["partition_index"], []).append(told)
        return found

    def place(self, topic, partition=0):
        """The directory a partition lies in, copies left aside."""
        told = self.places(topic)[partition]
        return next(directory for directory, is_copy in told if not is_copy)

    def other(self, topic, partition=0):
        return self.two if self.place(topic, partition) == self.one else self.one

    def wait_for(self, topic, places):
        deadline = time.monotonic() + 30
        while (found := self.places(topic)) != places:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)


@pytest.fixture(scope="module")
def node(target_kind, tmp_path_factory, request):
    base = tmp_path_factory.mktemp("dirs")
    one, two = base / "one", base / "two"
    if target_kind == "kafka":
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer

        peer = KafkaPeer(one, {"log.dirs": f"{one},{two}"})
    else:
        from tools.ottla_peer import OttlaPeer

        peer = OttlaPeer(Path(f"{one},{two}"))  # as the command line takes them
    peer.start()
    try:
        with WireClient(peer.bootstrap) as wire:
            yield Node(wire, (one, two))
    finally:
        peer.kill9()


@pytest.fixture
def topic(node, topic_name):
    """Of two partitions, ten records in the first."""
    node.wire.create_topic(topic_name, 2)
    assert node.wire.produce(topic_name, batch([b"x" * 100] * 10))["error_code"] == 0
    return topic_name


def test_new_partitions_are_spread(node, topic_name):
    # Each goes where the fewest lie: what other tests have moved is evened out first.
    node.wire.create_topic(topic_name, 20)
    one, two = node.counts()
    assert abs(one - two) <= 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_with_its_records(node, topic, version):
    there = node.other(topic)
    stays = node.place(topic, 1)
    assert node.alter((there, topic, [0]), version=version) == {(topic, 0): NONE}
    node.wait_for(topic, {0: [(there, False)], 1: [(stays, False)]})
    fetched = node.wire.fetch(topic, 0)
    assert len(values_of(fetched["records"])) == 10
    assert node.wire.produce(topic, batch([b"more"]))["base_offset"] == 10
    back = node.other(topic)
    assert node.alter((back, topic, [0])) == {(topic, 0): NONE}
    node.wait_for(topic, {0: [(back, False)], 1: [(stays, False)]})
    assert node.wire.list_offsets(topic, [0]) == [(NONE, 11)]


@pytest.mark.parametrize("path", ["/nope", "relative", "", "{one}/"])
def test_a_directory_is_known_by_its_exact_name(node, topic, path):
    path = path.format(one=node.one)
    assert node.alter((path, topic, [0])) == {(topic, 0): LOG_DIR_NOT_FOUND}


def test_an_unknown_partition_is_refused_alone(node, topic):
    found = node.alter((node.one, "missing", [0]), (node.one, topic, [7]))
    assert found == {("missing", 0): UNKNOWN_PARTITION, (topic, 7): UNKNOWN_PARTITION}


def test_moving_to_where_it_is_is_no_error(node, topic):
    place = node.place(topic)
    assert node.alter((place, topic, [0])) == {(topic, 0): NONE}
    assert node.place(topic) == place


def test_nothing_asked_is_nothing_answered(node, topic):
    assert node.alter() == {}
    assert node.alter((node.one, topic, [])) == {}


def test_of_a_partition_named_twice_the_last_directory_counts(node, topic):
    here, there = node.place(topic), node.other(topic)
    assert node.alter((here, topic, [0, 0]), (there, topic, [0])) == {(topic, 0): NONE}
    node.wait_for(topic, {0: [(there, False)], 1: [(node.place(topic, 1), False)]})
