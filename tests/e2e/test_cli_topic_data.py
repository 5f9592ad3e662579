"""``ottla topic size`` and ``trim`` against Ottla, and the same words against Apache Kafka."""

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topic(ottla, topic_name):
    """Two partitions, of a hundred and of ten records."""
    assert ottla("topic", "create", topic_name, "-p", "2")[0] == 0
    for partition, count in (("0", 100), ("1", 10)):
        lines = "".join(f"{number}\n" for number in range(count))
        assert ottla("produce", topic_name, "-p", partition, "-q", text=lines)[0] == 0
    return topic_name


def starts(shown, topic):
    return [row["start"] for row in shown("topic", "describe", topic)["partitions"]]


def test_sizes_of_topics_and_of_replicas_agree(ottla, shown, topic):
    empty = f"{topic}-empty"
    assert ottla("topic", "create", empty, "-p", "1")[0] == 0
    rows = shown("topic", "size", topic, empty)
    assert [row["topic"] for row in rows] == [topic, empty], "the largest first"
    assert (rows[0]["partitions"], rows[0]["replicas"], rows[1]["size_bytes"]) == (2, 2, 0)
    replicas = shown("topic", "size", topic)
    assert [row["partition"] for row in replicas] == [0, 1]
    assert sum(row["size_bytes"] for row in replicas) == rows[0]["size_bytes"]
    assert replicas[0]["size_bytes"] == rows[0]["largest_bytes"] > 900
    assert {row["topic"] for row in shown("topic", "size")} >= {topic, empty}
    assert ottla("topic", "size", f"{topic}x")[0] == 5


def test_a_trim_deletes_what_is_before_and_nothing_else(ottla, shown, topic):
    rows = shown("topic", "trim", topic, "--to", "-3", "--dry-run")
    assert [(row["start"], row["new_start"], row["end"]) for row in rows] == [
        (0, 97, 100),
        (0, 7, 10),
    ]
    code, _, err = ottla("topic", "trim", topic, "--to", "-3")
    assert (code, "--yes" in err) == (2, True)
    assert starts(shown, topic) == [0, 0], "neither a dry run nor a question deletes"
    assert ottla("topic", "trim", f"{topic}:0", "--to", "50", "--yes")[0] == 0
    assert starts(shown, topic) == [50, 0]
    assert ottla("consume", topic, "-p", "0", "-n", "1")[1] == "50\n"
    code, _, err = ottla("topic", "trim", topic, "--to", "latest", "--yes")
    assert (code, f"{topic}-1 begins at 10" in err) == (0, True)
    assert starts(shown, topic) == [100, 10]
    code, _, err = ottla("topic", "trim", topic, "--to", "latest", "--yes")
    assert (code, "nothing to delete" in err) == (0, True)


def test_a_trim_behind_the_end_of_a_partition_deletes_nothing_at_all(ottla, shown, topic):
    code, _, err = ottla("topic", "trim", topic, "--to", "50", "--yes")
    assert (code, f"{topic}-1 ends at 10" in err) == (2, True)
    for wrong in (f"{topic}:7", f"{topic}x"):
        assert ottla("topic", "trim", wrong, "--to", "1", "--yes")[0] == 5
    assert ottla("topic", "trim", f"{topic}:x", "--to", "1", "--yes")[0] == 2
    assert ottla("topic", "trim", topic, "--to", "soon", "--yes")[0] == 2
    assert starts(shown, topic) == [0, 0]
