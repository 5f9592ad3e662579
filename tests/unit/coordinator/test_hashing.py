import pytest

from ottla.coordinator.hashing import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("g1", 3242),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é" * 3, 233 * (31 * 31 + 31 + 1)),
        ("😀", 1772899),
    ],
)
def test_java_hash(text, hashed):
    assert java_hash(text) == hashed


def test_partitions_are_those_that_kafka_chose():
    # Seen in a directory of Apache Kafka 4.3 with 50 partitions.
    assert partition_for("g1", 50) == 42
    assert partition_for("c1", 50) == 18
    assert partition_for("polygenelubricants", 50) == 0
