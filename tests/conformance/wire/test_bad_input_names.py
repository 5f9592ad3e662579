"""Idempotent producers that lie, and topic names that are paths: rows 19 and 20.

Asked of Apache Kafka 4.3.0, too (``--target kafka``).
"""

import pytest

from tools.wire_client import WireClient, batch

BAD_NAMES = [
    "../x",
    "..",
    ".",
    "",
    "a b",
    "a/b",
    "/etc",
    "a\\b",
    "\u00fc",
    "a\0b",
    "x" * 250,
    "a\n",
]


def create(wire, name):
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = wire.call("create_topics", 7, topics=[topic], timeout=10_000)
    return answer["topics"][0]["error_code"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=map(repr, BAD_NAMES))
def test_row_20_a_name_that_is_no_name_is_refused_everywhere(wire, target, name):
    before = set(target.data.parent.rglob("*"))
    assert create(wire, name) == 17
    assert wire.produce(name, batch())["error_code"] == 3
    assert wire.fetch(name)["error_code"] == 3
    assert not {path for path in set(target.data.parent.rglob("*")) - before if path.is_dir()}


def test_a_topic_that_starts_pass_over_is_not_made(wire):
    """A directory of that name is a Kafka controller's: what was written there was nobody's."""
    assert create(wire, "__cluster_metadata") == 42


def test_row_20_names_that_differ_in_dots_and_underscores_collide(wire, topic_name):
    assert create(wire, f"{topic_name}.a") == 0
    assert create(wire, f"{topic_name}_a") == 17


def test_row_20_the_longest_name_lives_and_dies(wire, topic_name):
    name = topic_name.ljust(249, "x")
    wire.create_topic(name)
    assert wire.produce(name, batch())["error_code"] == 0
    answer = wire.call("delete_topics", 5, topic_names=[name], timeout=10_000)
    assert answer["responses"][0]["error_code"] == 0


def test_row_20_a_linked_partition_directory_is_not_followed(ottla_server_factory, tmp_path):
    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        client.create_topic("linked")
        client.create_topic("sound")
    server.stop()
    directory = server.data / "linked-0"
    elsewhere = tmp_path / "elsewhere"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in elsewhere.iterdir())
    server.start()
    with WireClient(server.bootstrap) as client:
        assert client.produce("linked", batch())["error_code"] == 56
        assert client.produce("sound", batch())["error_code"] == 0
    assert sorted((path.name, path.stat().st_mtime_ns) for path in elsewhere.iterdir()) == before


# Row 19.


def idempotent(wire, topic, sequence, *, producer_id=7, epoch=0, attributes=0):
    records = batch(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )
    answer = wire.produce(topic, records)
    return answer["error_code"], answer["base_offset"]


def test_row_19_what_a_liar_says_of_itself(wire, topic_name):
    wire.create_topic(topic_name)
    assert idempotent(wire, topic_name, 0, producer_id=987_654) == (0, 0), "an unknown id"
    assert idempotent(wire, topic_name, 0, epoch=5) == (0, 1)
    assert idempotent(wire, topic_name, 7, epoch=5) == (45, -1), "a gap"
    assert idempotent(wire, topic_name, 1, epoch=4) == (47, -1), "an old epoch"
    assert idempotent(wire, topic_name, 0, epoch=5) == (0, 1), "a duplicate"
    assert idempotent(wire, topic_name, 1, epoch=5, attributes=0x10) == (53, -1)
    assert wire.list_offsets(topic_name, [0]) == [(0, 2)]
